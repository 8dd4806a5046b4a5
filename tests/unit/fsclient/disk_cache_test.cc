// The disk cache by itself: what comes back after a restart, what damage and a full disk do, who goes first.
#include "fsclient/disk_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "fsclient/disk_folder.h"
#include "manual_scheduler.h"
#include "tests/support/temp_dir.h"

namespace tusk::client {
namespace {

namespace fs = std::filesystem;

constexpr ByteCount kMiBytes = 1024 * 1024;
constexpr std::size_t kBlock = 256 * 1024;

std::string block_bytes(std::uint64_t seed, std::size_t size = kBlock) {
  std::string bytes(size, '\0');
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (char& c : bytes)
    c = static_cast<char>((state = state * 6364136223846793005u + 1442695040888963407u) >> 56);
  return bytes;
}

class DiskCacheTest : public testing::Test {
 protected:
  DiskCacheTest() { start(); }

  void start(ByteCount bytes_max = 64 * kMiBytes) {
    cache.reset();
    cache = std::make_unique<DiskCache>(DiskCache::Options{.folder = folder.path(), .bytes_max = bytes_max},
                                        disk);
    cache->on_trouble([this](const std::string& what) { troubles.push_back(what); });
    disk.run();
  }
  void store(const std::string& handle, std::uint64_t change, std::uint64_t block, const std::string& bytes,
             std::optional<std::string> path = std::nullopt) {
    cache->store(
        {handle, change, block}, [&] { return copy_bytes(as_byte_span(bytes)); },
        [path = std::move(path)] { return path; });
    disk.run();
  }
  // "" when it is not there.
  std::string read(const std::string& handle, std::uint64_t change, std::uint64_t block,
                   std::size_t length = kBlock, std::uint32_t begin = 0,
                   std::optional<std::string> path = std::nullopt) {
    const MutableSharedBytes target = allocate_bytes(length);
    std::optional<Result<void>> outcome;
    cache->read(
        {handle, change, block}, begin, target, [path = std::move(path)] { return path; },
        [&](Result<void> result) { outcome = std::move(result); });
    disk.run();
    EXPECT_TRUE(outcome.has_value());
    return outcome && *outcome ? std::string(as_text(target.bytes)) : "";
  }
  std::vector<fs::path> segments() {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder.path()))
      if (entry.path().extension() == ".blocks") found.push_back(entry.path());
    std::ranges::sort(found);
    return found;
  }
  ByteCount bytes_on_disk() {
    ByteCount bytes = 0;
    for (const fs::path& segment : segments()) bytes += fs::file_size(segment);
    return bytes;
  }
  static void damage(const fs::path& file, ByteCount offset) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(offset));
    const char was = static_cast<char>(stream.get());
    stream.seekp(static_cast<std::streamoff>(offset));
    stream.put(static_cast<char>(was ^ 1));
  }

  support::TempDir folder;
  ManualScheduler disk;
  std::unique_ptr<DiskCache> cache;
  std::vector<std::string> troubles;
};

TEST_F(DiskCacheTest, WhatWasStoredIsThereAfterARestart) {
  store("film", 7, 0, block_bytes(1));
  store("film", 7, 1, block_bytes(2, 1000));
  start();
  EXPECT_EQ(read("film", 7, 0), block_bytes(1));
  EXPECT_EQ(read("film", 7, 1, 1000), block_bytes(2, 1000));
  EXPECT_EQ(cache->find("film", 1)->length, 1000u);
  EXPECT_EQ(cache->stats().hits, 2u);
}

TEST_F(DiskCacheTest, APartOfABlockIsReadAsItIsInTheBlock) {
  store("film", 7, 3, block_bytes(1));
  EXPECT_EQ(read("film", 7, 3, 5000, 100'000), block_bytes(1).substr(100'000, 5000));
  EXPECT_EQ(read("film", 7, 3, kBlock, 1), "") << "past its end";
}

