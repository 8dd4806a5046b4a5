// Handles: opaque, unforgeable, lasting; and the ways out of an export that must not be.
#include <sys/mount.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <map>
#include <thread>

#include "mount.h"

namespace tusk::server {
namespace {

TEST(Handles, AreStaleWhenForged) {
  TempDir dir;
  write_file(dir / "file", "x");
  Server server(dir.path());
  Mount mount(server);
  const std::string real = mount.handle("file");
  EXPECT_LE(real.size(), kHandleBytesMax);
  EXPECT_ERROR(mount.getattr(""), err(ESTALE));
  EXPECT_ERROR(mount.getattr("x"), err(ESTALE));
  EXPECT_ERROR(mount.getattr(std::string(kHandleBytesMax, '\0')), err(ESTALE));
  EXPECT_ERROR(mount.getattr(std::string(4096, 'h')), err(ESTALE));
  EXPECT_ERROR(mount.getattr(real.substr(0, real.size() - 1)), err(ESTALE));
  EXPECT_ERROR(mount.getattr(real + 'x'), err(ESTALE));
  for (std::size_t at = 0; at < real.size(); ++at) {
    std::string forged = real;
    forged[at] ^= 1;
    EXPECT_ERROR(mount.getattr(forged), err(ESTALE)) << "byte " << at;
  }
  EXPECT_OK(mount.getattr(real));
}

TEST(Handles, AreStaleInAnotherExportOfTheSameFiles) {
  TempDir dir;
  write_file(dir / "file", "x");
  Server server(dir.path());
  Server other(dir.path(), {.name = "other"});
  Mount mount(server);
  Mount elsewhere(other, {.export_name = "other"});
  EXPECT_ERROR(elsewhere.getattr(mount.handle("file")), err(ESTALE));
  EXPECT_ERROR(elsewhere.getattr(mount.root()), err(ESTALE));
}

TEST(Handles, AreStaleInAnotherDirectoryOfTheSameName) {
  TempDir dir;
  std::filesystem::create_directories(dir / "a");
  std::filesystem::create_directories(dir / "b");
  write_file(dir / "a/file", "x");
  Server before(dir / "a");
  Server after(dir / "b");
  Mount mount(before);
  Mount now(after);
  EXPECT_ERROR(now.getattr(mount.handle("file")), err(ESTALE));
}

TEST(Handles, AreStaleOnceMovedOutEvenIfInUseAllTheTime) {
  TempDir dir;
  TempDir outside;
  std::filesystem::create_directories(dir / "d/e");
  write_file(dir / "d/e/file", "x");
  write_file(dir / "d/e/linked", "x");
  std::filesystem::create_hard_link(dir / "d/e/linked", dir / "d/e/link");
  for (const bool by_handle : {true, false}) {
    ServerSetup setup;
    setup.table.recheck_after = 0s;
    setup.table.by_handle = by_handle;
    Server server(dir.path(), setup);
    Mount mount(server);
    const std::string d = mount.handle("d");
    const std::string e = mount.handle("d/e");
    const std::string file = mount.handle("d/e/file");
    EXPECT_OK(mount.getattr(d));
    std::filesystem::rename(dir / "d", outside / "d");
    EXPECT_ERROR(mount.getattr(d), err(ESTALE));
    EXPECT_ERROR(mount.lookup(e, "linked"), err(ESTALE));
    EXPECT_ERROR(mount.getattr(file), err(ESTALE));
    EXPECT_ERROR(mount.readdir(e), err(ESTALE));
    std::filesystem::rename(outside / "d", dir / "d");
    EXPECT_OK(mount.getattr(mount.handle("d/e/linked")));
  }
}

TEST(Handles, AreTheSameForAllLinksOfAFile) {
  TempDir dir;
  write_file(dir / "a", "x");
  std::filesystem::create_hard_link(dir / "a", dir / "b");
  Server server(dir.path());
  Mount mount(server);
  EXPECT_EQ(mount.handle("a"), mount.handle("b"));
  std::filesystem::remove(dir / "a");
  EXPECT_OK(mount.getattr(mount.handle("b")));
}

TEST(Handles, FollowAFileThroughRenames) {
  TempDir dir;
  std::filesystem::create_directories(dir / "d/e");
  write_file(dir / "d/e/file", "x");
  Server server(dir.path());
  Mount mount(server);
  const std::string file = mount.handle("d/e/file");
  EXPECT_OK(mount.rename(mount.handle("d"), "e", mount.root(), "moved"));
  server.housekeep_after(1h);  // no descriptor is left: the names have to lead there
  EXPECT_OK(mount.getattr(file));
  EXPECT_OK(mount.rename(mount.handle("moved"), "file", mount.root(), "file"));
  server.housekeep_after(1h);
  EXPECT_OK(mount.getattr(file));
}

TEST(Handles, FollowExchangedFiles) {
  TempDir dir;
  write_file(dir / "a", "a");
  write_file(dir / "b", "b");
  Server server(dir.path());
  Mount mount(server);
  const std::string a = mount.handle("a");
  const std::string b = mount.handle("b");
  constexpr unsigned kExchange = 2;
  EXPECT_OK(mount.rename(mount.root(), "a", mount.root(), "b", kExchange));
  server.housekeep_after(1h);
  EXPECT_EQ(mount.read(a, 0, 0, 9).text(), "a");
  EXPECT_EQ(mount.read(b, 0, 0, 9).text(), "b");
}

TEST(Handles, AreStaleOnceTheFileIsRemoved) {
  TempDir dir;
  write_file(dir / "file", "x");
  Server server(dir.path());
  Mount mount(server);
  const std::string file = mount.handle("file");
  std::filesystem::remove(dir / "file");
  write_file(dir / "file", "another");
  server.housekeep_after(1h);
  EXPECT_ERROR(mount.getattr(file), err(ESTALE));
  EXPECT_NE(mount.handle("file"), file);
}

TEST(Handles, WorkInAServerThatHasNeverSeenThem) {
  TempDir dir;
  std::filesystem::create_directories(dir / "d");
  write_file(dir / "d/file", "x");
  std::string file, directory;
  {
    Server server(dir.path());
    Mount mount(server);
    file = mount.handle("d/file");
    directory = mount.handle("d");
  }
  Server server(dir.path());
  if (!server.exported().nodes().opens_by_handle())
    GTEST_SKIP() << "needs root and a file system with handles";
  std::filesystem::rename(dir / "d", dir / "renamed");
  Mount mount(server);
  EXPECT_EQ(mount.read(file, 0, 0, 9).text(), "x");
  EXPECT_OK(mount.lookup(directory, "file"));
}

// Not root: names are all there is.
ServerSetup without_privilege(const TempDir& state) {
  return {.table = {.descriptors_max = 2, .by_handle = false, .names_dir = state / "names"}};
}

TEST(Handles, WithoutPrivilegeSurviveARestartByName) {
  TempDir dir;
  TempDir state;
  std::filesystem::create_directories(dir / "d/e");
  write_file(dir / "d/e/file", "x");
  write_file(dir / "d/e/moved", "y");
  std::string file, moved;
  for (int restart = 0; restart < 3; ++restart) {
    Server server(dir.path(), without_privilege(state));
    Mount mount(server);
    ASSERT_FALSE(server.exported().nodes().opens_by_handle());
    if (restart == 0) {
      file = mount.handle("d/e/file");
      moved = mount.handle("d/e/moved");
      EXPECT_OK(mount.rename(mount.handle("d/e"), "moved", mount.root(), "top"));
      EXPECT_OK(mount.rename(mount.handle("d"), "e", mount.root(), "f"));
    }
    EXPECT_EQ(mount.read(file, 0, 0, 9).text(), "x") << restart;
    EXPECT_EQ(mount.read(moved, 0, 0, 9).text(), "y") << restart;
  }
}

TEST(Handles, WithoutPrivilegeAreStaleWhenTheNameIsAnotherFiles) {
  TempDir dir;
  TempDir state;
  write_file(dir / "a", "a");
  write_file(dir / "b", "b");
  std::string a;
  {
    Server server(dir.path(), without_privilege(state));
    Mount mount(server);
    a = mount.handle("a");
  }
  std::filesystem::rename(dir / "b", dir / "a");
  Server server(dir.path(), without_privilege(state));
  Mount mount(server);
  EXPECT_ERROR(mount.getattr(a), err(ESTALE));
}

TEST(NameMemory, LeavesOutHalfARecord) {
  TempDir dir;
  {
    const auto memory = NameMemory::open(dir / "names/n", [](auto, auto, auto) {}).value();
    memory->remember("h1", "p1", "n1");
    memory->remember("h2", "p2", "n2");
  }
  std::filesystem::resize_file(dir / "names/n", std::filesystem::file_size(dir / "names/n") - 1);
  std::vector<std::string> seen;
  const auto memory =
      NameMemory::open(dir / "names/n", [&](std::string_view handle, auto, std::string_view name) {
        seen.push_back(std::string(handle) + std::string(name));
      }).value();
  EXPECT_EQ(seen, std::vector<std::string>{"h1n1"});
}

// The newest name of each handle, as a process that comes later reads it.
std::map<std::string, std::string> names_in(const std::filesystem::path& file) {
  std::map<std::string, std::string> names;
  (void)NameMemory::open(file, [&](std::string_view handle, auto, std::string_view name) {
    names[std::string(handle)] = name;
  }).value();
  return names;
}

// As a disk that has room for no more than that in one file.
class LittleRoom {
 public:
  explicit LittleRoom(std::uintmax_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    rlimit little = before_;
    little.rlim_cur = bytes;
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
  }
  ~LittleRoom() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0);
    ::signal(SIGXFSZ, handler_);
  }
  LittleRoom(const LittleRoom&) = delete;
  LittleRoom& operator=(const LittleRoom&) = delete;

