#include "fsclient/session_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "tests/support/temp_dir.h"

namespace tusk::client {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

const std::string kId("\0/one of any bytes", 16);
const std::string kOther(16, 'o');

class SessionFilesTest : public testing::Test {
 protected:
  // As a mount that is killed: the file stays, its lock does not.
  void leave_behind(const std::string& id, const std::string& owner) const {
    std::filesystem::path file;
    {
      SessionFiles mount(directory, owner);
      ASSERT_TRUE(mount.begin(id));
      file = std::filesystem::directory_iterator(directory)->path();
      std::filesystem::create_hard_link(file, dir / "kept");
    }
    std::filesystem::rename(dir / "kept", file);
  }

  support::TempDir dir;
  std::filesystem::path directory = dir / "run";
};

TEST_F(SessionFilesTest, OfAMountThatWasKilledTellsTheNextOne) {
  leave_behind(kId, "a:1 data key");
  const SessionFiles next(directory, "a:1 data key");
  EXPECT_THAT(next.ended(), ElementsAre(kId));
  next.forget({kId, kOther});
  EXPECT_THAT(next.ended(), IsEmpty());
}

TEST_F(SessionFilesTest, OfAMountThatLivesOrSaidGoodbyeTellsNothing) {
  const SessionFiles next(directory, "a:1 data key");
  EXPECT_THAT(next.ended(), IsEmpty()) << "there is no directory yet";
  auto mount = std::make_unique<SessionFiles>(directory, "a:1 data key");
  ASSERT_TRUE(mount->begin(kId));
  EXPECT_THAT(next.ended(), IsEmpty());
  EXPECT_THAT(mount->ended(), IsEmpty());
  mount.reset();
  EXPECT_THAT(next.ended(), IsEmpty());
  EXPECT_TRUE(std::filesystem::is_empty(directory));
}

TEST_F(SessionFilesTest, OfAMountThatCouldNotSayGoodbyeTellsTheNextOne) {
  auto mount = std::make_unique<SessionFiles>(directory, "a:1 data key");
  ASSERT_TRUE(mount->begin(kId));
  mount->leave_behind();
  EXPECT_THAT(SessionFiles(directory, "a:1 data key").ended(), IsEmpty());
  mount.reset();
  EXPECT_THAT(SessionFiles(directory, "a:1 data key").ended(), ElementsAre(kId));
}

TEST_F(SessionFilesTest, OfOthersTellsNothing) {
  leave_behind(kId, "a:1 data another key");
  EXPECT_THAT(SessionFiles(directory, "a:1 data key").ended(), IsEmpty());
  EXPECT_THAT(SessionFiles(directory, "a:1 data another key").ended(), ElementsAre(kId));
}

TEST_F(SessionFilesTest, ThatAreNoneAreLeftAlone) {
  ASSERT_TRUE(SessionFiles(directory, "x").begin(kOther));
  for (const char* const name : {"session-", "session-!", "session-AA.new", "film-1.sock"})
    support::write_file(directory / name, "a:1 data key");
  support::write_file(directory / "session-AAAA", "a:1 data key");  // too short
  std::filesystem::create_directory(directory / "session-AAAAAAAAAAAAAAAAAAAAAQ");
  std::filesystem::create_symlink("/etc/passwd", directory / "session-AAAAAAAAAAAAAAAAAAAAAg");
  EXPECT_THAT(SessionFiles(directory, "a:1 data key").ended(), IsEmpty());
}

TEST_F(SessionFilesTest, NoMoreAreToldThanOneAttachMayName) {
  EXPECT_THAT(SessionFiles(directory, "a:1 data key").ended(), IsEmpty());  // makes the directory
  for (std::size_t n = 0; n < SessionFiles::kEndedMax + 4; ++n)
    support::write_file(
        directory / ("session-AAAAAAAAAAAAAAAAAAAA" + std::string(1, static_cast<char>('A' + n)) + "A"),
        "a:1 data key");
  EXPECT_THAT(SessionFiles(directory, "a:1 data key").ended(), SizeIs(SessionFiles::kEndedMax));
}

TEST_F(SessionFilesTest, ADirectoryThatOthersMayEnterIsNotUsed) {
  std::filesystem::create_directory(directory);
  std::filesystem::permissions(directory, std::filesystem::perms::all);
  SessionFiles mount(directory, "a:1 data key");
  EXPECT_FALSE(mount.begin(kId));
  EXPECT_TRUE(std::filesystem::is_empty(directory));
  const std::string theirs = "session-AAAAAAAAAAAAAAAAAAAAAA";
  support::write_file(directory / theirs, "a:1 data key");
  EXPECT_THAT(mount.ended(), IsEmpty());
}

}  // namespace
}  // namespace tusk::client