TEST_F(DiskCacheTest, AnotherVersionIsNotThereAndTakesThePlaceOfTheOlderOne) {
  store("film", 7, 0, block_bytes(1));
  EXPECT_EQ(read("film", 8, 0), "");
  store("film", 8, 0, block_bytes(2));
  EXPECT_EQ(read("film", 7, 0), "");
  EXPECT_EQ(read("film", 8, 0), block_bytes(2));
  start();
  EXPECT_EQ(read("film", 8, 0), block_bytes(2));
  EXPECT_EQ(cache->stats().blocks, 1u);
}

TEST_F(DiskCacheTest, ADamagedBlockIsNotUsedAndCounted) {
  store("film", 7, 0, block_bytes(1));
  store("film", 7, 1, block_bytes(2));
  damage(segments().front(), 5000);
  EXPECT_EQ(read("film", 7, 0), "");
  EXPECT_EQ(read("film", 7, 1), block_bytes(2));
  EXPECT_EQ(cache->stats().damaged, 1u);
  EXPECT_FALSE(cache->find("film", 0)) << "it would only be damaged again";
  store("film", 7, 0, block_bytes(1));
  EXPECT_EQ(read("film", 7, 0), block_bytes(1));
}

// As after kill -9 or a crash: bytes are missing or wrong from some point on.
TEST_F(DiskCacheTest, WhatIsTornOffIsCutOffAndTheRestIsUsed) {
  for (std::uint64_t block = 0; block < 3; ++block) store("film", 7, block, block_bytes(block));
  const fs::path segment = segments().front();
  const ByteCount record = fs::file_size(segment) / 3;
  for (const ByteCount end : {3 * record - 1, 2 * record + 10}) {
    fs::resize_file(segment, end);
    start();
    EXPECT_EQ(read("film", 7, 0), block_bytes(0));
    EXPECT_EQ(read("film", 7, 1), block_bytes(1));
    EXPECT_EQ(read("film", 7, 2), "");
    EXPECT_EQ(fs::file_size(segment), 2 * record);
    store("film", 7, 2, block_bytes(2));
    EXPECT_EQ(read("film", 7, 2), block_bytes(2));
  }
  damage(segment, record + 9);  // a head: where the next one begins is not known any more
  start();
  EXPECT_EQ(read("film", 7, 0), block_bytes(0));
  EXPECT_FALSE(cache->find("film", 1));
  EXPECT_FALSE(cache->find("film", 2));
}

TEST_F(DiskCacheTest, AnythingAtAllInASegmentIsNoMoreThanMissing) {
  for (std::uint64_t block = 0; block < 12; ++block) store("film", 7, block, block_bytes(block));
  ASSERT_GE(segments().size(), 3u) << "some are sealed";
  std::uint64_t state = 1;
  for (int round = 0; round < 40; ++round) {
    for (const fs::path& segment : segments()) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      damage(segment, (state >> 20) % fs::file_size(segment));
      damage(segment,
             fs::file_size(segment) - 1 - (state >> 40) % std::min<ByteCount>(600, fs::file_size(segment)));
    }
    start();
    for (std::uint64_t block = 0; block < 12; ++block) {
      const std::string bytes = read("film", 7, block);
      EXPECT_TRUE(bytes.empty() || bytes == block_bytes(block)) << block;
      store("film", 7, block, block_bytes(block));
      EXPECT_EQ(read("film", 7, block), block_bytes(block));
    }
  }
}

TEST_F(DiskCacheTest, WhatWasOfUseLongestAgoGoesFirstAndTheSizeHolds) {
  const std::uint64_t blocks = 4 * 64 + 40;  // 64 MiB hold 256
  for (std::uint64_t block = 0; block < blocks; ++block) {
    store("film", 7, block, block_bytes(block));
    if (block >= 4) {
      EXPECT_EQ(read("film", 7, 0), block_bytes(0)) << "of use all the time, at " << block;
    }
    EXPECT_LE(bytes_on_disk(), 64 * kMiBytes);
  }
  EXPECT_GE(bytes_on_disk(), 62 * kMiBytes);
  EXPECT_FALSE(cache->find("film", 8));
  EXPECT_TRUE(cache->find("film", blocks - 1));
  EXPECT_GT(cache->stats().evicted_bytes, 0u);
  start();
  EXPECT_EQ(read("film", 7, 0), block_bytes(0));
  EXPECT_LE(cache->stats().used_bytes, 64 * kMiBytes);
}

