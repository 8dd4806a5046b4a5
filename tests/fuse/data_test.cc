// Bytes in and out of mounted files.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "tests/fuse/mounted/mounted_export.h"

namespace tusk::test {
namespace {

using Data = MountedTest;

std::string read_at(const Fd& fd, off_t offset, std::size_t size) {
  std::string bytes(size, '\0');
  const ssize_t got = ::pread(fd.get(), bytes.data(), size, offset);
  bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return bytes;
}

void write_at(const Fd& fd, off_t offset, std::string_view bytes) {
  ASSERT_EQ(::pwrite(fd.get(), bytes.data(), bytes.size(), offset), static_cast<ssize_t>(bytes.size()));
}

TEST_F(Data, WhatTheServerHasIsRead) {
  const std::string content = noise(5'000'000);
  write_file(on_server("a"), content);
  EXPECT_EQ(read_file(in_mount("a")), content);
}

TEST_F(Data, WhatIsWrittenIsOnTheServerAfterClose) {
  const std::string content = noise(5'000'000);
  write_file(in_mount("a"), content);
  EXPECT_EQ(read_file(on_server("a")), content);
  EXPECT_EQ(read_file(in_mount("a")), content);
}

TEST_F(Data, AnEmptyFileIsEmpty) {
  write_file(on_server("a"), "");
  EXPECT_EQ(read_file(in_mount("a")), "");
}

TEST_F(Data, WhatWasWrittenIsReadBeforeItIsSent) {
  mounted_->caller().hold_back();
  // Creating needs the server; writing and reading back do not.
  mounted_->caller().go_on();
  const Fd fd(in_mount("a"), O_RDWR | O_CREAT, 0644);
  mounted_->caller().hold_back();
  write_at(fd, 0, "hello");
  EXPECT_EQ(read_at(fd, 0, 5), "hello");
  mounted_->caller().go_on();
}

TEST_F(Data, RandomOffsetsAndSizes) {
  const std::string content = noise(3'000'000);
  write_file(on_server("a"), content);
  const Fd fd(in_mount("a"), O_RDONLY);
  Random random(5);
  for (int i = 0; i < 200; ++i) {
    const std::size_t offset = random.below(content.size());
    const std::size_t size = random.below(300'000) + 1;
    ASSERT_EQ(read_at(fd, static_cast<off_t>(offset), size), content.substr(offset, size))
        << offset << " " << size;
  }
}

TEST_F(Data, ReadingPastTheEndGivesNothing) {
  write_file(on_server("a"), "abc");
  const Fd fd(in_mount("a"), O_RDONLY);
  EXPECT_EQ(read_at(fd, 3, 10), "");
  EXPECT_EQ(read_at(fd, 1, 10), "bc");
  EXPECT_EQ(read_at(fd, 1'000'000, 10), "");
}

TEST_F(Data, OverwritingThePartOfAFile) {
  std::string content = noise(1'000'000);
  write_file(on_server("a"), content);
  {
    const Fd fd(in_mount("a"), O_RDWR);
    write_at(fd, 300'001, "XYZ");
    content.replace(300'001, 3, "XYZ");
    EXPECT_EQ(read_at(fd, 299'990, 30), content.substr(299'990, 30));
  }
  EXPECT_EQ(read_file(on_server("a")), content);
}

TEST_F(Data, AHoleReadsAsZeros) {
  {
    const Fd fd(in_mount("a"), O_RDWR | O_CREAT, 0644);
    write_at(fd, 1'000'000, "end");
    EXPECT_EQ(read_at(fd, 999'990, 20), std::string(10, '\0') + "end");
    EXPECT_EQ(read_at(fd, 0, 100), std::string(100, '\0'));
  }
  EXPECT_EQ(read_file(on_server("a")), std::string(1'000'000, '\0') + "end");
}

TEST_F(Data, MoreThanFourGigabytesSparsely) {
  constexpr off_t kFar = 5'000'000'000;
  {
    const Fd fd(in_mount("a"), O_RDWR | O_CREAT, 0644);
    write_at(fd, kFar, "far away");
  }
  struct stat st {};
  ASSERT_EQ(::stat(in_mount("a").c_str(), &st), 0);
  EXPECT_EQ(st.st_size, kFar + 8);
  EXPECT_LT(st.st_blocks, 1000);
  const Fd fd(in_mount("a"), O_RDONLY);
  EXPECT_EQ(read_at(fd, kFar, 100), "far away");
  EXPECT_EQ(read_at(fd, kFar - 3, 5), std::string(3, '\0') + "fa");
}

TEST_F(Data, AppendGoesToTheServersEnd) {
  write_file(on_server("log"), "one\n");
  const Fd fd(in_mount("log"), O_WRONLY | O_APPEND);
  ASSERT_EQ(::write(fd.get(), "two\n", 4), 4);
  {
    // Somebody on the server appends too; our idea of the end is old.
    const Fd theirs(on_server("log"), O_WRONLY | O_APPEND);
    ASSERT_EQ(::write(theirs.get(), "three\n", 6), 6);
  }
  ASSERT_EQ(::write(fd.get(), "four\n", 5), 5);
  EXPECT_EQ(read_file(on_server("log")), "one\ntwo\nthree\nfour\n");
}

TEST_F(Data, AppendByTwoProcessesLosesNothing) {
  write_file(in_mount("log"), "");
  constexpr int kLines = 50;
  std::vector<pid_t> children;
  for (const char letter : {'a', 'b'}) {
    children.push_back(in_child([path = in_mount("log"), line = std::string(10, letter) + "\n"] {
      const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND);
      for (int i = 0; i < kLines; ++i)
        if (::write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) return 1;
      return ::close(fd);
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(exit_code(child), 0);
  const std::string log = read_file(on_server("log"));
  EXPECT_EQ(log.size(), 2 * kLines * 11u);
  EXPECT_EQ(std::ranges::count(log, 'a'), kLines * 10);
}

// What one write appends is one record, also where pages end, and readers see it through what they cached.
TEST_F(Data, AppendsOfSeveralMountsAreWhole) {
  write_file(on_server("log"), "");
  const std::string ours = std::string(50, 'a') + "\n";
  const std::string theirs = std::string(50, 'b') + "\n";
  const Fd here(in_mount("log"), O_WRONLY | O_APPEND);
  const Fd there(on_server("log"), O_WRONLY | O_APPEND);
  const Fd reader(in_mount("log"), O_RDONLY);
  off_t end = 0;
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(::write(there.get(), theirs.data(), theirs.size()), static_cast<ssize_t>(theirs.size()));
    ASSERT_EQ(::write(here.get(), ours.data(), ours.size()), static_cast<ssize_t>(ours.size()));
    ASSERT_EQ(read_at(reader, end, ours.size() + theirs.size()), theirs + ours) << i;
    end += static_cast<off_t>(ours.size() + theirs.size());
  }
}

TEST_F(Data, ALargeAppendIsOneWrite) {
  write_file(on_server("log"), "begin");
  const std::string record = noise((1 << 20) - 4096);
  const Fd fd(in_mount("log"), O_WRONLY | O_APPEND);
  const auto writes = mounted_->caller().calls(schema::Request::kWrite);
  ASSERT_EQ(::write(fd.get(), record.data(), record.size()), static_cast<ssize_t>(record.size()));
  EXPECT_EQ(mounted_->caller().calls(schema::Request::kWrite), writes + 1);
  EXPECT_EQ(read_file(on_server("log")), "begin" + record);
}

TEST_F(Data, TruncateCutsAndExtends) {
  const std::string content = noise(700'000);
  write_file(in_mount("a"), content);
  ASSERT_EQ(::truncate(in_mount("a").c_str(), 300'000), 0);
  EXPECT_EQ(read_file(in_mount("a")), content.substr(0, 300'000));
  ASSERT_EQ(::truncate(in_mount("a").c_str(), 400'000), 0);
  EXPECT_EQ(read_file(in_mount("a")), content.substr(0, 300'000) + std::string(100'000, '\0'));
  EXPECT_EQ(read_file(on_server("a")), read_file(in_mount("a")));
}

TEST_F(Data, TruncateAfterUnsentWritesKeepsTheirOrder) {
  {
    const Fd fd(in_mount("a"), O_RDWR | O_CREAT, 0644);
    write_at(fd, 0, "0123456789");
    ASSERT_EQ(::ftruncate(fd.get(), 4), 0);
    write_at(fd, 6, "xy");
    EXPECT_EQ(read_at(fd, 0, 100), std::string("0123\0\0xy", 8));
  }
  EXPECT_EQ(read_file(on_server("a")), std::string("0123\0\0xy", 8));
}

TEST_F(Data, OpenWithTruncation) {
  write_file(in_mount("a"), noise(500'000));
  write_file(in_mount("a"), "short");
  EXPECT_EQ(read_file(in_mount("a")), "short");
  EXPECT_EQ(read_file(on_server("a")), "short");
}

TEST_F(Data, AChangeOnTheServerIsSeenAtTheNextOpen) {
  write_file(in_mount("a"), noise(500'000, 1));
  EXPECT_EQ(read_file(in_mount("a")), noise(500'000, 1));
  write_file(on_server("a"), noise(500'000, 2));
  EXPECT_EQ(read_file(in_mount("a")), noise(500'000, 2));
}

TEST_F(Data, AFileThatGrowsOnTheServerIsFollowed) {
  write_file(on_server("log"), "one\n");
  const Fd fd(in_mount("log"), O_RDONLY);
  EXPECT_EQ(read_at(fd, 0, 100), "one\n");
  const Fd theirs(on_server("log"), O_WRONLY | O_APPEND);
  ASSERT_EQ(::write(theirs.get(), "two\n", 4), 4);
  const auto size_seen = [&] {
    struct stat st {};
    ::fstat(fd.get(), &st);
    return st.st_size;
  };
  EXPECT_TRUE(eventually([&] { return size_seen() == 8; }));
  EXPECT_EQ(read_at(fd, 0, 100), "one\ntwo\n");  // no zeros where the old last page ended
}

TEST_F(Data, ReopeningAnUnchangedFileAsksForNoBytes) {
  write_file(in_mount("a"), noise(1'000'000));
  EXPECT_EQ(read_file(in_mount("a")).size(), 1'000'000u);
  const auto reads = mounted_->caller().calls(schema::Request::kRead);
  EXPECT_EQ(read_file(in_mount("a")), noise(1'000'000));
  EXPECT_EQ(mounted_->caller().calls(schema::Request::kRead), reads);
}

TEST_F(Data, ASmallFileComesWithItsOpen) {
  write_file(on_server("a"), noise(100'000));
  EXPECT_EQ(read_file(in_mount("a")), noise(100'000));
  EXPECT_EQ(mounted_->caller().calls(schema::Request::kRead), 0u);
}

TEST_F(Data, MappedMemoryIsReadAndWritten) {
  const std::string content = noise(300'000);
  write_file(on_server("a"), content);
  {
    const Fd fd(in_mount("a"), O_RDWR);
    void* address = ::mmap(nullptr, content.size(), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    ASSERT_NE(address, MAP_FAILED);
    char* bytes = static_cast<char*>(address);
    EXPECT_EQ(std::string_view(bytes, content.size()), content);
    std::memcpy(bytes + 200'000, "mapped", 6);
    EXPECT_EQ(::msync(address, content.size(), MS_SYNC), 0);
    ::munmap(address, content.size());
  }
  EXPECT_EQ(read_file(on_server("a")).substr(200'000, 6), "mapped");
}

TEST_F(Data, AProgramRunsFromTheMount) {
  std::filesystem::copy_file("/bin/true", on_server("program"));
  ASSERT_EQ(::chmod(on_server("program").c_str(), 0755), 0);
  const pid_t child = in_child([path = in_mount("program")] {
    ::execl(path.c_str(), "program", nullptr);
    return 99;
  });
  EXPECT_EQ(exit_code(child), 0);
}

TEST_F(Data, ACopiedProgramRunsAtOnce) {
  std::filesystem::copy_file("/bin/true", in_mount("program"));
  const pid_t child = in_child([path = in_mount("program")] {
    ::execl(path.c_str(), "program", nullptr);
    return 99;
  });
  EXPECT_EQ(exit_code(child), 0);
}

TEST_F(Data, DirectReadsAndWrites) {
  constexpr std::size_t kSize = 1 << 20;
  const std::string content = noise(kSize);
  void* buffer = nullptr;
  ASSERT_EQ(::posix_memalign(&buffer, 4096, kSize), 0);
  const std::unique_ptr<void, void (*)(void*)> owner(buffer, ::free);
  std::memcpy(buffer, content.data(), kSize);
  {
    const Fd fd(in_mount("a"), O_WRONLY | O_CREAT | O_DIRECT, 0644);
    ASSERT_EQ(::write(fd.get(), buffer, kSize), static_cast<ssize_t>(kSize));
  }
  EXPECT_EQ(read_file(on_server("a")), content);
  std::memset(buffer, 0, kSize);
  const Fd fd(in_mount("a"), O_RDONLY | O_DIRECT);
  ASSERT_EQ(::read(fd.get(), buffer, kSize), static_cast<ssize_t>(kSize));
  EXPECT_EQ(std::string_view(static_cast<char*>(buffer), kSize), content);
  EXPECT_EQ(::read(fd.get(), buffer, kSize), 0);
}

TEST_F(Data, SynchronousWritesAreOnTheServerWhenTheyReturn) {
  const Fd fd(in_mount("a"), O_WRONLY | O_CREAT | O_SYNC, 0644);
  write_at(fd, 0, "now");
  EXPECT_EQ(read_file(on_server("a")), "now");
}

TEST_F(Data, FsyncCommits) {
  const Fd fd(in_mount("a"), O_WRONLY | O_CREAT, 0644);
  write_at(fd, 0, "safe");
  EXPECT_EQ(::fsync(fd.get()), 0);
  EXPECT_EQ(read_file(on_server("a")), "safe");
  EXPECT_EQ(mounted_->caller().calls(schema::Request::kCommit), 1u);
  EXPECT_EQ(::fdatasync(fd.get()), 0);
}

TEST_F(Data, FsyncOfADirectory) {
  const Fd fd(mounted_->path().string(), O_RDONLY | O_DIRECTORY);
  EXPECT_EQ(::fsync(fd.get()), 0);
}

TEST_F(Data, HolesAreFoundByLseek) {
  {
    const Fd fd(in_mount("a"), O_RDWR | O_CREAT, 0644);
    write_at(fd, 1 << 20, "data");
  }
  const Fd fd(in_mount("a"), O_RDONLY);
  EXPECT_EQ(::lseek(fd.get(), 0, SEEK_HOLE), 0);
  EXPECT_EQ(::lseek(fd.get(), 0, SEEK_DATA), 1 << 20);
  EXPECT_EQ(::lseek(fd.get(), 0, SEEK_END), (1 << 20) + 4);
  EXPECT_EQ(::lseek(fd.get(), 2 << 20, SEEK_DATA), -1);
  EXPECT_EQ(errno, ENXIO);
}

TEST_F(Data, FallocateGrowsAndPunches) {
  const std::string content = noise(1 << 20);
  write_file(in_mount("a"), content);
  const Fd fd(in_mount("a"), O_RDWR);
  ASSERT_EQ(::fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8192, 65536), 0);
  EXPECT_EQ(read_at(fd, 8192, 65536), std::string(65536, '\0'));
  EXPECT_EQ(read_at(fd, 0, 8192), content.substr(0, 8192));
  ASSERT_EQ(::fallocate(fd.get(), 0, 0, 2 << 20), 0);
  struct stat st {};
  ASSERT_EQ(::fstat(fd.get(), &st), 0);
  EXPECT_EQ(st.st_size, 2 << 20);
}

TEST_F(Data, TheServerCopies) {
  const std::string content = noise(2'000'000);
  write_file(in_mount("a"), content);
  const auto sent = mounted_->filesystem().counters().sent.load();
  {
    const Fd from(in_mount("a"), O_RDONLY);
    const Fd to(in_mount("b"), O_WRONLY | O_CREAT, 0644);
    std::size_t copied = 0;
    while (copied < content.size()) {
      const ssize_t step =
          ::copy_file_range(from.get(), nullptr, to.get(), nullptr, content.size() - copied, 0);
      ASSERT_GT(step, 0);
      copied += static_cast<std::size_t>(step);
    }
  }
  EXPECT_EQ(read_file(in_mount("b")), content);
  EXPECT_EQ(mounted_->filesystem().counters().sent.load(), sent);
}

TEST_F(Data, ManyReadersAtOnce) {
  const std::string content = noise(4'000'000);
  write_file(on_server("a"), content);
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i) {
    children.push_back(in_child([path = in_mount("a"), &content,
                                 read = std::string(100'000, '\0')]() mutable {
      const int fd = ::open(path.c_str(), O_RDONLY);
      std::string_view left = content;
      while (!left.empty()) {
        const ssize_t got = ::read(fd, read.data(), read.size());
        if (got <= 0 || !left.starts_with(std::string_view(read).substr(0, static_cast<std::size_t>(got))))
          return 1;
        left.remove_prefix(static_cast<std::size_t>(got));
      }
      return ::close(fd);
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(exit_code(child), 0);
}

// The cache is smaller than the file: blocks come and go while it is read and written.
class SmallCache : public MountedTest {
  ExportSetup setup() override { return {.cache_bytes = 2 * 1024 * 1024}; }
};

TEST_F(SmallCache, AFileLargerThanTheCache) {
  const std::string content = noise(20'000'000);
  write_file(in_mount("a"), content);
  EXPECT_EQ(read_file(on_server("a")), content);
  write_file(on_server("b"), content);
  EXPECT_EQ(read_file(in_mount("b")), content);
  EXPECT_TRUE(eventually(
      [&] { return mounted_->filesystem().cache_used() <= 2 * mounted_->filesystem().cache_cap(); }));
}

// Answers overtake each other.
class Jittery : public MountedTest {
  ExportSetup setup() override {
    return {.loopback = {.delay = std::chrono::milliseconds(2), .jitter = std::chrono::milliseconds(8)}};
  }
};

TEST_F(Jittery, OverlappingWritesEndRight) {
  std::string content(600'000, '\0');
  {
    const Fd fd(in_mount("a"), O_RDWR | O_CREAT, 0644);
    Random random(11);
    for (int i = 0; i < 300; ++i) {
      const std::size_t size = random.below(60'000) + 1;
      const std::size_t offset = random.below(content.size() - size);
      const std::string bytes = noise(size, static_cast<std::uint64_t>(i));
      write_at(fd, static_cast<off_t>(offset), bytes);
      content.replace(offset, size, bytes);
      if (random.chance(0.1)) {
        ASSERT_EQ(read_at(fd, static_cast<off_t>(offset), size), bytes);
      }
    }
    write_at(fd, 599'999, std::string_view("\0", 1));
    content.back() = '\0';
  }
  EXPECT_EQ(read_file(on_server("a")), content);
  EXPECT_EQ(read_file(in_mount("a")), content);
}

}  // namespace
}  // namespace tusk::test