 private:
  rlimit before_{};
  sighandler_t handler_;
};

constexpr TimePoint kSomeTime{1h};

std::unique_ptr<NameMemory> open_names(const std::filesystem::path& file, std::size_t bytes_max) {
  return NameMemory::open(
             file, [](auto, auto, auto) {}, bytes_max)
      .value();
}

TEST(NameMemory, AWriteThatFailsHalfWayLeavesNothingOfItselfAndIsDoneLater) {
  TempDir dir;
  const std::filesystem::path file = dir / "names/n";
  const auto memory = open_names(file, 1000);
  memory->remember("h1", "p", "n1");
  memory->flush(kSomeTime);
  const std::uintmax_t size = std::filesystem::file_size(file);
  {
    const LittleRoom full(size + 5);
    memory->remember("h2", "p", "n2");
    memory->flush(kSomeTime);
  }
  EXPECT_EQ(std::filesystem::file_size(file), size);
  EXPECT_TRUE(memory->pending());
  memory->remember("h3", "p", "n3");
  memory->flush(kSomeTime + 100ms);
  EXPECT_EQ(std::filesystem::file_size(file), size) << "the disk is not left alone for a while";
  memory->flush(kSomeTime + 2s);
  EXPECT_FALSE(memory->pending());
  EXPECT_EQ(names_in(file), (std::map<std::string, std::string>{{"h1", "n1"}, {"h2", "n2"}, {"h3", "n3"}}));
}

