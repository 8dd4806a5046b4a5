// What programs see that have a file open, or mapped, and never ask for its attributes again.
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/fuse/mounted/mounted_export.h"

namespace tusk::test {
namespace {

using namespace std::chrono_literals;

std::string text_at(int fd, off_t offset, std::size_t size) {
  std::string bytes(size, '\0');
  const ssize_t got = ::pread(fd, bytes.data(), size, offset);
  EXPECT_GE(got, 0) << std::strerror(errno);
  bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return bytes;
}

// A mapping of a file's first page.
class Mapping {
 public:
  explicit Mapping(const Fd& fd) : page_(::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd.get(), 0)) {}
  ~Mapping() { ::munmap(page_, 4096); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  [[nodiscard]] std::string text(std::size_t size) const { return {static_cast<const char*>(page_), size}; }

 private:
  void* page_;
};

std::string count(int n) {
  std::string text = std::to_string(n);
  return std::string(8 - text.size(), '0') + text;
}

// ---------------------------------------------------------------- two mounts

// Nothing ages: what is seen to change was taken back, or kept by nobody.
class BesideAWriter : public MountedTest {
 protected:
  ExportSetup setup() override {
    return {.lifetime = std::chrono::hours(1), .leases = true, .lease_all = true};
  }
  void SetUp() override {
    MountedTest::SetUp();
    if (!IsSkipped()) other_.emplace(*mounted_, setup());
  }
  [[nodiscard]] std::string in_other(std::string_view name) { return (*other_ / name).string(); }
  // Writes counts 1 to `last` while `look` is called again and again on another thread.
  template <class Look>
  void write_counts(int last, Look look) {
    std::atomic<bool> over{false};
    std::thread looking([&] {
      while (!over) look();
    });
    {
      const Fd writer(in_mount("a"), O_RDWR);
      for (int n = 1; n <= last; ++n) {
        EXPECT_EQ(::pwrite(writer.get(), count(n).data(), 8, 0), 8);
        EXPECT_EQ(::fsync(writer.get()), 0);
      }
    }
    over = true;
    looking.join();
  }
  std::optional<MountedExport> other_;
};

TEST_F(BesideAWriter, AReaderThatHasTheFileOpenSeesTheLastWrite) {
  write_file(on_server("a"), count(0));
  const Fd reader(in_other("a"), O_RDONLY);
  for (int last : {20, 21, 35, 60}) {
    write_counts(last, [&] { (void)text_at(reader.get(), 0, 8); });
    EXPECT_TRUE(eventually([&] { return text_at(reader.get(), 0, 8) == count(last); }))
        << text_at(reader.get(), 0, 8);
  }
}

TEST_F(BesideAWriter, AMappingShowsTheLastWrite) {
  write_file(on_server("a"), count(0));
  const Fd reader(in_other("a"), O_RDONLY);
  const Mapping mapping(reader);
  for (int last : {20, 21, 35, 60}) {
    write_counts(last, [&] { (void)mapping.text(8); });
    EXPECT_TRUE(eventually([&] { return mapping.text(8) == count(last); })) << mapping.text(8);
  }
}

// A push of the attributes ends the lease of the bytes as well: nobody tells of the next write.
TEST_F(BesideAWriter, AWriteBehindAChmodIsSeen) {
  write_file(on_server("a"), count(0));
  const Fd reader(in_other("a"), O_RDONLY);
  for (int n = 1; n <= 5; ++n) {
    (void)text_at(reader.get(), 0, 8);
    ASSERT_EQ(::chmod(in_mount("a").c_str(), n % 2 == 0 ? 0600 : 0644), 0);
    (void)text_at(reader.get(), 0, 8);
    ASSERT_EQ(::chmod(in_mount("a").c_str(), n % 2 == 0 ? 0640 : 0604), 0);
    write_counts(n, [] {});
    EXPECT_EQ(text_at(reader.get(), 0, 8), count(n));
  }
}

TEST_F(BesideAWriter, TwoWritersOfOnePageEndWithTheSameBytes) {
  write_file(on_server("a"), std::string(16, '.'));
  const Fd here(in_mount("a"), O_RDWR);
  const Fd there(in_other("a"), O_RDWR);
  const auto write_all = [](const Fd& fd, off_t at) {
    for (int n = 1; n <= 40; ++n) {
      EXPECT_EQ(::pwrite(fd.get(), count(n).data(), 8, at), 8);
      EXPECT_EQ(::fsync(fd.get()), 0);
    }
  };
  std::thread other([&] { write_all(there, 8); });
  write_all(here, 0);
  other.join();
  const std::string both = count(40) + count(40);
  EXPECT_TRUE(eventually([&] { return text_at(here.get(), 0, 16) == both; })) << text_at(here.get(), 0, 16);
  EXPECT_TRUE(eventually([&] { return text_at(there.get(), 0, 16) == both; })) << text_at(there.get(), 0, 16);
}

// ---------------------------------------------------------------- a local program

class WithoutLeases : public MountedTest {
 protected:
  ExportSetup setup() override { return {.lifetime = 200ms}; }
};

TEST_F(WithoutLeases, AnOpenFileShowsWhatALocalProgramWrote) {
  write_file(on_server("a"), "old");
  const Fd reader(in_mount("a"), O_RDONLY);
  EXPECT_EQ(text_at(reader.get(), 0, 3), "old");
  const Fd writer(on_server("a"), O_RDWR);
  ASSERT_EQ(::pwrite(writer.get(), "new", 3, 0), 3);
  EXPECT_TRUE(eventually([&] { return text_at(reader.get(), 0, 3) == "new"; }));
}

TEST_F(WithoutLeases, AMappingShowsWhatALocalProgramWrote) {
  write_file(on_server("a"), "old");
  const Fd reader(in_mount("a"), O_RDONLY);
  const Mapping mapping(reader);
  EXPECT_EQ(mapping.text(3), "old");
  const Fd writer(on_server("a"), O_RDWR);
  ASSERT_EQ(::pwrite(writer.get(), "new", 3, 0), 3);
  EXPECT_TRUE(eventually([&] { return mapping.text(3) == "new"; }));
}

class OfAHotFile : public MountedTest, public testing::WithParamInterface<bool> {
 protected:
  ExportSetup setup() override {
    ExportSetup setup{.leases = GetParam()};
    setup.loopback.delay = 5ms;
    return setup;
  }
};

TEST_P(OfAHotFile, ReadsNeverFail) {
  constexpr std::size_t kSize = 4'000'000;
  constexpr std::size_t kPiece = 64 * 1024;
  write_file(on_server("a"), std::string(kSize, 'x'));
  std::atomic<bool> over{false};
  std::thread writing([&] {
    const Fd writer(on_server("a"), O_RDWR);
    const std::string piece(kPiece, 'y');
    for (int k = 0; !over; ++k) {
      EXPECT_EQ(::pwrite(writer.get(), piece.data(), kPiece, static_cast<off_t>(k % 60 * kPiece)),
                ssize_t{kPiece});
      ::usleep(2000);  // the writer's pace: 500 changes a second
    }
  });
  const Fd reader(in_mount("a"), O_RDONLY);
  int reads = 0;
  for (const auto end = std::chrono::steady_clock::now() + 2s; std::chrono::steady_clock::now() < end;
       ++reads)
    ASSERT_EQ(text_at(reader.get(), static_cast<off_t>(reads) * 7919 % 3'900'000, kPiece).size(), kPiece);
  over = true;
  writing.join();
  EXPECT_GT(reads, 10);
}

INSTANTIATE_TEST_SUITE_P(Reads, OfAHotFile, testing::Bool(),
                         [](const auto& tested) { return tested.param ? "WithLeases" : "WithoutLeases"; });

// ---------------------------------------------------------------- past the kernel's pages

class DirectWrites : public MountedTest {
 protected:
  static constexpr std::size_t kPage = 4096;
  void SetUp() override {
    MountedTest::SetUp();
    if (IsSkipped()) return;
    if (::syscall(SYS_io_setup, 8, &context_) != 0)
      GTEST_SKIP() << "skipped, because there is no io_submit here";
    memory_ = static_cast<char*>(std::aligned_alloc(kPage, kPage));
  }
  void TearDown() override {
    if (context_ != 0) ::syscall(SYS_io_destroy, context_);
    std::free(memory_);
    MountedTest::TearDown();
  }
  // Returns when it has completed.
  void write_asynchronously(const Fd& fd, char fill, std::size_t page) {
    std::memset(memory_, fill, kPage);
    iocb request{};
    request.aio_fildes = static_cast<std::uint32_t>(fd.get());
    request.aio_lio_opcode = IOCB_CMD_PWRITE;
    request.aio_buf = reinterpret_cast<std::uint64_t>(memory_);
    request.aio_nbytes = kPage;
    request.aio_offset = static_cast<std::int64_t>(page * kPage);
    iocb* list[] = {&request};
    ASSERT_EQ(::syscall(SYS_io_submit, context_, 1, list), 1);
    io_event event{};
    ASSERT_EQ(::syscall(SYS_io_getevents, context_, 1, 1, &event, nullptr), 1);
    EXPECT_EQ(event.res, static_cast<std::int64_t>(kPage));
  }
  aio_context_t context_ = 0;
  char* memory_ = nullptr;
};

// As xfstests generic/451 does.
TEST_F(DirectWrites, ThatNobodyWaitsForAreSeenByBufferedReaders) {
  constexpr std::size_t kPages = 16;
  constexpr std::size_t kWrites = 400;
  const std::string file = in_mount("a");
  write_file(file, std::string(kPages * kPage, '.'));
  std::atomic<bool> over{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i)
    readers.emplace_back([&] {
      const Fd reader(file, O_RDONLY);
      for (std::size_t n = 0; !over; ++n)
        (void)text_at(reader.get(), static_cast<off_t>(n % kPages * kPage), kPage);
    });
  {
    const Fd direct(file, O_RDWR | O_DIRECT);
    const Fd buffered(file, O_RDONLY);
    for (std::size_t n = 0; n < kWrites; ++n) {
      const char fill = static_cast<char>('a' + n % 26);
      write_asynchronously(direct, fill, n % kPages);
      EXPECT_EQ(text_at(buffered.get(), static_cast<off_t>(n % kPages * kPage), 1), std::string(1, fill))
          << n;
    }
  }
  over = true;
  for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace tusk::test