TEST_F(DiskCacheTest, ASmallerLimitHoldsFromTheStart) {
  start(128 * kMiBytes);
  for (std::uint64_t block = 0; block < 400; ++block) store("film", 7, block, block_bytes(block));
  EXPECT_GT(bytes_on_disk(), 64 * kMiBytes);
  start(64 * kMiBytes);
  EXPECT_LE(bytes_on_disk(), 64 * kMiBytes);
  EXPECT_EQ(read("film", 7, 399), block_bytes(399)) << "the newest stay";
}

TEST_F(DiskCacheTest, PinnedFilesStay) {
  ASSERT_TRUE(cache->pin("sets/a"));
  store("pinned", 1, 0, block_bytes(1), "sets/a/file");
  store("not pinned", 1, 0, block_bytes(2), "sets/ab");
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t block = 0; block < 300; ++block)
      store("film", round + 1, block, block_bytes(block), "film");
    EXPECT_EQ(read("pinned", 1, 0), block_bytes(1));
    EXPECT_EQ(read("not pinned", 1, 0), "");
    start();
  }
  EXPECT_THAT(cache->stats().pins, testing::ElementsAre("sets/a"));
  ASSERT_TRUE(cache->unpin("sets"));
  disk.run();
  start();
  for (std::uint64_t block = 0; block < 300; ++block) store("film", 3, block, block_bytes(block), "film");
  EXPECT_EQ(read("pinned", 1, 0), "");
}

TEST_F(DiskCacheTest, WhatIsThereAlreadyIsPinnedOnceItIsRead) {
  store("file", 1, 0, block_bytes(1), "a/file");
  ASSERT_TRUE(cache->pin(""));
  EXPECT_EQ(cache->stats().pinned_bytes, 0u);
  EXPECT_EQ(read("file", 1, 0, kBlock, 0, "a/file"), block_bytes(1));
  disk.run();
  EXPECT_GT(cache->stats().pinned_bytes, 0u);
  EXPECT_EQ(read("file", 1, 0, kBlock, 0, "a/file"), block_bytes(1));
  EXPECT_EQ(cache->stats().blocks, 1u);
}

TEST_F(DiskCacheTest, PinnedFilesThatFillTheCacheLeaveNoRoomAndThatIsSaidOnce) {
  ASSERT_TRUE(cache->pin("a"));
  for (std::uint64_t block = 0; block < 300; ++block) store("big", 1, block, block_bytes(block), "a/big");
  EXPECT_LE(bytes_on_disk(), 64 * kMiBytes);
  EXPECT_EQ(read("big", 1, 0), block_bytes(0));
  EXPECT_FALSE(cache->find("big", 299));
  EXPECT_THAT(troubles, testing::ElementsAre(testing::HasSubstr("pinned files take all")));
  ASSERT_TRUE(cache->unpin("a"));
  store("big", 1, 299, block_bytes(299), "a/big");
  EXPECT_TRUE(cache->find("big", 299));
}

TEST_F(DiskCacheTest, NewVersionsOfPinnedFilesTakeThePlaceOfOldOnes) {
  ASSERT_TRUE(cache->pin("a"));
  for (std::uint64_t change = 1; change <= 20; ++change)
    for (std::uint64_t block = 0; block < 40; ++block)
      store("file", change, block, block_bytes(change * 100 + block), "a/file");
  for (std::uint64_t block = 0; block < 40; ++block)
    EXPECT_EQ(read("file", 20, block), block_bytes(2000 + block));
  EXPECT_LE(bytes_on_disk(), 64 * kMiBytes);
}