TEST(NameMemory, WritesBehindTheLastWholeRecordAlsoWhenItWasNotRewritten) {
  TempDir dir;
  const std::filesystem::path file = dir / "names/n";
  {
    const auto memory = open_names(file, 1000);
    memory->remember("h1", "p", "n1");
    memory->remember("h2", "p", "n2");
  }
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  open_names(file, 1000)->remember("h3", "p", "n3");
  EXPECT_EQ(names_in(file), (std::map<std::string, std::string>{{"h1", "n1"}, {"h3", "n3"}}));
}

TEST(NameMemory, IsRewrittenWheneverItIsFull) {
  TempDir dir;
  const std::filesystem::path file = dir / "names/n";
  const auto memory = open_names(file, 1000);
  for (int i = 0; i < 100; ++i) memory->remember("h", "p", "name" + std::to_string(i));
  EXPECT_TRUE(memory->worn(kSomeTime));
  EXPECT_TRUE(memory->pending());
  ASSERT_TRUE(
      memory->rewrite(kSomeTime, [](const NameMemory::Visitor& visit) { visit("h", "p", "name99"); }));
  EXPECT_FALSE(memory->worn(kSomeTime));
  memory->remember("h2", "p", "n2");
  memory->flush(kSomeTime);
  EXPECT_EQ(names_in(file), (std::map<std::string, std::string>{{"h", "name99"}, {"h2", "n2"}}));
}

