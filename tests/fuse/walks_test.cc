// Programs that go through trees find what they come to here already, and find the right thing.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>

#include "tests/fuse/mounted/mounted_export.h"

namespace tusk::test {
namespace {

using schema::Request;

constexpr int kDirectories = 40;
constexpr int kFiles = 12;  // in each

class Walks : public MountedTest {
 protected:
  ExportSetup setup() override {
    ExportSetup setup;
    setup.loopback.delay = std::chrono::milliseconds(5);
    setup.loopback.jitter = std::chrono::milliseconds(2);
    return setup;
  }
  void SetUp() override {
    MountedTest::SetUp();
    if (!mounted_) return;
    for (int d = 0; d < kDirectories; ++d) {
      const std::string folder = "d" + std::to_string(d);
      std::filesystem::create_directories(on_server(folder + "/deeper"));
      for (int f = 0; f < kFiles; ++f) {
        const std::string name = folder + (f < 3 ? "/deeper/f" : "/f") + std::to_string(f);
        write_file(on_server(name), "content of " + name);
      }
      std::filesystem::create_symlink("f3", on_server(folder + "/link"));
    }
  }

  // Path below `root`: what is there.
  static std::map<std::string, std::string> look_at_all(const std::filesystem::path& root) {
    std::map<std::string, std::string> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      const struct stat st = status(entry.path().string());
      std::string what = std::to_string(st.st_mode) + " " + std::to_string(st.st_mtim.tv_nsec);
      if (S_ISLNK(st.st_mode)) what += " " + std::filesystem::read_symlink(entry.path()).string();
      if (S_ISREG(st.st_mode)) what += " " + std::to_string(st.st_size);
      all[std::filesystem::relative(entry.path(), root)] = what;
    }
    return all;
  }
  static std::map<std::string, std::string> read_all(const std::filesystem::path& root) {
    std::map<std::string, std::string> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root))
      if (std::filesystem::is_regular_file(entry.symlink_status()))
        all[std::filesystem::relative(entry.path(), root)] = read_file(entry.path());
    return all;
  }
  std::uint64_t calls(Request::OperationCase kind) { return mounted_->caller().calls(kind); }
};

TEST_F(Walks, AskAboutATreeAFewTimes) {
  const auto before = mounted_->caller().calls();
  EXPECT_EQ(look_at_all(mounted_->path()), look_at_all(mounted_->exported()));
  EXPECT_GT(calls(Request::kWalk), 0u);
  EXPECT_LE(mounted_->caller().calls() - before, 20u);
}

TEST_F(Walks, OpenSmallFilesAFewAtATime) {
  EXPECT_EQ(read_all(mounted_->path()), read_all(mounted_->exported()));
  EXPECT_GT(calls(Request::kReadFiles), 0u);
  EXPECT_LE(calls(Request::kOpen), 40u);
  EXPECT_LE(mounted_->caller().calls(), 120u);
}

TEST_F(Walks, SeeWhatThisMountChangesOnTheWay) {
  (void)read_all(mounted_->path());
  for (int d = 0; d < kDirectories; ++d) {
    const std::string folder = "d" + std::to_string(d);
    write_file(in_mount(folder + "/f5"), "changed");
    write_file(in_mount(folder + "/new"), "made");
    EXPECT_EQ(::unlink(in_mount(folder + "/f6").c_str()), 0);
    EXPECT_EQ(::rename(in_mount(folder + "/f7").c_str(), in_mount(folder + "/deeper/moved").c_str()), 0);
    EXPECT_EQ(read_file(in_mount(folder + "/f5")), "changed");
  }
  EXPECT_EQ(read_all(mounted_->path()), read_all(mounted_->exported()));
  EXPECT_EQ(look_at_all(mounted_->path()), look_at_all(mounted_->exported()));
}

