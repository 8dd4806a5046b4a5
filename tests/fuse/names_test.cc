// Names: making, finding, renaming, linking, removing.
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <vector>

#include "tests/fuse/mounted/mounted_export.h"

namespace tusk::test {
namespace {

using Names = MountedTest;

std::vector<std::string> list(const std::string& directory) {
  std::vector<std::string> names;
  DIR* stream = ::opendir(directory.c_str());
  if (stream == nullptr) return names;
  while (const dirent* entry = ::readdir(stream)) names.emplace_back(entry->d_name);
  ::closedir(stream);
  std::ranges::sort(names);
  return names;
}

bool exists(const std::string& path) {
  struct stat st {};
  return ::lstat(path.c_str(), &st) == 0;
}

TEST_F(Names, AMissingNameIsMissing) {
  struct stat st {};
  EXPECT_EQ(::stat(in_mount("nothing").c_str(), &st), -1);
  EXPECT_EQ(errno, ENOENT);
}

TEST_F(Names, DirectoriesAreMadeListedAndRemoved) {
  ASSERT_EQ(::mkdir(in_mount("d").c_str(), 0750), 0);
  EXPECT_TRUE(std::filesystem::is_directory(on_server("d")));
  EXPECT_EQ(status(in_mount("d")).st_mode & 07777, 0750u);
  write_file(in_mount("d/f"), "x");
  EXPECT_EQ(list(in_mount("d")), (std::vector<std::string>{".", "..", "f"}));
  EXPECT_EQ(::rmdir(in_mount("d").c_str()), -1);
  EXPECT_EQ(errno, ENOTEMPTY);
  EXPECT_EQ(::unlink(in_mount("d/f").c_str()), 0);
  EXPECT_EQ(::rmdir(in_mount("d").c_str()), 0);
  EXPECT_FALSE(exists(on_server("d")));
}

TEST_F(Names, MkdirOverAnExistingNameFails) {
  write_file(on_server("a"), "");
  EXPECT_EQ(::mkdir(in_mount("a").c_str(), 0755), -1);
  EXPECT_EQ(errno, EEXIST);
}

TEST_F(Names, ListingsFollowChanges) {
  write_file(in_mount("a"), "");
  EXPECT_EQ(list(mounted_->path().string()), (std::vector<std::string>{".", "..", "a"}));
  write_file(in_mount("b"), "");
  EXPECT_EQ(list(mounted_->path().string()), (std::vector<std::string>{".", "..", "a", "b"}));
  ASSERT_EQ(::rename(in_mount("a").c_str(), in_mount("c").c_str()), 0);
  EXPECT_EQ(list(mounted_->path().string()), (std::vector<std::string>{".", "..", "b", "c"}));
  ASSERT_EQ(::unlink(in_mount("b").c_str()), 0);
  EXPECT_EQ(list(mounted_->path().string()), (std::vector<std::string>{".", "..", "c"}));
}

TEST_F(Names, AFileMadeOnTheServerAppears) {
  EXPECT_FALSE(exists(in_mount("late")));
  write_file(on_server("late"), "x");
  EXPECT_TRUE(eventually([&] { return exists(in_mount("late")); }));
}

TEST_F(Names, AFileRemovedOnTheServerDisappears) {
  write_file(on_server("a"), "x");
  EXPECT_TRUE(exists(in_mount("a")));
  std::filesystem::remove(on_server("a"));
  EXPECT_TRUE(eventually([&] { return !exists(in_mount("a")); }));
}

TEST_F(Names, ExclusiveCreationHasOneWinner) {
  constexpr int kRounds = 20;
  constexpr int kRacers = 4;
  for (int round = 0; round < kRounds; ++round) {
    const std::string path = in_mount("race" + std::to_string(round));
    std::vector<pid_t> children;
    for (int i = 0; i < kRacers; ++i) {
      children.push_back(
          in_child([&path] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644) >= 0 ? 1 : 0; }));
    }
    int winners = 0;
    for (const pid_t child : children) winners += exit_code(child);
    EXPECT_EQ(winners, 1);
  }
}

TEST_F(Names, ExclusiveCreationSeesAFileMadeOnTheServer) {
  EXPECT_FALSE(exists(in_mount("a")));  // known not to exist, for a moment
  write_file(on_server("a"), "theirs");
  EXPECT_EQ(::open(in_mount("a").c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644), -1);
  EXPECT_EQ(errno, EEXIST);
}

TEST_F(Names, RenameReplaces) {
  write_file(in_mount("a"), "new");
  write_file(in_mount("b"), "old");
  ASSERT_EQ(::rename(in_mount("a").c_str(), in_mount("b").c_str()), 0);
  EXPECT_EQ(read_file(in_mount("b")), "new");
  EXPECT_FALSE(exists(in_mount("a")));
  EXPECT_EQ(read_file(on_server("b")), "new");
}