TEST(NameMemory, WhatDoesNotFitIsWhatWasUsedLongestAgo) {
  TempDir dir;
  const std::filesystem::path file = dir / "names/n";
  const auto memory = open_names(file, 1000);
  ASSERT_TRUE(memory->rewrite(kSomeTime, [&](const NameMemory::Visitor& visit) {
    for (int i = 0; i < 100; ++i) visit("h" + std::to_string(i), "p", "name");
    for (int i = 0; i < 100; ++i) memory->remember("h" + std::to_string(i), "p", "new");
  }));
  memory->flush(kSomeTime);
  EXPECT_LE(std::filesystem::file_size(file), 1000u);
  std::vector<std::string> seen;
  (void)NameMemory::open(file, [&](std::string_view handle, auto, std::string_view name) {
    if (name == "name") seen.emplace_back(handle);
  }).value();
  ASSERT_GT(seen.size(), 30u);
  EXPECT_LT(seen.size(), 100u);
  EXPECT_EQ(seen.back(), "h0") << "the newest is the last";
  EXPECT_EQ(seen.front(), "h" + std::to_string(seen.size() - 1));
}

TEST(NameMemory, ARewriteThatFailsLeavesAllAsItWasAndIsTriedAgainLater) {
  TempDir dir;
  const std::filesystem::path file = dir / "names/n";
  std::map<std::string, std::string> all;
  {
    const auto memory = open_names(file, 1000);
    for (int i = 0; i < 20; ++i) memory->remember("first", "p", "name" + std::to_string(i));
    memory->flush(kSomeTime);
    memory->remember("waits", "p", "name");
    for (int i = 0; i < 100; ++i) memory->remember("h", "p", "name" + std::to_string(i));
    const auto visit_all = [&](const NameMemory::Visitor& visit) {
      visit("h", "p", "name99");
      visit("waits", "p", "name");
      visit("first", "p", "name19");
    };
    const std::uintmax_t size = std::filesystem::file_size(file);
    for (int i = 0; i < 3; ++i) {
      const LittleRoom full(20);
      EXPECT_FALSE(memory->rewrite(kSomeTime, [&](const NameMemory::Visitor& visit) {
        visit_all(visit);
        for (int k = 0; k < 100; ++k) memory->remember("meanwhile", "p", std::to_string(k));
      }));
      EXPECT_EQ(std::filesystem::file_size(file), size);
    }
    EXPECT_FALSE(memory->worn(kSomeTime));
    memory->flush(kSomeTime);
    EXPECT_LE(std::filesystem::file_size(file), 1000u);
    const auto names = names_in(file);
    EXPECT_EQ(names.at("first"), "name19");
    EXPECT_EQ(names.at("waits"), "name");
    EXPECT_TRUE(memory->worn(kSomeTime + 1min));
    ASSERT_TRUE(memory->rewrite(kSomeTime + 1min, visit_all));
    EXPECT_FALSE(memory->worn(kSomeTime + 1min));
    memory->remember("last", "p", "n");
  }
  EXPECT_EQ(names_in(file), (std::map<std::string, std::string>{
                                {"first", "name19"}, {"waits", "name"}, {"h", "name99"}, {"last", "n"}}));
}

