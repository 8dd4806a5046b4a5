// The disk cache behind a file system: bytes come from it only when they are the file's, and never mixed.
#include "client.h"
#include "fsclient/disk_cache.h"
#include "tests/support/temp_dir.h"

namespace tusk::client {
namespace {

constexpr std::size_t kSize = 2'000'000;

// A mount with a disk cache, which can be mounted again.
class KeptBlocksTest : public Client {
 protected:
  KeptBlocksTest() { mount(); }
  ~KeptBlocksTest() override {
    unmount();  // before its disk cache
  }

  void mount(ByteCount pending_max = DiskCache::kPendingMax) {
    settle();
    unmount();
    cache.reset();
    cache = std::make_unique<DiskCache>(
        DiskCache::Options{
            .folder = folder.path(), .bytes_max = 64 * 1024 * kKiB, .pending_max = pending_max},
        scheduler);
    settle();
    Filesystem::Options options;
    options.disk = cache.get();
    options.confirmed = [this] { return confirmed.value_or(scheduler.now()); };
    mount_with(std::move(options));
  }
  std::string read_all(const std::string& name) {
    const Handle file = open(name, O_RDONLY);
    std::string got;
    for (ByteCount offset = 0; offset < kSize; offset += 128 * kKiB) got += read(file, offset, 128 * kKiB);
    close(file);
    return got;
  }
  // pattern(kSize, 1), which nobody has opened since the mount.
  void mount_with_a_on_disk() {
    server.put("a", pattern(kSize, 1));
    (void)read_all("a");
    mount();
  }
  [[nodiscard]] std::uint64_t fetched() const { return filesystem->counters().fetched.load(); }

