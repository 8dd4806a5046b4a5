// What COMMIT promises when a disk fails, and under which write verifier: docs/PROTOCOL.md, "Stable or kept".
#include "fsserver/commits.h"

#include <sched.h>
#include <sys/mount.h>

#include "fsserver/mount_points.h"
#include "mount.h"

namespace tusk::server {
namespace {

using testing::ElementsAre;

const std::string kOtherSession(kSessionIdBytes, 'o');

class CommitsOfSessions : public testing::Test {
 protected:
  CommitsOfSessions() {
    setup.commits_dir = state.path() / "commits";
    setup.disk.all = [this](const Fd&) { return outcome(fail_all); };
    setup.disk.file = [this](const Fd&, bool) { return outcome(fail_file); };
    write_file(dir / "file", "bytes");
    start();
  }
  // Another process takes the place of the one before, however that has ended.
  void start() {
    server.reset();
    server = std::make_unique<Server>(dir.path(), setup);
  }
  std::uint64_t verifier() {
    return Mount(*server, {.session = std::string(kSessionIdBytes, '?')}).attached().write_verifier();
  }
  static Answer commit_all(Mount& mount) {
    schema::Request all;
    all.mutable_commit()->set_all(true);
    return mount.call(all);
  }
  static Result<void> outcome(std::atomic<bool>& failing) {
    if (failing.exchange(false)) return fail(from_errno(EIO), "the disk");
    return {};
  }
  [[nodiscard]] std::filesystem::path note() const {
    return std::filesystem::directory_iterator(setup.commits_dir)->path();
  }
  // The word of the note: state, boot, mounts, ...
  void change_note(int which, const std::string& to) const {
    std::istringstream words(read_file(note()));
    std::string changed, word;
    for (int i = 0; words >> word; ++i) changed += (i == which ? to : word) + ' ';
    write_file(note(), changed);
  }