TEST_F(DiskCacheTest, PinsAreNotInsideEachOther) {
  ASSERT_TRUE(cache->pin("a/b"));
  ASSERT_TRUE(cache->pin("a/c d%"));
  ASSERT_TRUE(cache->pin("a"));
  ASSERT_TRUE(cache->pin("a/b")) << "it is pinned already";
  start();
  EXPECT_THAT(cache->stats().pins, testing::ElementsAre("a"));
  EXPECT_THAT(cache->unpin("a/b").error().context, testing::HasSubstr("pinned with a"));
  EXPECT_THAT(cache->unpin("b").error().context, testing::HasSubstr("not pinned"));
  ASSERT_TRUE(cache->unpin("a"));
  EXPECT_TRUE(cache->stats().pins.empty());
}

// A limit on the size of files does to a write what a full disk does.
TEST_F(DiskCacheTest, AFullDiskIsSaidOnceAndTriedAgainLater) {
  store("film", 7, 0, block_bytes(0));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = kBlock + 1000, .rlim_max = before.rlim_max};
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  store("film", 7, 1, block_bytes(1));
  store("film", 7, 2, block_bytes(2));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old);
  EXPECT_EQ(troubles.size(), 1u);
  EXPECT_NE(cache->stats().problem, "");
  EXPECT_EQ(cache->stats().skipped_bytes, 2 * kBlock);
  EXPECT_EQ(cache->stats().pending_bytes, 0u);
  EXPECT_EQ(read("film", 7, 0), block_bytes(0)) << "reading goes on";
  store("film", 7, 1, block_bytes(1));
  EXPECT_FALSE(cache->find("film", 1)) << "not so soon";
  disk.advance(DiskCache::kPauseAfterFailure + std::chrono::seconds(1));
  store("film", 7, 1, block_bytes(1));
  EXPECT_EQ(read("film", 7, 1), block_bytes(1));
  EXPECT_EQ(cache->stats().problem, "");
}

TEST_F(DiskCacheTest, WhatCannotBeWrittenInTimeIsNotStored) {
  const std::string bytes = block_bytes(1);
  const std::uint64_t fits = DiskCache::kPendingMax / kBlock;
  for (std::uint64_t block = 0; block < fits + 3; ++block)
    cache->store(
        {"film", 7, block}, [&] { return copy_bytes(as_byte_span(bytes)); }, nullptr);
  EXPECT_EQ(cache->stats().pending_bytes, DiskCache::kPendingMax);
  disk.run();
  EXPECT_EQ(cache->stats().blocks, fits);
  EXPECT_EQ(cache->stats().skipped_bytes, 3 * kBlock);
  EXPECT_EQ(cache->stats().pending_bytes, 0u);
}

// What the mount's threads do at the same time; the thread sanitizer looks on.
TEST_F(DiskCacheTest, ManyThreadsUseItAtOnce) {
  ThreadScheduler threads(3);
  DiskCache shared({.folder = folder.path(), .bytes_max = 64 * kMiBytes}, threads);
  constexpr std::uint64_t kUsers = 3;
  constexpr std::uint64_t kBlocks = 120;
  std::atomic<std::uint64_t> right{0}, wrong{0};
  std::vector<std::thread> users;
  for (std::uint64_t user = 0; user < kUsers; ++user)
    users.emplace_back([&, user] {
      const std::string handle = "file" + std::to_string(user);
      const auto path_of = [user] { return std::optional<std::string>(user == 0 ? "a/file" : "b"); };
      for (std::uint64_t block = 0; block < kBlocks; ++block) {
        const std::string bytes = block_bytes(user * 1000 + block);
        shared.store(
            {handle, 1, block}, [&] { return copy_bytes(as_byte_span(bytes)); }, path_of);
        const std::uint64_t earlier = block / 2;
        const MutableSharedBytes target = allocate_bytes(kBlock);
        shared.read({handle, 1, earlier}, 0, target, path_of,
                    [&, user, earlier, target](const Result<void>& outcome) {
                      if (outcome)
                        ++(as_text(target.bytes) == block_bytes(user * 1000 + earlier) ? right : wrong);
                    });
        if (user == 0 && block % 16 == 0) {
          (void)(block % 32 == 0 ? shared.pin("a") : shared.unpin("a"));
          (void)shared.stats();
        }
      }
    });
  for (std::thread& user : users) user.join();
  shared.finish(std::chrono::seconds(30));
  threads.stop();
  EXPECT_GT(right, 0u);
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(shared.stats().damaged, 0u);
  EXPECT_EQ(shared.stats().pending_bytes, 0u);
  EXPECT_LE(bytes_on_disk(), 64 * kMiBytes);
}