// N3, C5
TEST_F(Walks, FilesThatAreOpenWithoutTheServerAreOpenFilesAllTheSame) {
  (void)look_at_all(mounted_->path());
  std::vector<std::unique_ptr<Fd>> open;
  for (int d = 0; d < kDirectories; ++d)
    for (int f = 3; f < kFiles; ++f)
      open.push_back(
          std::make_unique<Fd>(in_mount("d" + std::to_string(d) + "/f" + std::to_string(f)), O_RDONLY));
  EXPECT_LT(calls(Request::kOpen), open.size() / 2);
  EXPECT_EQ(::flock(open[50]->get(), LOCK_EX | LOCK_NB), 0);
  constexpr int kRemoved = 8;
  for (int d = 0; d < kRemoved; ++d) std::filesystem::remove_all(in_mount("d" + std::to_string(d)));
  std::size_t number = 0;
  for (int d = 0; d < kRemoved; ++d)
    for (int f = 3; f < kFiles; ++f) {
      const std::string name = "d" + std::to_string(d) + "/f" + std::to_string(f);
      std::string text(100, '\0');
      text.resize(static_cast<std::size_t>(::pread(open[number++]->get(), text.data(), text.size(), 0)));
      EXPECT_EQ(text, "content of " + name);
    }
}

TEST_F(Walks, FilesThatMayNotBeReadAreNot) {
  if (::geteuid() != 0) GTEST_SKIP() << "skipped, because only root can make files of others";
  for (int f = 3; f < kFiles; ++f) ::chmod(on_server("d1/f" + std::to_string(f)).c_str(), 0);
  const auto content = read_all(mounted_->path());  // as root
  EXPECT_EQ(content.at("d1/f5"), "content of d1/f5");
}

// ---------------------------------------------------------------- listings on the disk

class WalksAgain : public Walks {
 protected:
  ExportSetup setup() override {
    ExportSetup setup = Walks::setup();
    setup.leases = true;
    return setup;
  }
  // The one before it is gone, its folder is not.
  void mount_again(bool leases) {
    again_.reset();
    ExportSetup setup = Walks::setup();
    setup.disk_cache = true;
    setup.disk_folder = disk_folder_.path();
    setup.leases = leases;
    again_.emplace(*mounted_, setup);
    EXPECT_TRUE(eventually([&] { return !disk().loading; }));
  }
  [[nodiscard]] client::DiskCacheStats disk() { return again_->filesystem().disk()->stats(); }
  void change_something(Random& random) {
    const std::string folder = "d" + std::to_string(random.below(kDirectories));
    const std::string file =
        folder + (random.chance(0.5) ? "/deeper/f" : "/f") + std::to_string(random.below(kFiles));
    std::error_code ignored;
    switch (random.below(5)) {
      case 0:
        write_file(on_server(file), noise(random.below(3000), random.next()));
        break;
      case 1:
        std::filesystem::remove(on_server(file), ignored);
        break;
      case 2:
        std::filesystem::rename(on_server(file), on_server(folder + "/renamed"), ignored);
        break;
      case 3:
        (void)!::chmod(on_server(file).c_str(), random.chance(0.5) ? 0600 : 0640);
        break;
      default:
        std::filesystem::rename(on_server(folder + "/deeper"), on_server(folder + "/moved"), ignored);
    }
  }

  TempDir disk_folder_;
  std::optional<MountedExport> again_;
};

// What lies on the disk is a mount old; each sees the tree as it is now.
TEST_F(WalksAgain, SeeWhatHasChangedBetweenTwoMounts) {
  Random random(7);
  std::uint64_t hits = 0;
  for (int round = 0; round < 8; ++round) {
    mount_again(round % 2 == 1);
    ASSERT_EQ(look_at_all(again_->path()), look_at_all(mounted_->exported())) << "in round " << round;
    EXPECT_TRUE(eventually([&] { return disk().stored_bytes > 0 && disk().pending_bytes == 0; }));
    hits += disk().hits;
    EXPECT_EQ(disk().damaged, 0u);
    EXPECT_EQ(again_->filesystem().last_error().value().first, "");
    for (int change = 0; change < 4; ++change) change_something(random);
  }
  EXPECT_GT(hits, 7u * kDirectories) << "the disk takes part";
}

}  // namespace
}  // namespace tusk::test
