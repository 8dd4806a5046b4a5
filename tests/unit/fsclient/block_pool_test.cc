// Memory for whole blocks.
#include "fsclient/block_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "fsclient/block_cache.h"

namespace tusk::client {
namespace {

TEST(BlockPool, HandsOutWholeBlocksThatAreEachOnesOwn) {
  BlockPool pool;
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 100; ++i) {
    blocks.push_back(pool.take());
    std::memset(blocks.back(), i, kBlockSize);
  }
  EXPECT_EQ(std::set<std::byte*>(blocks.begin(), blocks.end()).size(), blocks.size());
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(blocks[static_cast<std::size_t>(i)][0], std::byte(i));
    EXPECT_EQ(blocks[static_cast<std::size_t>(i)][kBlockSize - 1], std::byte(i));
  }
  for (std::byte* block : blocks) pool.give_back(block);
}

TEST(BlockPool, UsesAgainWhatWasGivenBack) {
  if (BlockPool::kSpareMax == 0) GTEST_SKIP() << "skipped, because the sanitizer shall see who uses it again";
  BlockPool pool;
  std::byte* const first = pool.take();
  pool.give_back(first);
  std::byte* const second = pool.take();
  EXPECT_EQ(second, first);
  pool.give_back(second);
}

TEST(BlockPool, MemoryIsThereOnceItIsProvided) {
  BlockPool pool;
  std::byte* const block = pool.take();
  provide_memory({block + 100, 5000});  // two pages, parts of them
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::byte* const first = block + 100 - reinterpret_cast<std::uintptr_t>(block + 100) % page;
  std::vector<unsigned char> there(2);
  ASSERT_EQ(::mincore(first, 2 * page, there.data()), 0);
  EXPECT_TRUE((there[0] & 1) != 0 && (there[1] & 1) != 0);
  pool.give_back(block);
}

TEST(BlockPool, ServesThreadsAtOnce) {
  BlockPool pool;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 500; ++i) {
        std::byte* const block = pool.take();
        std::memset(block, t, 4096);
        EXPECT_TRUE(std::all_of(block, block + 4096, [t](std::byte b) { return b == std::byte(t); }));
        pool.give_back(block);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(BlockBuffer, CountsItsMemoryWhateverItsSize) {
  const auto budget = std::make_shared<MemoryBudget>(1 << 20, 1 << 20);
  {
    BlockBuffer whole(budget, kBlockSize);
    BlockBuffer part(budget, 4096);
    EXPECT_EQ(budget->used(), kBlockSize + 4096);
    std::ranges::fill(whole.bytes(), std::byte(1));
    std::ranges::fill(part.bytes(), std::byte(2));
  }
  EXPECT_EQ(budget->used(), 0u);
}

}  // namespace
}  // namespace tusk::client