  support::TempDir folder;
  std::unique_ptr<DiskCache> cache;
  std::optional<TimePoint> confirmed;
};

TEST_F(KeptBlocksTest, WhatWasReadBeforeComesFromTheDiskInTheNextMount) {
  server.put("a", pattern(kSize));
  EXPECT_EQ(read_all("a"), pattern(kSize));
  EXPECT_EQ(fetched(), kSize);
  mount();
  EXPECT_EQ(read_all("a"), pattern(kSize));
  EXPECT_EQ(fetched(), 0u);
  EXPECT_EQ(cache->stats().hit_bytes, kSize);
  EXPECT_EQ(server.seen(schema::Request::kGetattr), 0u) << "the open said all that is needed";
}

TEST_F(KeptBlocksTest, AChangedFileIsFetchedAnew) {
  mount_with_a_on_disk();
  server.put("a", pattern(kSize, 2));
  EXPECT_EQ(read_all("a"), pattern(kSize, 2));
  EXPECT_EQ(cache->stats().hits, 0u);
  mount();
  EXPECT_EQ(read_all("a"), pattern(kSize, 2));
  EXPECT_EQ(fetched(), 0u);
}

// Without a lease nobody tells that the file has changed since it was opened.
TEST_F(KeptBlocksTest, AFileThatWasOpenedLongAgoIsAskedAboutBeforeOldBytesAreUsed) {
  mount_with_a_on_disk();
  const Handle file = open("a", O_RDONLY);
  EXPECT_EQ(read(file, 300'000, 1000), pattern(kSize, 1).substr(300'000, 1000));
  EXPECT_EQ(server.seen(schema::Request::kGetattr), 0u);
  scheduler.advance(std::chrono::seconds(10));
  EXPECT_EQ(read(file, 600'000, 1000), pattern(kSize, 1).substr(600'000, 1000));
  EXPECT_THAT(server.seen(schema::Request::kGetattr), testing::AllOf(testing::Ge(1u), testing::Le(2u)))
      << "once for the read, once for the pages that the kernel has";
  EXPECT_EQ(fetched(), 0u);
  scheduler.advance(std::chrono::seconds(10));
  server.put("a", pattern(kSize, 2));
  EXPECT_EQ(read(file, 1'200'000, 1000), pattern(kSize, 2).substr(1'200'000, 1000));
  EXPECT_GT(fetched(), 0u);
  close(file);
}

TEST_F(KeptBlocksTest, UnderALeaseNobodyIsAsked) {
  server.lease = 1;
  server.put("a", pattern(kSize));
  (void)read_all("a");
  mount();
  const Handle file = open("a", O_RDONLY);
  scheduler.advance(std::chrono::minutes(10));
  EXPECT_EQ(read(file, 1'200'000, 1000), pattern(kSize).substr(1'200'000, 1000));
  EXPECT_EQ(server.seen(schema::Request::kGetattr), 0u);
  EXPECT_EQ(fetched(), 0u);
  // The server takes it back.
  server.put("a", pattern(kSize, 2));
  schema::Request push;
  auto& item = *push.mutable_invalidate()->add_items();
  item.set_handle(server.node_of("a").handle());
  item.set_data(true);
  filesystem->handle_pushed(push, [] {});
  EXPECT_EQ(read(file, 1'600'000, 1000), pattern(kSize, 2).substr(1'600'000, 1000));
  close(file);
}

TEST_F(KeptBlocksTest, ALeaseThatTheServerMayHaveEndedIsNotTrusted) {
  server.lease = 1;
  server.put("a", pattern(kSize));
  (void)read_all("a");
  mount();
  const Handle file = open("a", O_RDONLY);
  confirmed = scheduler.now();
  scheduler.advance(std::chrono::minutes(1));
  EXPECT_EQ(read(file, 1'200'000, 1000), pattern(kSize).substr(1'200'000, 1000));
  EXPECT_EQ(server.seen(schema::Request::kGetattr), 1u);
  close(file);
}

TEST_F(KeptBlocksTest, ADamagedBlockIsFetchedAnew) {
  server.put("a", pattern(kSize));
  (void)read_all("a");
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.path().extension() != ".blocks") continue;
    const int fd = ::open(entry.path().c_str(), O_RDWR);
    ASSERT_EQ(::pwrite(fd, "wrong", 5, 70'000), 5);
    ::close(fd);
  }
  mount();
  EXPECT_EQ(read_all("a"), pattern(kSize));
  EXPECT_GE(cache->stats().damaged, 1u);
  EXPECT_GT(fetched(), 0u);
  EXPECT_LT(fetched(), kSize);
  mount();
  EXPECT_EQ(read_all("a"), pattern(kSize));
  EXPECT_EQ(fetched(), 0u);
}

TEST_F(KeptBlocksTest, WhatProgramsWriteIsNeitherStoredNorOverwritten) {
  server.put("a", pattern(kSize));
  (void)read_all("a");
  mount();
  std::string expected = pattern(kSize);
  const Handle file = open("a", O_RDWR);
  for (const ByteCount offset : {100ull, 300'000ull, 1'000'000ull}) {
    (void)write(file, offset, "written here");
    expected.replace(offset, 12, "written here");
    EXPECT_EQ(read(file, offset - 100, 1000), expected.substr(offset - 100, 1000));
  }
  std::string got;
  for (ByteCount offset = 0; offset < kSize; offset += 128 * kKiB) got += read(file, offset, 128 * kKiB);
  EXPECT_EQ(got, expected);
  close(file);
  mount();
  EXPECT_EQ(read_all("a"), expected);
  mount();
  EXPECT_EQ(read_all("a"), expected);
  EXPECT_EQ(fetched(), 0u);
}

// Bytes are on their way from the disk when the file changes.
TEST_F(KeptBlocksTest, WhatComesFromTheDiskTooLateIsNotUsed) {
  mount_with_a_on_disk();
  const Handle file = open("a", O_RDWR);
  const auto answer = begin_read(file, 1'000'000, 1000);  // the disk has been asked and not answered
  ASSERT_FALSE(answer->has_value());
  (void)write(file, 1'000'100, "new");
  std::string expected = pattern(kSize, 1).substr(1'000'000, 1000);
  expected.replace(100, 3, "new");
  EXPECT_EQ(text_of(finished(answer)), expected);
  close(file);

  const Handle again = open("a", O_RDONLY);
  const auto second = begin_read(again, 1'800'000, 1000);
  server.put("a", pattern(kSize, 2));
  schema::Request push;
  auto& item = *push.mutable_invalidate()->add_items();
  item.set_handle(server.node_of("a").handle());
  item.set_data(true);
  filesystem->handle_pushed(push, [] {});
  EXPECT_EQ(text_of(finished(second)), pattern(kSize, 2).substr(1'800'000, 1000));
  close(again);
}

// An answer of the server's shows that the file is another one, while old bytes are on their way from the
// disk.
TEST_F(KeptBlocksTest, WhatComesFromTheDiskAfterTheServerShowedAnotherVersionIsNotUsed) {
  server.lease = 1;
  server.put("a", pattern(kSize, 1));
  const Handle first = open("a", O_RDONLY);
  (void)read(first, 1'000'000, 1000);  // this block, and those of the start
  close(first);
  mount();
  const Handle file = open("a", O_RDONLY);
  ASSERT_EQ(server.waiting().size(), 0u);
  const auto from_disk = begin_read(file, 300'000, 1000);
  ASSERT_EQ(server.waiting().size(), 0u);
  const auto from_server = begin_read(file, 1'900'000, 1000);
  ASSERT_EQ(server.waiting().size(), 1u);
  server.put("a", pattern(kSize, 2));
  server.answer();
  EXPECT_EQ(text_of(finished(from_disk)), pattern(kSize, 2).substr(300'000, 1000));
  EXPECT_EQ(text_of(finished(from_server)), pattern(kSize, 2).substr(1'900'000, 1000));
  close(file);
}

TEST_F(KeptBlocksTest, WhatIsWrittenAndNotTakenByTheServerIsNotStored) {
  mount(256 * kKiB);
  server.put("a", pattern(512 * kKiB));
  const Handle file = open("a", O_RDWR);
  EXPECT_EQ(cache->stats().skipped_bytes, 256u * kKiB) << "the second block is in memory only";
  server.fault = [](const schema::Request& r) {
    return r.has_write() ? std::optional<Error>({from_errno(ENOSPC), "full"}) : std::nullopt;
  };
  (void)write(file, 300'000, "never there");
  EXPECT_EQ(text_of(finished(begin_read(file, 290'000, 1000))).size(), 1000u);
  EXPECT_FALSE(flush(file));
  filesystem->release(file, false);
  settle();
  server.fault = nullptr;
  mount();
  const Handle again = open("a", O_RDONLY);
  EXPECT_EQ(read(again, 262'144, 100'000), pattern(512 * kKiB).substr(262'144, 100'000));
  close(again);
}

TEST_F(KeptBlocksTest, AShorterOrLongerFileOfAnotherVersionIsNotCompletedFromTheDisk) {
  server.put("a", pattern(kSize, 1));
  (void)read_all("a");
  server.put("a", pattern(700'000, 2));
  mount();
  EXPECT_EQ(read_all("a"), pattern(700'000, 2));
  server.put("a", pattern(kSize, 3));
  mount();
  EXPECT_EQ(read_all("a"), pattern(kSize, 3));
}

TEST_F(KeptBlocksTest, ManySmallFilesComeFromTheDisk) {
  constexpr int kFiles = 40;
  const auto name_of = [](int i) { return "f" + std::to_string(100 + i); };
  for (int i = 0; i < kFiles; ++i) server.put(name_of(i), pattern(10'000, static_cast<std::size_t>(i)));
  const auto read_tree = [&] {
    list(kRootNode);
    for (int i = 0; i < kFiles; ++i) {
      const Handle file = open(name_of(i), O_RDONLY);
      EXPECT_EQ(read(file, 0, 20'000), pattern(10'000, static_cast<std::size_t>(i))) << i;
      close(file);
    }
  };
  read_tree();
  mount();
  const auto opened = server.seen(schema::Request::kOpen);
  read_tree();
  EXPECT_EQ(fetched(), 0u);
  EXPECT_LE(server.seen(schema::Request::kOpen) - opened, 4u) << "they are ahead of the program";
  // One of them has changed: of that one, nothing old.
  server.put(name_of(20), pattern(10'000, 77));
  mount();
  const Handle file = open(name_of(20), O_RDONLY);
  EXPECT_EQ(read(file, 0, 20'000), pattern(10'000, 77));
  close(file);
}

TEST_F(KeptBlocksTest, ARandomReadBringsWholeBlocksOnlyWhereTheDiskHasThem) {
  server.put("a", pattern(kSize));
  (void)read_all("a");
  mount();
  const Handle file = open("a", O_RDONLY);
  EXPECT_EQ(read(file, 1'234'567, 10), pattern(kSize).substr(1'234'567, 10));
  EXPECT_EQ(fetched(), 0u);
  close(file);
}

TEST_F(KeptBlocksTest, BytesInMemoryArePinnedWhenTheyAreReadAgain) {
  server.put("a", pattern(kSize));
  (void)read_all("a");
  EXPECT_EQ(cache->stats().pinned_bytes, 0u);
  server.put("b", pattern(kSize));
  (void)read_all("b");
  ASSERT_TRUE(filesystem->pin("a"));
  (void)read_all("a");
  (void)read_all("b");
  settle();
  EXPECT_GE(cache->stats().pinned_bytes, kSize);
  EXPECT_LT(cache->stats().pinned_bytes, 2 * kSize);
  EXPECT_TRUE(filesystem->unpin("a"));
  EXPECT_EQ(cache->stats().pinned_bytes, 0u);
  EXPECT_FALSE(filesystem->unpin("a"));
}

TEST_F(KeptBlocksTest, TheServersOutageIsAnErrorAsWithoutADisk) {
  server.put("a", pattern(kSize));
  (void)read_all("a");
  mount();
  const Handle file = open("a", O_RDONLY);
  scheduler.advance(std::chrono::seconds(10));
  server.fault = [](const schema::Request&) { return Error{ErrorCode::kTimedOut, "out of reach"}; };
  EXPECT_THAT(read(file, 1'000'000, 10), testing::HasSubstr("out of reach"));
  server.fault = nullptr;
  EXPECT_EQ(read(file, 1'000'000, 10), pattern(kSize).substr(1'000'000, 10));
  close(file);
}

class WithoutADiskCache : public Client {};

TEST_F(WithoutADiskCache, PinningSaysWhatToDo) {
  EXPECT_THAT(filesystem->pin("a").error().context, testing::HasSubstr("-o cache=DIR"));
  EXPECT_EQ(filesystem->disk(), nullptr);
}

}  // namespace
}  // namespace tusk::client