TEST_F(Names, RenameFlags) {
  write_file(in_mount("a"), "A");
  write_file(in_mount("b"), "B");
  const auto rename2 = [&](const char* from, const char* to, unsigned flags) {
    return ::syscall(SYS_renameat2, AT_FDCWD, in_mount(from).c_str(), AT_FDCWD, in_mount(to).c_str(), flags);
  };
  EXPECT_EQ(rename2("a", "b", RENAME_NOREPLACE), -1);
  EXPECT_EQ(errno, EEXIST);
  EXPECT_EQ(rename2("a", "b", RENAME_EXCHANGE), 0);
  EXPECT_EQ(read_file(in_mount("a")), "B");
  EXPECT_EQ(read_file(in_mount("b")), "A");
  EXPECT_EQ(rename2("a", "c", RENAME_NOREPLACE), 0);
  EXPECT_EQ(read_file(in_mount("c")), "B");
}

TEST_F(Names, RenameOfADirectoryKeepsWhatIsInIt) {
  ASSERT_EQ(::mkdir(in_mount("d").c_str(), 0755), 0);
  ASSERT_EQ(::mkdir(in_mount("e").c_str(), 0755), 0);
  write_file(in_mount("d/f"), "x");
  const Fd fd(in_mount("d/f"), O_RDONLY);
  ASSERT_EQ(::rename(in_mount("d").c_str(), in_mount("e/d2").c_str()), 0);
  EXPECT_EQ(read_file(in_mount("e/d2/f")), "x");
  char byte = 0;
  EXPECT_EQ(::read(fd.get(), &byte, 1), 1);
}

