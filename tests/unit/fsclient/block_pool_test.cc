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
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const mapped = ::mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const memory = static_cast<std::byte*>(mapped);
  ::madvise(memory, 3 * page, MADV_NOHUGEPAGE);  // of which one would be all of it
  if (::madvise(memory, 0, MADV_POPULATE_WRITE) != 0) GTEST_SKIP() << "skipped, because this kernel cannot";
  provide_memory({memory + 100, page});  // of two pages, parts
  std::vector<unsigned char> there(3);
  ASSERT_EQ(::mincore(memory, 3 * page, there.data()), 0);
  EXPECT_TRUE((there[0] & 1) != 0 && (there[1] & 1) != 0);
  EXPECT_EQ(there[2] & 1, 0);
  ::munmap(mapped, 3 * page);
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
