// Leases through the kernel: what it keeps costs nothing, and what is taken back it does not show any more.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fuse/mounted/mounted_export.h"

namespace tusk::test {
namespace {

// Nothing ages: what is seen to change was taken back.
class MountedLeases : public MountedTest {
 protected:
  ExportSetup setup() override { return {.lifetime = std::chrono::hours(1), .leases = true}; }
  [[nodiscard]] bool exists(std::string_view name) { return ::access(in_mount(name).c_str(), F_OK) == 0; }
};

TEST_F(MountedLeases, WhatALocalProgramChangesIsSeen) {
  write_file(on_server("a"), "old");
  EXPECT_EQ(status(in_mount("a")).st_size, 3);
  write_file(on_server("a"), "newer");
  EXPECT_TRUE(eventually([&] { return status(in_mount("a")).st_size == 5; }));
  EXPECT_EQ(::chmod(on_server("a").c_str(), 0600), 0);
  EXPECT_TRUE(eventually([&] { return (status(in_mount("a")).st_mode & 0777) == 0600; }));
}

TEST_F(MountedLeases, NamesThatComeAndGoAreSeen) {
  EXPECT_FALSE(exists("a"));
  write_file(on_server("a"), "x");
  EXPECT_TRUE(eventually([&] { return exists("a"); }));
  std::filesystem::remove(on_server("a"));
  EXPECT_TRUE(eventually([&] { return !exists("a"); }));
}

TEST_F(MountedLeases, AnOpenFileShowsWhatALocalProgramWrites) {
  write_file(on_server("a"), "old");
  const Fd fd(in_mount("a"), O_RDONLY);
  const auto content = [&fd] {
    char bytes[16];
    const ssize_t size = ::pread(fd.get(), bytes, sizeof bytes, 0);
    return std::string(bytes, size < 0 ? 0 : static_cast<std::size_t>(size));
  };
  EXPECT_EQ(content(), "old");
  write_file(on_server("a"), "new");
  EXPECT_TRUE(eventually([&] { return content() == "new"; }));
}

TEST_F(MountedLeases, WhatWeChangeOurselvesStaysKnown) {
  write_file(in_mount("a"), "hello");
  EXPECT_TRUE(exists("a"));
  (void)status(in_mount("a"));
  const std::uint64_t before = mounted_->caller().calls();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(status(in_mount("a")).st_size, 5);
  EXPECT_LE(mounted_->caller().calls() - before, 1u) << "a close may still be on its way";
}

}  // namespace
}  // namespace tusk::test
