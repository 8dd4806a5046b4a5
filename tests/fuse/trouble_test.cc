// What programs see when something goes wrong: full disks, errors after the fact, a silent server.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "tests/fuse/mounted/mounted_export.h"

namespace tusk::test {
namespace {

using Trouble = MountedTest;

Error io_error() { return {from_errno(EIO), "injected"}; }

bool is_write(const schema::Request& request) { return request.has_write(); }

TEST_F(Trouble, AFailedWriteIsToldAtClose) {
  const int fd = ::open(in_mount("a").c_str(), O_WRONLY | O_CREAT, 0644);
  ASSERT_GE(fd, 0);
  mounted_->caller().inject(
      [](const schema::Request& r) { return is_write(r) ? std::optional(io_error()) : std::nullopt; });
  ASSERT_EQ(::write(fd, "lost", 4), 4);
  EXPECT_EQ(::close(fd), -1);
  EXPECT_EQ(errno, EIO);
  EXPECT_NE(mounted_->filesystem().last_error().value().first.find("injected"), std::string::npos);
}

TEST_F(Trouble, AFailedWriteIsToldOnceToEachOpenFile) {
  write_file(in_mount("a"), "x");
  const Fd one(in_mount("a"), O_WRONLY);
  const Fd two(in_mount("a"), O_WRONLY);
  mounted_->caller().inject(
      [](const schema::Request& r) { return is_write(r) ? std::optional(io_error()) : std::nullopt; });
  ASSERT_EQ(::write(one.get(), "lost", 4), 4);
  EXPECT_EQ(::fsync(one.get()), -1);
  EXPECT_EQ(errno, EIO);
  mounted_->caller().inject(nullptr);
  EXPECT_EQ(::fsync(one.get()), 0);
  EXPECT_EQ(::fsync(two.get()), -1);
  EXPECT_EQ(::fsync(two.get()), 0);
}

TEST_F(Trouble, WhatCouldNotBeWrittenIsNotReadBack) {
  write_file(in_mount("a"), "before");
  mounted_->caller().inject(
      [](const schema::Request& r) { return is_write(r) ? std::optional(io_error()) : std::nullopt; });
  const int fd = ::open(in_mount("a").c_str(), O_WRONLY);
  ASSERT_EQ(::write(fd, "AFTER!", 6), 6);
  EXPECT_EQ(::close(fd), -1);
  mounted_->caller().inject(nullptr);
  EXPECT_TRUE(eventually([&] { return read_file(in_mount("a")) == "before"; }));
}

TEST_F(Trouble, AFailedReadIsAnErrorNotAnEnd) {
  write_file(on_server("a"), noise(1'000'000));
  mounted_->caller().inject(
      [](const schema::Request& r) { return r.has_read() ? std::optional(io_error()) : std::nullopt; });
  const Fd fd(in_mount("a"), O_RDONLY);
  char byte = 0;
  EXPECT_EQ(::pread(fd.get(), &byte, 1, 600'000), -1);
  EXPECT_EQ(errno, EIO);
  mounted_->caller().inject(nullptr);
  EXPECT_EQ(::pread(fd.get(), &byte, 1, 600'000), 1);
  struct stat st {};
  ASSERT_EQ(::fstat(fd.get(), &st), 0);
  EXPECT_EQ(st.st_size, 1'000'000);
}

TEST_F(Trouble, AReaderOfASilentServerCanBeKilled) {
  write_file(on_server("a"), noise(1'000'000));
  const Fd fd(in_mount("a"), O_RDONLY);
  mounted_->caller().hold_back();
  const auto reads = mounted_->caller().calls(schema::Request::kRead);
  const pid_t child = in_child([&fd] {
    char byte = 0;
    return static_cast<int>(::pread(fd.get(), &byte, 1, 900'000));  // not among what the open brought
  });
  EXPECT_TRUE(eventually([&] { return mounted_->caller().calls(schema::Request::kRead) > reads; }));
  ::kill(child, SIGKILL);
  EXPECT_EQ(exit_code(child), -SIGKILL);
  mounted_->caller().go_on();
}

TEST_F(Trouble, AStatOfASilentServerCanBeKilled) {
  mounted_->caller().hold_back();
  const auto lookups = mounted_->caller().calls();
  const pid_t child = in_child([path = in_mount("somewhere")] {
    struct stat st {};
    return ::stat(path.c_str(), &st);
  });
  EXPECT_TRUE(eventually([&] { return mounted_->caller().calls() > lookups; }));
  ::kill(child, SIGKILL);
  EXPECT_EQ(exit_code(child), -SIGKILL);
  mounted_->caller().go_on();
}

TEST_F(Trouble, AWriterOfASilentServerIsKeptWaitingAndCanBeKilled) {
  const Fd fd(in_mount("a"), O_WRONLY | O_CREAT, 0644);
  mounted_->caller().hold_back();
  const pid_t child = in_child([&fd, bytes = std::string(1 << 20, 'x')] {
    for (int i = 0; i < 200; ++i)
      if (::write(fd.get(), bytes.data(), bytes.size()) < 0) return 1;
    return 0;
  });
  const auto limit = mounted_->filesystem().cache_cap() / 2;
  EXPECT_TRUE(eventually([&] { return mounted_->filesystem().pending_bytes() > limit; }));
  EXPECT_LT(mounted_->filesystem().pending_bytes(), limit + (4u << 20));
  ::kill(child, SIGKILL);
  EXPECT_EQ(exit_code(child), -SIGKILL);
  mounted_->caller().go_on();
}

// A file system of one megabyte.
class FullDisk : public MountedTest {
 protected:
  void SetUp() override {
    if (::geteuid() != 0 || ::mount("tmpfs", small_.path().c_str(), "tmpfs", 0, "size=1m") != 0)
      GTEST_SKIP() << "skipped, because a small tmpfs needs root";
    MountedTest::SetUp();
  }
  void TearDown() override {
    mounted_.reset();
    ::umount2(small_.path().c_str(), MNT_DETACH);
  }
  ExportSetup setup() override { return {.exported = small_.path()}; }

 private:
  TempDir small_;
};

TEST_F(FullDisk, TheWriterHearsOfIt) {
  const int fd = ::open(in_mount("a").c_str(), O_WRONLY | O_CREAT, 0644);
  ASSERT_GE(fd, 0);
  const std::string bytes = noise(128 * 1024);
  int error = 0;
  for (int i = 0; i < 64 && error == 0; ++i)
    if (::write(fd, bytes.data(), bytes.size()) < 0) error = errno;
  if (::close(fd) != 0 && error == 0) error = errno;
  EXPECT_EQ(error, ENOSPC);
}

}  // namespace
}  // namespace tusk::test