TEST(NameMemory, AFileThatIsTooLongIsReadAsFarAsItMayBeAndShortened) {
  TempDir dir;
  const std::filesystem::path file = dir / "names/n";
  {
    const auto memory = open_names(file, 2000);
    for (int i = 0; i < 100; ++i) memory->remember("h" + std::to_string(i), "p", "name");
  }
  ASSERT_GT(std::filesystem::file_size(file), 1000u);
  std::size_t seen = 0;
  {
    const auto memory = NameMemory::open(
                            file, [&](auto, auto, auto) { ++seen; }, 1000)
                            .value();
    for (int i = 0; i < 5; ++i) memory->remember("h", "p", "name");
  }
  EXPECT_GT(seen, 50u);
  EXPECT_LE(std::filesystem::file_size(file), 1000u);
}

TEST(Handles, WithoutPrivilegeSurviveARestartAfterMoreRenamesThanTheMemoryHolds) {
  TempDir dir, state;
  const ServerSetup setup{
      .table = {.by_handle = false, .names_dir = state / "names", .names_bytes_max = 2000}};
  write_file(dir / "a", "");
  Server killed(dir.path(), setup);  // lives on, so that it does nothing at its end
  Mount mount(killed);
  const std::string file = mount.handle("a");
  for (int i = 0; i < 50; ++i) {
    EXPECT_OK(mount.rename(mount.root(), "a", mount.root(), "b"));
    EXPECT_OK(mount.rename(mount.root(), "b", mount.root(), "a"));
    if (i % 5 == 0) killed.housekeep_after(0s);
  }
  EXPECT_OK(mount.rename(mount.root(), "a", mount.root(), "last"));
  killed.housekeep_after(0s);
  Server next(dir.path(), setup);
  Mount again(next);
  EXPECT_OK(again.getattr(file));
}

TEST(Handles, NamesThatTheDiskRefusesAreKeptForLater) {
  TempDir dir, state;
  write_file(dir / "a", "");
  Server server(dir.path(), without_privilege(state));
  Mount mount(server);
  server.housekeep_after(0s);
  EXPECT_FALSE(server.exported().nodes().names_wait());
  {
    const LittleRoom full(1);
    EXPECT_NE(mount.handle("a"), "");
    server.housekeep_after(0s);
    EXPECT_TRUE(server.exported().nodes().names_wait());
  }
  for (int i = 0; i < 100 && server.exported().nodes().names_wait(); ++i) {
    std::this_thread::sleep_for(50ms);
    server.housekeep_after(0s);
  }
  EXPECT_FALSE(server.exported().nodes().names_wait());
}