  TempDir dir;
  TempDir state;
  std::atomic<bool> fail_all{false}, fail_file{false};
  ServerSetup setup;
  std::unique_ptr<Server> server;
};

TEST_F(CommitsOfSessions, AllAreToldOfAFailureThatOneHasMet) {
  Mount one(*server), two(*server, {.session = kOtherSession});
  fail_all = true;
  EXPECT_ERROR(commit_all(one), err(EIO));
  EXPECT_OK(commit_all(one));
  EXPECT_ERROR(two.commit(two.handle("file")), err(EIO));
  EXPECT_ERROR(commit_all(two), err(EIO));
  EXPECT_OK(commit_all(two));
  EXPECT_OK(two.commit(two.handle("file")));
}

TEST_F(CommitsOfSessions, AFailureAtOneFileIsToldToAll) {
  Mount one(*server), two(*server, {.session = kOtherSession});
  fail_file = true;
  EXPECT_ERROR(one.commit(one.handle("file")), err(EIO));
  EXPECT_ERROR(two.commit(two.handle("file")), err(EIO));
  EXPECT_ERROR(commit_all(two), err(EIO));
}

TEST_F(CommitsOfSessions, WhoWasAwayAtAFailureLearnsIt) {
  Mount one(*server);
  std::uint64_t before = 0;
  {
    Mount away(*server, {.session = kOtherSession});
    before = away.attached().write_verifier();
    EXPECT_EQ(before, one.attached().write_verifier());
  }
  server->housekeep_after(1h);
  fail_all = true;
  EXPECT_ERROR(commit_all(one), err(EIO));
  EXPECT_EQ(EXPECT_OK(commit_all(one)).reply.write_verifier(), before) << "it has been told";
  Mount back(*server, {.session = kOtherSession});
  EXPECT_FALSE(back.attached().resumed());
  EXPECT_NE(back.attached().write_verifier(), before);
  EXPECT_OK(commit_all(back));
}

TEST_F(CommitsOfSessions, WhoComesBackUntoldLearnsIt) {
  Mount one(*server), two(*server, {.session = kOtherSession});
  const auto before = two.attached().write_verifier();
  fail_all = true;
  EXPECT_ERROR(commit_all(one), err(EIO));
  for (Mount* mount : {&one, &two}) {
    mount->reconnect();
    mount->attach();
    EXPECT_TRUE(mount->attached().resumed());
  }
  EXPECT_EQ(one.attached().write_verifier(), before) << "it has been told";
  EXPECT_NE(two.attached().write_verifier(), before);
  EXPECT_OK(commit_all(two));
}

TEST_F(CommitsOfSessions, TheVerifierOutlivesTheProcessOnTheSameMountOnly) {
  const std::uint64_t first = verifier();
  start();
  EXPECT_EQ(verifier(), first) << "killed";
  for (const auto& [word, to] : {std::pair(0, "s"), std::pair(1, "another-boot"), std::pair(2, "1-2"),
                                 std::pair(2, "unknown"), std::pair(3, "?")}) {
    const std::uint64_t before = verifier();
    server.reset();
    change_note(word, to);
    start();
    EXPECT_NE(verifier(), before) << word << ' ' << to;
    EXPECT_NE(verifier(), 0u);
  }
}

TEST_F(CommitsOfSessions, TheVerifierOutlivesACleanEndOnAnyMount) {
  Mount mount(*server);
  EXPECT_OK(mount.create(mount.root(), "new"));
  mount.disconnect();
  const std::uint64_t before = verifier();
  EXPECT_TRUE(server->service().drain(5s));
  EXPECT_TRUE(server->service().commit_everything(5s));
  server.reset();
  change_note(2, "1-2");
  start();
  EXPECT_EQ(verifier(), before);
}

TEST_F(CommitsOfSessions, ACleanEndWhoseDiskFailsIsNone) {
  Mount mount(*server);
  EXPECT_OK(mount.create(mount.root(), "new"));
  mount.disconnect();
  const std::uint64_t before = verifier();
  EXPECT_TRUE(server->service().drain(5s));
  fail_all = true;
  EXPECT_TRUE(server->service().commit_everything(5s));
  start();
  EXPECT_NE(verifier(), before);
}

TEST_F(CommitsOfSessions, AFailureIsKnownToTheNextProcess) {
  Mount one(*server);
  fail_all = true;
  EXPECT_ERROR(commit_all(one), err(EIO));
  const std::uint64_t before = one.attached().write_verifier();
  one.disconnect();
  start();
  EXPECT_NE(verifier(), before);
}

TEST_F(CommitsOfSessions, ServersBesideEachOtherHaveVerifiersOfTheirOwn) {
  Server beside(dir.path(), setup);
  EXPECT_NE(Mount(beside).attached().write_verifier(), verifier());
}

TEST_F(CommitsOfSessions, AReloadKeepsTheVerifier) {
  const std::uint64_t before = verifier();
  ExportSettings settings{.name = "data", .path = dir.path(), .access = Access::kReadWrite, .setuid = true};
  settings.clients = {client_key()};
  (void)server->service().replace_exports({Export::open(settings, test_secret()).value()});
  EXPECT_EQ(verifier(), before);
}

TEST(SyncOfFileSystems, FindsWhatIsMountedInside) {
  if (::geteuid() != 0 || ::unshare(CLONE_NEWNS) != 0)
    GTEST_SKIP() << "skipped, because only root mounts a file system";
  ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  TempDir dir;
  const auto films = dir / "export" / "My\tFilms \\ 1";
  std::filesystem::create_directories(films);
  std::filesystem::create_directory_symlink(dir / "export", dir / "link");
  ASSERT_EQ(::mount("none", films.c_str(), "tmpfs", 0, nullptr), 0);
  {
    const Fd root(::open((dir / "link").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const auto path = path_of(root);
    ASSERT_TRUE(path);
    const auto mounts = mount_points_beneath(*path);
    ASSERT_TRUE(mounts);
    std::vector<std::string> found;
    for (const MountPoint& mount : *mounts) found.push_back(mount.type + ' ' + mount.path);
    EXPECT_THAT(found, ElementsAre("tmpfs " + films.string()));
    EXPECT_TRUE(sync_file_systems(root));
  }
  EXPECT_EQ(::umount2(films.c_str(), MNT_DETACH), 0);
}

}  // namespace
}  // namespace tusk::server