TEST_F(DiskCacheTest, OtherFilesInTheFolderAreLeftAlone) {
  std::ofstream(folder.path() / "notes.blocks") << "mine";
  start();
  for (std::uint64_t block = 0; block < 300; ++block) store("film", 7, block, block_bytes(block));
  EXPECT_TRUE(fs::exists(folder.path() / "notes.blocks"));
}

// ---------------------------------------------------------------- the folder

class DiskFolderTest : public testing::Test {
 protected:
  [[nodiscard]] auto open(const std::string& name, const std::string& server = "key") const {
    return DiskFolder::open(parent.path() / name, server, "films");
  }
  support::TempDir parent;
};

TEST_F(DiskFolderTest, IsMadeForItsOwnerAlone) {
  const auto folder = open("cache");
  ASSERT_TRUE(folder);
  struct stat st {};
  ASSERT_EQ(::stat((parent.path() / "cache").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0700u);
  ASSERT_EQ(::stat((*folder)->path().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0700u);
  EXPECT_GE((*folder)->default_size(), DiskFolder::kBytesMin);
}

TEST_F(DiskFolderTest, ThatOthersCanReadOrThatHoldsOtherThingsIsRefused) {
  fs::create_directory(parent.path() / "open");
  fs::permissions(parent.path() / "open", fs::perms(0755));
  EXPECT_THAT(open("open").error().context, testing::HasSubstr("chmod 700"));
  std::ofstream(parent.path() / "open" / "thesis") << "text";
  EXPECT_THAT(open("open").error().context, testing::HasSubstr("other things")) << "no word of chmod";
  fs::permissions(parent.path() / "open", fs::perms(0700));
  EXPECT_THAT(open("open").error().context, testing::HasSubstr("other things"));
  std::ofstream(parent.path() / "file") << "text";
  EXPECT_EQ(open("file").error().code, ErrorCode::kBadConfig);
  fs::create_directory_symlink("/tmp", parent.path() / "link");
  EXPECT_THAT(open("link").error().context, testing::HasSubstr("not a directory"));
  EXPECT_THAT(open("missing/cache").error().context, testing::HasSubstr("cannot be made"));
  if (::geteuid() != 0) GTEST_SKIP() << "skipped, because only root can make somebody else's folder";
  fs::create_directory(parent.path() / "foreign");
  fs::permissions(parent.path() / "foreign", fs::perms(0700));
  ASSERT_EQ(::chown((parent.path() / "foreign").c_str(), 12345, 12345), 0);
  EXPECT_THAT(open("foreign").error().context, testing::HasSubstr("another user"));
}

TEST_F(DiskFolderTest, OneMountAtATimeUsesAnExportsPart) {
  auto first = open("cache");
  ASSERT_TRUE(first);
  const auto second = open("cache");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, from_errno(EBUSY));
  EXPECT_THAT(second.error().context, testing::HasSubstr("another mount"));
  const auto elsewhere = open("cache", "another server's key");
  ASSERT_TRUE(elsewhere);
  EXPECT_NE((*elsewhere)->path(), (*first)->path());
  first->reset();
  EXPECT_TRUE(open("cache"));
}

}  // namespace
}  // namespace tusk::client
