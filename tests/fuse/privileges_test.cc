// What a mount must never grant: options out of a URL, set-user-ID programs, devices.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "fsclient/mount_table.h"
#include "tests/fuse/mounted/mounted_export.h"

namespace tusk::test {
namespace {

class SourceWithOptionsInIt : public MountedTest {
 protected:
  static constexpr const char* kSource = "tusk://h:8875/x,suid,dev,\\,exec";
  ExportSetup setup() override { return {.source = kSource}; }
};

TEST_F(SourceWithOptionsInIt, StaysASourceAndGrantsNothing) {
  const auto mounted = client::mounted_at(mounted_->path());
  ASSERT_TRUE(mounted);
  EXPECT_EQ(mounted->source, kSource);
  struct statvfs flags {};
  ASSERT_EQ(::statvfs(mounted_->path().c_str(), &flags), 0);
  EXPECT_TRUE(flags.f_flag & ST_NOSUID);
  EXPECT_TRUE(flags.f_flag & ST_NODEV);
}

// With and without leases: asked for, and answered here by the log.
class SpecialBits : public MountedTest, public testing::WithParamInterface<std::pair<bool, bool>> {
 protected:
  ExportSetup setup() override {
    return {.setuid = GetParam().first, .leases = GetParam().second, .lease_all = GetParam().second};
  }
  void expect(const std::string& name, mode_t mode) {
    EXPECT_EQ(status(in_mount(name)).st_mode & 07777, mode) << name << " on the mount";
    const int directory = ::open(in_mount("d").c_str(), O_RDONLY | O_DIRECTORY);
    EXPECT_EQ(::fsync(directory), 0);
    ::close(directory);
    EXPECT_EQ(status(on_server(name)).st_mode & 07777, mode) << name << " on the server";
    EXPECT_EQ(status(in_mount(name)).st_mode & 07777, mode) << name << " on the mount, later";
  }
};

TEST_P(SpecialBits, AreWhatTheServerMade) {
  const mode_t stripped = GetParam().first ? 0 : 06000;
  const mode_t umask_before = ::umask(0);
  ASSERT_EQ(::mkdir(in_mount("d").c_str(), 0755), 0);
  for (const mode_t mode : {04755, 02755, 06711, 01755}) {
    const std::string name = "d/made " + std::to_string(mode);
    ::close(::open(in_mount(name).c_str(), O_WRONLY | O_CREAT | O_EXCL, mode));
    expect(name, mode & ~stripped);
    const std::string chmodded = "d/chmodded " + std::to_string(mode);
    write_file(in_mount(chmodded), "");
    ASSERT_EQ(::chmod(in_mount(chmodded).c_str(), mode), 0);
    expect(chmodded, mode & ~stripped);
  }
  ASSERT_EQ(::mkfifo(in_mount("d/fifo").c_str(), 04755), 0);
  expect("d/fifo", 04755 & ~stripped);
  ASSERT_EQ(::mkdir(in_mount("d/directory").c_str(), 0755), 0);
  ASSERT_EQ(::chmod(in_mount("d/directory").c_str(), 02775), 0);
  expect("d/directory", 02775);
  ::umask(umask_before);
}

TEST_P(SpecialBits, AndDevicesTakeAnExportThatAllowsThem) {
  if (::geteuid() != 0) GTEST_SKIP() << "skipped, because it needs root";
  ASSERT_EQ(::mkdir(in_mount("d").c_str(), 0755), 0);
  const int made = ::mknod(in_mount("d/null").c_str(), S_IFCHR | 0666, makedev(1, 3));
  EXPECT_EQ(made == 0 ? 0 : errno, GetParam().first ? 0 : EPERM);
}

INSTANTIATE_TEST_SUITE_P(OfExports, SpecialBits,
                         testing::Values(std::pair(false, false), std::pair(false, true),
                                         std::pair(true, false), std::pair(true, true)));

}  // namespace
}  // namespace tusk::test
