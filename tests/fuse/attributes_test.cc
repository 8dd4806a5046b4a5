// Modes, owners, times, sizes, extended attributes.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>

#include "tests/fuse/mounted/mounted_export.h"

namespace tusk::test {
namespace {

class AttributesOf : public MountedTest {
  ExportSetup setup() override { return {.setuid = true}; }
};

TEST_F(AttributesOf, AreTheServers) {
  write_file(on_server("a"), noise(10'000));
  ASSERT_EQ(::chmod(on_server("a").c_str(), 0640), 0);
  const struct stat here = status(in_mount("a"));
  const struct stat there = status(on_server("a"));
  EXPECT_EQ(here.st_mode, there.st_mode);
  EXPECT_EQ(here.st_size, there.st_size);
  EXPECT_EQ(here.st_blocks, there.st_blocks);
  EXPECT_EQ(here.st_ino, there.st_ino);
  EXPECT_EQ(here.st_mtim.tv_nsec, there.st_mtim.tv_nsec);
}

TEST_F(AttributesOf, ChmodIsSeenOnBothSides) {
  write_file(in_mount("a"), "");
  ASSERT_EQ(::chmod(in_mount("a").c_str(), 04711), 0);
  EXPECT_EQ(status(in_mount("a")).st_mode & 07777, 04711u);
  EXPECT_EQ(status(on_server("a")).st_mode & 07777, 04711u);
}

TEST_F(AttributesOf, CreationTakesTheUmaskIntoAccount) {
  const mode_t before = ::umask(027);
  const Fd fd(in_mount("a"), O_WRONLY | O_CREAT, 0666);
  ASSERT_EQ(::mkdir(in_mount("d").c_str(), 0777), 0);
  ::umask(before);
  EXPECT_EQ(status(on_server("a")).st_mode & 07777, 0640u);
  EXPECT_EQ(status(on_server("d")).st_mode & 07777, 0750u);
}

TEST_F(AttributesOf, TimesToTheNanosecond) {
  write_file(in_mount("a"), "x");
  const timespec times[2] = {{1'000'000'001, 123'456'789}, {-5, 987'654'321}};
  ASSERT_EQ(::utimensat(AT_FDCWD, in_mount("a").c_str(), times, 0), 0);
  for (const std::string& path : {in_mount("a"), on_server("a")}) {
    const struct stat st = status(path);
    EXPECT_EQ(st.st_atim.tv_sec, 1'000'000'001);
    EXPECT_EQ(st.st_atim.tv_nsec, 123'456'789);
    EXPECT_EQ(st.st_mtim.tv_sec, -5);
    EXPECT_EQ(st.st_mtim.tv_nsec, 987'654'321);
  }
}

TEST_F(AttributesOf, TimesNowAndOmitted) {
  write_file(in_mount("a"), "x");
  const timespec old[2] = {{1000, 0}, {2000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, in_mount("a").c_str(), old, 0), 0);
  const timespec mixed[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  ASSERT_EQ(::utimensat(AT_FDCWD, in_mount("a").c_str(), mixed, 0), 0);
  const struct stat st = status(on_server("a"));
  EXPECT_GT(st.st_atim.tv_sec, 1'000'000);
  EXPECT_EQ(st.st_mtim.tv_sec, 2000);
}

TEST_F(AttributesOf, TimesOfASymlinkItself) {
  ASSERT_EQ(::symlink("nowhere", in_mount("s").c_str()), 0);
  const timespec times[2] = {{1000, 1}, {2000, 2}};
  ASSERT_EQ(::utimensat(AT_FDCWD, in_mount("s").c_str(), times, AT_SYMLINK_NOFOLLOW), 0);
  EXPECT_EQ(status(on_server("s")).st_mtim.tv_sec, 2000);
}

TEST_F(AttributesOf, ATimeSetAfterWritesStays) {
  const timespec times[2] = {{1000, 0}, {2000, 5}};
  {
    const Fd fd(in_mount("a"), O_WRONLY | O_CREAT, 0644);
    ASSERT_EQ(::write(fd.get(), "unsent", 6), 6);
    ASSERT_EQ(::futimens(fd.get(), times), 0);
  }
  EXPECT_EQ(status(in_mount("a")).st_mtim.tv_sec, 2000);
  EXPECT_EQ(status(on_server("a")).st_mtim.tv_sec, 2000);
  EXPECT_EQ(status(on_server("a")).st_mtim.tv_nsec, 5);
}

TEST_F(AttributesOf, SizeOfAFileBeingWritten) {
  const Fd fd(in_mount("a"), O_WRONLY | O_CREAT, 0644);
  for (int i = 1; i <= 20; ++i) {
    ASSERT_EQ(::write(fd.get(), noise(50'000).data(), 50'000), 50'000);
    EXPECT_EQ(status(in_mount("a")).st_size, i * 50'000);
  }
}

TEST_F(AttributesOf, ChownByRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "skipped, because only root can give files away";
  write_file(in_mount("a"), "");
  ASSERT_EQ(::chown(in_mount("a").c_str(), 1234, 5678), 0);
  EXPECT_EQ(status(in_mount("a")).st_uid, 1234u);
  EXPECT_EQ(status(on_server("a")).st_gid, 5678u);
}

TEST_F(AttributesOf, WritingTakesSetUidAway) {
  write_file(in_mount("a"), "program");
  ASSERT_EQ(::chmod(in_mount("a").c_str(), 06755), 0);
  if (::geteuid() != 0) GTEST_SKIP() << "skipped, because it needs another user";
  ASSERT_EQ(::chmod(in_mount("a").c_str(), 06777), 0);
  const pid_t child = in_child([path = in_mount("a")] {
    // Not through the library's wrapper, which signals and waits for the threads of the parent.
    if (::syscall(SYS_setgid, 65534) != 0 || ::syscall(SYS_setuid, 65534) != 0) return 2;
    const int fd = ::open(path.c_str(), O_WRONLY);
    return fd >= 0 && ::write(fd, "x", 1) == 1 && ::close(fd) == 0 ? 0 : 1;
  });
  // The mount belongs to root but others may use it, and so may its directory.
  EXPECT_EQ(exit_code(child), 0);
  EXPECT_EQ(status(on_server("a")).st_mode & 06000, 0u);
}

TEST_F(AttributesOf, ExtendedAttributes) {
  write_file(in_mount("a"), "");
  const std::string path = in_mount("a");
  char value[100];
  EXPECT_EQ(::getxattr(path.c_str(), "user.colour", value, sizeof value), -1);
  EXPECT_EQ(errno, ENODATA);
  if (::setxattr(path.c_str(), "user.colour", "blue", 4, 0) != 0 && errno == EOPNOTSUPP)
    GTEST_SKIP() << "skipped, because the temporary directory has no user attributes";
  EXPECT_EQ(::setxattr(path.c_str(), "user.colour", "red", 3, XATTR_CREATE), -1);
  EXPECT_EQ(errno, EEXIST);
  EXPECT_EQ(::getxattr(path.c_str(), "user.colour", nullptr, 0), 4);
  EXPECT_EQ(::getxattr(path.c_str(), "user.colour", value, 2), -1);
  EXPECT_EQ(errno, ERANGE);
  ASSERT_EQ(::getxattr(path.c_str(), "user.colour", value, sizeof value), 4);
  EXPECT_EQ(std::string_view(value, 4), "blue");
  ASSERT_EQ(::listxattr(path.c_str(), value, sizeof value), 12);
  EXPECT_EQ(std::string_view(value, 12), std::string_view("user.colour\0", 12));
  EXPECT_EQ(::removexattr(path.c_str(), "user.colour"), 0);
  EXPECT_EQ(::removexattr(path.c_str(), "user.colour"), -1);
  EXPECT_EQ(errno, ENODATA);
}

TEST_F(AttributesOf, TheFileSystemAsAWhole) {
  struct statvfs here {
  }, there{};
  ASSERT_EQ(::statvfs(mounted_->path().c_str(), &here), 0);
  ASSERT_EQ(::statvfs(mounted_->exported().c_str(), &there), 0);
  EXPECT_EQ(here.f_blocks * here.f_frsize, there.f_blocks * there.f_frsize);
  EXPECT_EQ(here.f_namemax, 255u);
}

class AsUser : public MountedTest {
  ExportSetup setup() override {
    return {.as_user = client::IdentityMap::User{
                .server_uid = ::geteuid(), .server_gid = ::getegid(), .uid = 4242, .gid = 4343}};
  }
};

TEST_F(AsUser, EverythingIsTheMountingUsers) {
  write_file(on_server("a"), "");
  EXPECT_EQ(status(in_mount("a")).st_uid, 4242u);
  EXPECT_EQ(status(in_mount("a")).st_gid, 4343u);
  EXPECT_EQ(::chown(in_mount("a").c_str(), 4242, 4343), 0);
  EXPECT_EQ(::chown(in_mount("a").c_str(), 1, -1u), -1);
  EXPECT_EQ(errno, EPERM);
}

}  // namespace
}  // namespace tusk::test