TEST(NameMemory, IsBounded) {
  TempDir dir;
  const std::string long_name(60'000, 'n');
  {
    const auto memory = NameMemory::open(dir / "names/n", [](auto, auto, auto) {}).value();
    for (std::size_t i = 0; i < kNameMemoryBytesMax / long_name.size() + 10; ++i)
      memory->remember("h", "p", long_name);
  }
  EXPECT_LE(std::filesystem::file_size(dir / "names/n"), kNameMemoryBytesMax);
}

TEST(Handles, OfADirectoryMovedOutOfTheExportAreStale) {
  TempDir dir;
  std::filesystem::create_directories(dir / "export/d");
  std::string directory, file;
  write_file(dir / "export/file", "x");
  {
    Server server(dir / "export");
    Mount mount(server);
    directory = mount.handle("d");
    file = mount.handle("file");
  }
  std::filesystem::rename(dir / "export/d", dir / "outside");
  std::filesystem::rename(dir / "export/file", dir / "file-outside");
  Server server(dir / "export");
  Mount mount(server);
  EXPECT_ERROR(mount.getattr(directory), err(ESTALE));
  EXPECT_ERROR(mount.getattr(file), err(ESTALE));
}

TEST(Handles, AreFoundAgainWhenTheTableIsTiny) {
  TempDir dir;
  Server server(dir.path(), {.table = {.nodes_max = 64, .descriptors_max = 2}});
  for (int i = 0; i < 40; ++i) write_file(dir / ("f" + std::to_string(i)), std::to_string(i));
  Mount mount(server);
  std::vector<std::string> handles;
  for (int i = 0; i < 40; ++i) handles.push_back(mount.handle("f" + std::to_string(i)));
  EXPECT_LE(server.exported().nodes().descriptors(), 2u);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(mount.read(handles[i], 0, 0, 9).text(), std::to_string(i));
  for (int i = 40; i < 400; ++i) {
    write_file(dir / ("f" + std::to_string(i)), "");
    EXPECT_OK(mount.lookup(mount.root(), "f" + std::to_string(i)));
  }
  EXPECT_LE(server.exported().nodes().nodes(), 64u);
}

TEST(Handles, DoNotKeepTheSpaceOfFilesThatOthersRemove) {
  TempDir dir;
  write_file(dir / "file", "x");
  write_file(dir / "other", "y");
  Server server(dir.path());
  Mount mount(server);
  const std::string file = mount.handle("file"), other = mount.handle("other");
  const std::size_t held = server.exported().nodes().descriptors();
  std::filesystem::remove(dir / "file");
  server.housekeep_after(kRemovedIdleMax);
  EXPECT_EQ(server.exported().nodes().descriptors(), held - 1);
  EXPECT_ERROR(mount.getattr(file), err(ESTALE));
  EXPECT_OK(mount.getattr(other));
}

TEST(Names, AreCheckedInEveryOperation) {
  TempDir dir;
  write_file(dir / "file", "x");
  Server server(dir.path());
  Mount mount(server);
  const std::string& root = mount.root();
  struct Case {
    std::string name;
    int error;
  };
  const Case cases[] = {{"", EINVAL},
                        {".", EINVAL},
                        {"..", EINVAL},
                        {"a/b", EINVAL},
                        {"/etc", EINVAL},
                        {"../x", EINVAL},
                        {std::string("a\0b", 3), EINVAL},
                        {std::string(256, 'n'), ENAMETOOLONG}};
  for (const auto& [name, error] : cases) {
    SCOPED_TRACE(testing::PrintToString(name));
    EXPECT_ERROR(mount.lookup(root, name), err(error));
    EXPECT_ERROR(mount.create(root, name), err(error));
    EXPECT_ERROR(mount.make_directory(root, name), err(error));
    EXPECT_ERROR(mount.make_symlink(root, name, "target"), err(error));
    EXPECT_ERROR(mount.remove(root, name), err(error));
    EXPECT_ERROR(mount.rename(root, name, root, "x"), err(error));
    EXPECT_ERROR(mount.rename(root, "file", root, name), err(error));
    EXPECT_ERROR(mount.link(mount.handle("file"), root, name), err(error));
  }
}

TEST(Names, MayHaveAnyOtherBytes) {
  TempDir dir;
  Server server(dir.path());
  Mount mount(server);
  const std::string name = "\xff\n \t\x01...%s;$(x)";
  EXPECT_OK(mount.create(mount.root(), name));
  EXPECT_OK(mount.lookup(mount.root(), name));
  EXPECT_OK(mount.create(mount.root(), std::string(255, 'n')));
}

TEST(Escape, SymlinksAreDataWhereverTheyPoint) {
  TempDir dir;
  std::filesystem::create_directories(dir / "export");
  write_file(dir / "secret", "secret");
  std::filesystem::create_symlink("/etc", dir / "export/absolute");
  std::filesystem::create_symlink("..", dir / "export/up");
  std::filesystem::create_symlink("../secret", dir / "export/file");
  Server server(dir / "export");
  Mount mount(server);
  for (const char* name : {"absolute", "up", "file"}) {
    SCOPED_TRACE(name);
    const auto found = EXPECT_OK(mount.lookup(mount.root(), name)).reply.node().node();
    EXPECT_TRUE(S_ISLNK(found.attr().mode()));
    EXPECT_ERROR(mount.lookup(found.handle(), "passwd"), err(ENOTDIR));
    EXPECT_ERROR(mount.lookup(found.handle(), "secret"), err(ENOTDIR));
    EXPECT_ERROR(mount.readdir(found.handle()), err(ENOTDIR));
    EXPECT_ERROR(mount.create(found.handle(), "new"), err(ENOTDIR));
    EXPECT_ERROR(mount.open(found.handle()), err(ELOOP));
    EXPECT_ERROR(mount.read(found.handle(), 0, 0, 10), err(ELOOP));
    EXPECT_ERROR(mount.create(mount.root(), name, O_RDWR), err(ELOOP));
    EXPECT_ERROR(mount.create(mount.root(), name, O_RDWR | O_EXCL), err(EEXIST));
    schema::Request chmod;
    chmod.mutable_setattr()->set_handle(found.handle());
    chmod.mutable_setattr()->set_mode(0777);
    EXPECT_ERROR(mount.call(chmod), err(EOPNOTSUPP));
    schema::Request truncate;
    truncate.mutable_setattr()->set_handle(found.handle());
    truncate.mutable_setattr()->set_size(0);
    EXPECT_ERROR(mount.call(truncate), err(EINVAL));
  }
  EXPECT_EQ(read_file(dir / "secret"), "secret");
}

// A local program swaps a directory for a symlink to the outside, again and again, while a client walks
// through it: it sees the directory or a symlink, never what lies outside.
TEST(Escape, NoSwapDuringALookupLeadsOut) {
  TempDir dir;
  std::filesystem::create_directories(dir / "export/swapped");
  std::filesystem::create_directories(dir / "outside");
  write_file(dir / "export/swapped/file", "inside");
  write_file(dir / "outside/file", "OUTSIDE");
  std::filesystem::create_directory_symlink(dir / "outside", dir / "export/other");
  Server server(dir / "export", {.table = {.nodes_max = 8, .descriptors_max = 1}});
  Mount mount(server);
  std::atomic<bool> done{false};
  std::thread swapper([&] {
    const std::string a = dir / "export/swapped", b = dir / "export/other";
    while (!done) (void)::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
  });
  constexpr int kRounds = 2000;
  int inside = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::string directory = mount.lookup(mount.root(), "swapped").reply.node().node().handle();
    const Answer found = mount.lookup(directory, "file");
    if (found.error() != ErrorCode::kOk) continue;
    const Answer read = mount.read(found.reply.node().node().handle(), 0, 0, 100);
    if (read.error() == ErrorCode::kOk) {
      EXPECT_EQ(read.text(), "inside");
      ++inside;
    }
    const Answer created = mount.create(directory, "new" + std::to_string(round));
    EXPECT_THAT(created.error(), testing::AnyOf(ErrorCode::kOk, err(ENOTDIR), err(ESTALE)));
  }
  done = true;
  swapper.join();
  EXPECT_GT(inside, 0);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir / "outside"), {}), 1);
}

TEST(Escape, MountsInsideTheExportAreCrossedAndHaveInodesOfTheirOwn) {
  TempDir dir;
  std::filesystem::create_directories(dir / "mounted here");
  if (::mount("tusk-test", (dir / "mounted here").c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "may not mount here";
  {
    write_file(dir / "mounted here/file", "on tmpfs");
    std::string file;
    {
      Server server(dir.path());
      Mount mount(server);
      file = mount.handle("mounted here/file");
      EXPECT_EQ(mount.read(file, 0, 0, 100).text(), "on tmpfs");
      EXPECT_NE(mount.getattr(file).reply.attr().attr().ino() >> 63, 0u);
      EXPECT_ERROR(mount.link(file, mount.root(), "elsewhere"), err(EXDEV));
    }
    Server server(dir.path());
    Mount mount(server);
    EXPECT_EQ(mount.read(file, 0, 0, 100).text(), "on tmpfs");
  }
  EXPECT_EQ(::umount((dir / "mounted here").c_str()), 0);
}

}  // namespace
}  // namespace tusk::server
