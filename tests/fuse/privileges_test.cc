// What a mount must never grant: options out of a URL, set-user-ID programs, devices.
#include <sys/statvfs.h>

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

}  // namespace
}  // namespace tusk::test