TEST_F(Names, RenameIntoItselfFails) {
  ASSERT_EQ(::mkdir(in_mount("d").c_str(), 0755), 0);
  EXPECT_EQ(::rename(in_mount("d").c_str(), in_mount("d/e").c_str()), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Names, AnUnlinkedFileLivesWhileItIsOpen) {
  write_file(in_mount("a"), "still here");
  const Fd fd(in_mount("a"), O_RDWR);
  ASSERT_EQ(::unlink(in_mount("a").c_str()), 0);
  EXPECT_FALSE(exists(on_server("a")));
  ASSERT_EQ(::pwrite(fd.get(), "STILL", 5, 0), 5);
  ASSERT_EQ(::fsync(fd.get()), 0);
  struct stat st {};
  ASSERT_EQ(::fstat(fd.get(), &st), 0);
  EXPECT_EQ(st.st_nlink, 0u);
  EXPECT_EQ(st.st_size, 10);
  ASSERT_EQ(::ftruncate(fd.get(), 5), 0);
  char bytes[10];
  EXPECT_EQ(::pread(fd.get(), bytes, sizeof bytes, 0), 5);
  EXPECT_EQ(std::string_view(bytes, 5), "STILL");
}

TEST_F(Names, ARenamedOverFileLivesWhileItIsOpen) {
  write_file(in_mount("a"), "old");
  const Fd fd(in_mount("a"), O_RDONLY);
  write_file(in_mount("b"), "new");
  ASSERT_EQ(::rename(in_mount("b").c_str(), in_mount("a").c_str()), 0);
  char bytes[10];
  EXPECT_EQ(::pread(fd.get(), bytes, sizeof bytes, 0), 3);
  EXPECT_EQ(std::string_view(bytes, 3), "old");
  EXPECT_EQ(read_file(in_mount("a")), "new");
}

TEST_F(Names, ARemovedDirectoryThatIsOpen) {
  ASSERT_EQ(::mkdir(in_mount("d").c_str(), 0755), 0);
  const Fd fd(in_mount("d"), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::rmdir(in_mount("d").c_str()), 0);
  EXPECT_EQ(::fsync(fd.get()), 0);
  struct stat st {};
  ASSERT_EQ(::fstat(fd.get(), &st), 0);
  EXPECT_EQ(st.st_nlink, 0u);
}

TEST_F(Names, HardLinksAreOneFile) {
  write_file(in_mount("a"), "x");
  ASSERT_EQ(::link(in_mount("a").c_str(), in_mount("b").c_str()), 0);
  const struct stat a = status(in_mount("a"));
  const struct stat b = status(in_mount("b"));
  EXPECT_EQ(a.st_ino, b.st_ino);
  EXPECT_EQ(a.st_nlink, 2u);
  write_file(in_mount("a"), "changed through a");
  EXPECT_EQ(read_file(in_mount("b")), "changed through a");
  ASSERT_EQ(::unlink(in_mount("a").c_str()), 0);
  EXPECT_EQ(status(in_mount("b")).st_nlink, 1u);
}

TEST_F(Names, Symlinks) {
  ASSERT_EQ(::symlink("target/of it", in_mount("s").c_str()), 0);
  EXPECT_EQ(std::filesystem::read_symlink(in_mount("s")), "target/of it");
  EXPECT_EQ(std::filesystem::read_symlink(on_server("s")), "target/of it");
  EXPECT_EQ(status(in_mount("s")).st_size, 12);
  write_file(in_mount("real"), "through a link");
  ASSERT_EQ(::symlink("real", in_mount("l").c_str()), 0);
  EXPECT_EQ(read_file(in_mount("l")), "through a link");
}

TEST_F(Names, AbsoluteSymlinksAreTheClients) {
  TempDir elsewhere;
  write_file(elsewhere / "f", "on the client");
  ASSERT_EQ(::symlink((elsewhere / "f").c_str(), in_mount("s").c_str()), 0);
  EXPECT_EQ(read_file(in_mount("s")), "on the client");
}

TEST_F(Names, FifosWorkAmongClientProcesses) {
  ASSERT_EQ(::mkfifo(in_mount("p").c_str(), 0600), 0);
  EXPECT_TRUE(S_ISFIFO(status(on_server("p")).st_mode));
  const pid_t child = in_child([path = in_mount("p")] {
    const int fd = ::open(path.c_str(), O_WRONLY);
    return ::write(fd, "hi", 2) == 2 ? 0 : 1;
  });
  EXPECT_EQ(read_file(in_mount("p")), "hi");
  EXPECT_EQ(exit_code(child), 0);
}

TEST_F(Names, AnyByteButSlashAndNul) {
  std::string name;
  for (int byte = 1; byte < 256; ++byte)
    if (byte != '/') name += static_cast<char>(byte);
  name.resize(255 - 1);
  write_file(in_mount(name), "odd");
  EXPECT_EQ(read_file(on_server(name)), "odd");
  const auto names = list(mounted_->path().string());
  EXPECT_TRUE(std::ranges::find(names, name) != names.end());
}

TEST_F(Names, TooLongANameIsRefused) {
  EXPECT_EQ(::mkdir(in_mount(std::string(256, 'x')).c_str(), 0755), -1);
  EXPECT_EQ(errno, ENAMETOOLONG);
}

TEST_F(Names, RewindSeesNewNamesAndOffsetsAreStable) {
  for (int i = 0; i < 300; ++i) write_file(on_server("f" + std::to_string(i)), "");
  DIR* stream = ::opendir(mounted_->path().c_str());
  std::vector<std::string> first;
  long middle = 0;
  std::string after_middle;
  for (int i = 0; const dirent* entry = ::readdir(stream); ++i) {
    first.emplace_back(entry->d_name);
    if (i == 150) middle = ::telldir(stream);
    if (i == 151) after_middle = entry->d_name;
  }
  EXPECT_EQ(first.size(), 302u);
  ::seekdir(stream, middle);
  EXPECT_EQ(std::string(::readdir(stream)->d_name), after_middle);
  write_file(in_mount("new one"), "");
  ::rewinddir(stream);
  std::set<std::string> second;
  while (const dirent* entry = ::readdir(stream)) second.insert(entry->d_name);
  ::closedir(stream);
  EXPECT_EQ(second.size(), 303u);
  EXPECT_TRUE(second.contains("new one"));
}

TEST_F(Names, RemovingEverythingWhileListing) {
  ASSERT_EQ(::mkdir(in_mount("d").c_str(), 0755), 0);
  for (int i = 0; i < 500; ++i) write_file(on_server("d/f" + std::to_string(i)), "");
  std::error_code error;
  EXPECT_EQ(std::filesystem::remove_all(in_mount("d"), error), 501u);
  EXPECT_FALSE(error) << error.message();
  EXPECT_FALSE(exists(on_server("d")));
}

TEST_F(Names, AHundredThousandNames) {
  constexpr int kNames = 100'000;
  std::filesystem::create_directory(on_server("big"));
  for (int i = 0; i < kNames; ++i) {
    const int fd =
        ::open(on_server("big/file number " + std::to_string(i)).c_str(), O_WRONLY | O_CREAT, 0644);
    ASSERT_GE(fd, 0);
    ::close(fd);
  }
  const auto names = list(in_mount("big"));
  EXPECT_EQ(names.size(), kNames + 2u);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  // Whole pages, not names one by one.
  EXPECT_LT(mounted_->caller().calls(), 200u);
}

TEST_F(Names, AListingBringsTheAttributesOfAll) {
  std::filesystem::create_directory(on_server("d"));
  for (int i = 0; i < 500; ++i) write_file(on_server("d/f" + std::to_string(i)), "x");
  const auto names = list(in_mount("d"));
  const auto calls = mounted_->caller().calls();
  for (const std::string& name : names) EXPECT_GE(status(in_mount("d/" + name)).st_nlink, 1u);
  EXPECT_LT(mounted_->caller().calls() - calls, 20u);
}

// The whole tree of a read-only export is still readable.
class ReadOnly : public MountedTest {
  ExportSetup setup() override { return {.read_only = true}; }
};

TEST_F(ReadOnly, NothingCanBeChanged) {
  write_file(on_server("a"), "x");
  EXPECT_EQ(read_file(in_mount("a")), "x");
  EXPECT_EQ(::open(in_mount("a").c_str(), O_WRONLY), -1);
  EXPECT_EQ(errno, EROFS);
  EXPECT_EQ(::mkdir(in_mount("d").c_str(), 0755), -1);
  EXPECT_EQ(errno, EROFS);
  EXPECT_EQ(::unlink(in_mount("a").c_str()), -1);
  EXPECT_EQ(errno, EROFS);
}

}  // namespace
}  // namespace tusk::test
