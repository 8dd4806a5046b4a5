#include "fsclient/mount_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temp_dir.h"

namespace tusk::client {
namespace {

using support::TempDir;
using testing::HasSubstr;

TEST(MountPlace, IsNotWhatTheKernelMakesUp) {
  for (const char* place : {"/proc", "/proc/self/task", "/proc/sys/fs", "/sys/kernel"}) {
    const Result<void> checked = check_no_kernel_place(place);
    ASSERT_FALSE(checked) << place;
    EXPECT_THAT(checked.error().context, HasSubstr(std::string(place) + " belongs to the kernel (")) << place;
    EXPECT_THAT(checked.error().context, HasSubstr("make a directory elsewhere")) << place;
  }
  const TempDir folder;
  EXPECT_TRUE(check_no_kernel_place(folder.path()));
  EXPECT_TRUE(check_no_kernel_place("/processes"));
}

TEST(MountPlace, AndTheCacheFolderAreApart) {
  const TempDir folder;
  const std::filesystem::path point = folder / "point", cache = folder / "cache";
  std::filesystem::create_directory(cache);
  std::filesystem::create_directory_symlink(cache, folder / "link");
  EXPECT_TRUE(check_cache_place(point, ""));
  EXPECT_TRUE(check_cache_place(point, cache));
  EXPECT_TRUE(check_cache_place(point, folder / "point2"));
  for (const std::filesystem::path& inside : {point, point / "cache"})
    EXPECT_THAT(check_cache_place(point, inside).error().context,
                HasSubstr("it would lie in the mount itself"));
  for (const std::filesystem::path& around : {cache, folder / "link"})
    EXPECT_THAT(check_cache_place(cache / "point", around).error().context,
                HasSubstr("lies in the cache folder"));
}

class MountPlaceAndExport : public testing::Test {
 protected:
  // As a server answers that exports this directory.
  [[nodiscard]] schema::AttachReply attached() const {
    struct stat st {};
    EXPECT_EQ(::stat(folder_.path().c_str(), &st), 0);
    schema::AttachReply reply;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> *reply.mutable_boot_id();
    reply.mutable_root()->mutable_attr()->set_ino(st.st_ino);
    reply.mutable_root()->mutable_attr()->set_ctime_s(st.st_ctim.tv_sec);
    reply.mutable_root()->mutable_attr()->set_ctime_ns(static_cast<std::uint32_t>(st.st_ctim.tv_nsec));
    return reply;
  }

  const TempDir folder_;
};

TEST_F(MountPlaceAndExport, AreApart) {
  std::filesystem::create_directories(folder_ / "a/b");
  EXPECT_THAT(check_outside_the_export(folder_.path(), attached()).error().context,
              HasSubstr(folder_.path().string() + " is the directory that is to be mounted"));
  EXPECT_THAT(check_outside_the_export(folder_ / "a/b", attached()).error().context,
              HasSubstr("b lies in the directory that is to be mounted"));
  const TempDir elsewhere;
  EXPECT_TRUE(check_outside_the_export(elsewhere.path(), attached()));
  EXPECT_TRUE(check_outside_the_export(folder_.path().parent_path(), attached()));
}

TEST_F(MountPlaceAndExport, AreApartOnTwoMachines) {
  schema::AttachReply far = attached();
  far.set_boot_id("00000000-0000-0000-0000-000000000000");
  EXPECT_TRUE(check_outside_the_export(folder_.path(), far));
  EXPECT_TRUE(check_outside_the_export(folder_.path(), {}));
}

}  // namespace
}  // namespace tusk::client
