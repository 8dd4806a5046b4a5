// The small parts: inode table, identities, options, tables, sockets.
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <fstream>
#include <future>
#include <thread>

#include "client.h"
#include "fsclient/inode_table.h"
#include "fsclient/known_paths.h"
#include "fsclient/known_servers.h"
#include "fsclient/mount.h"
#include "fsclient/mount_settings.h"
#include "fsclient/mount_table.h"
#include "fsclient/status.h"

namespace tusk::client {
namespace {

class Directory {
 public:
  Directory() {
    std::string name = "/tmp/tusk-unit-XXXXXX";
    path = ::mkdtemp(name.data());
  }
  ~Directory() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

// ---------------------------------------------------------------- inode table

TEST(InodeTable, OneInodeForOneHandle) {
  InodeTable table("root");
  EXPECT_EQ(table.root()->id, kRootNode);
  const auto a = table.intern("a");
  EXPECT_EQ(table.intern("a"), a);
  EXPECT_NE(table.intern("b")->id, a->id);
}

TEST(InodeTable, NodeIdsAreNotUsedAgain) {
  InodeTable table("root");
  const NodeId first = table.intern("a")->id;  // gone at once
  EXPECT_EQ(table.find("a"), nullptr);
  EXPECT_GT(table.intern("a")->id, first);
}

TEST(InodeTable, LivesUntilTheKernelHasForgottenAllOfIt) {
  InodeTable table("root");
  NodeId id;
  {
    const auto inode = table.intern("a");
    id = inode->id;
    table.remember(inode);
    table.remember(inode);
  }
  table.forget(id, 1);
  EXPECT_NE(table.find(id), nullptr);
  table.forget(id, 1);
  EXPECT_EQ(table.find(id), nullptr);
  EXPECT_EQ(table.find("a"), nullptr);
}

TEST(InodeTable, AnOpenFileOutlivesTheKernelsReferences) {
  InodeTable table("root");
  const auto inode = table.intern("a");
  table.remember(inode);
  table.forget(inode->id, 1);
  EXPECT_EQ(table.find(inode->id), nullptr);
  EXPECT_EQ(table.intern("a"), inode);  // the same file, so the same data
}

TEST(InodeTable, TheRootStays) {
  InodeTable table("root");
  table.forget(kRootNode, 100);
  EXPECT_NE(table.find(kRootNode), nullptr);
}

// ---------------------------------------------------------------- identities

Attributes owned_by(std::uint32_t uid, std::uint32_t gid) {
  Attributes attr;
  attr.uid = uid;
  attr.gid = gid;
  attr.mode = S_IFREG | 0666;
  return attr;
}

TEST(IdentityMap, RealNumbersPass) {
  const IdentityMap map = IdentityMap::real();
  EXPECT_EQ(map.to_local(owned_by(7, 8)).uid, 7u);
  EXPECT_EQ(**map.uid_to_server(7), 7u);
}

TEST(IdentityMap, TheServersUserIsTheMountingUser) {
  const IdentityMap map =
      IdentityMap::as_user({.server_uid = 1000, .server_gid = 1000, .uid = 500, .gid = 600});
  EXPECT_EQ(map.to_local(owned_by(1000, 1000)).uid, 500u);
  EXPECT_EQ(map.to_local(owned_by(1000, 1000)).gid, 600u);
  EXPECT_EQ(map.to_local(owned_by(500, 600)).uid, IdentityMap::kNobody);  // another person's number
  EXPECT_EQ(map.to_local(owned_by(0, 0)).uid, 0u);
  EXPECT_EQ(*map.uid_to_server(500), std::nullopt);
  EXPECT_EQ(map.uid_to_server(501).error().code, from_errno(EPERM));
  EXPECT_EQ(map.gid_to_server(1).error().code, from_errno(EPERM));
}

TEST(IdentityMap, AServerActingAsRootGivesUsEverything) {
  const IdentityMap map = IdentityMap::as_user({.server_uid = 0, .server_gid = 0, .uid = 500, .gid = 600});
  EXPECT_EQ(map.to_local(owned_by(1234, 99)).uid, 500u);
}

TEST(IdentityMap, UmaskHidesBits) {
  EXPECT_EQ(IdentityMap::real(027).to_local(owned_by(0, 0)).mode & 07777, 0640u);
}

// ---------------------------------------------------------------- options

TEST(MountSettings, Options) {
  MountSettings settings;
  ASSERT_TRUE(
      apply_options("ro,allow_other,identity=user,uid=12,umask=022,cache-mem=64M,attr_timeout=2.5,"
                    "outage=fail:30,nosuid,_netdev,x-systemd.automount,,nofail",
                    settings));
  EXPECT_TRUE(settings.read_only);
  EXPECT_TRUE(settings.allow_other);
  EXPECT_EQ(settings.identity, IdentityWish::kUser);
  EXPECT_EQ(settings.uid, 12u);
  EXPECT_EQ(settings.umask, 022u);
  EXPECT_EQ(settings.cache_bytes, 64 * kMiB);
  EXPECT_EQ(settings.attr_timeout, std::chrono::milliseconds(2500));
  EXPECT_EQ(settings.outage.fail_after, std::chrono::seconds(30));
  EXPECT_EQ(settings.kernel_options, std::vector<std::string>{"nosuid"});
}

TEST(MountSettings, MistakesAreNamed) {
  for (const auto& [list, hint] : std::vector<std::pair<std::string, std::string>>{
           {"cache_men=1G", "cache_mem"},
           {"quux", "--help"},
           {"ro=1", "no value"},
           {"umask", "OCTAL"},
           {"umask=9", "umask"},
           {"cache_mem=lots", "size"},
           {"cache_mem=1M", "at least"},
           {"identity=root", "auto, real or user"},
           {"outage=perhaps", "wait or fail"},
           {"attr_timeout=-1", "seconds"},
           {"umask=1777", "octal"},
           {"connect_timeout=0", "at least"},
           {"gid=nobody-called-this", "no group"},
           {"uid=nobody-called-this", "no user"},
       }) {
    MountSettings settings;
    const Result<void> applied = apply_options(list, settings);
    ASSERT_FALSE(applied) << list;
    EXPECT_EQ(applied.error().code, ErrorCode::kBadConfig);
    EXPECT_THAT(applied.error().context, testing::HasSubstr(hint)) << list;
  }
}

TEST(MountSettings, NormalPriorityUnlessTold) {
  MountSettings settings;
  EXPECT_FALSE(settings.background);
  ASSERT_TRUE(apply_options("background", settings));
  EXPECT_TRUE(settings.background);
}

TEST(MountSettings, OneConnectionUnlessTold) {
  MountSettings settings;
  EXPECT_EQ(settings.connections, 1u);
  ASSERT_TRUE(apply_options("connections=8", settings));
  EXPECT_EQ(settings.connections, 8u);
  for (const char* list : {"connections=0", "connections=9", "connections", "connections=many"})
    EXPECT_FALSE(apply_options(list, settings)) << list;
  ASSERT_TRUE(check_options(settings));
  settings.background = true;
  EXPECT_FALSE(check_options(settings));
  ASSERT_TRUE(apply_options("connections=auto", settings));
  EXPECT_EQ(settings.connections, 0u);
  EXPECT_TRUE(check_options(settings));
}

TEST(MountSettings, FilesAreNotBothAsTheyAreAndOneUsers) {
  MountSettings settings;
  ASSERT_TRUE(apply_options("identity=real", settings));
  ASSERT_TRUE(check_options(settings));
  settings.uid = 1;
  EXPECT_FALSE(check_options(settings));
  ASSERT_TRUE(apply_options("identity=user", settings));
  EXPECT_TRUE(check_options(settings));
}

TEST(MountSettings, Sizes) {
  EXPECT_EQ(*parse_size("300000"), 300'000u);
  EXPECT_EQ(*parse_size("64M"), 64 * kMiB);
  EXPECT_EQ(*parse_size("1GiB"), 1024 * kMiB);
  EXPECT_EQ(*parse_size("2gb"), 2048 * kMiB);
  for (const char* bad : {"", "M", "12X", "1MM", "-1", "99999999999999T", "1.5G"})
    EXPECT_FALSE(parse_size(bad)) << bad;
}

// ---------------------------------------------------------------- the mount table

TEST(MountTable, IsParsed) {
  const auto table = parse_mount_table(
      "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
      "52 22 0:41 / /mnt/a\\040b rw,nosuid - fuse.tusk tusk://h:1/x rw,user_id=0\n"
      "nonsense\n"
      "53 22 0:42 / /short - fuse\n");
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table[1].mountpoint, "/mnt/a b");
  EXPECT_EQ(table[1].device, "0:41");
  EXPECT_EQ(table[1].type, kFilesystemType);
  EXPECT_EQ(table[1].source, "tusk://h:1/x");
}

TEST(MountTable, KnowsWhatIsMountedHere) {
  EXPECT_TRUE(mounted_at("/proc"));
  EXPECT_FALSE(mounted_at("/proc/self"));
}

TEST(MountTable, TheLastComponentIsNotTouched) {
  EXPECT_EQ(resolve_mountpoint("/proc/../proc/nothing/"), "/proc/nothing");
  EXPECT_EQ(resolve_mountpoint("/"), "/");
}

TEST(MountTable, ASymbolicLinkLeadsToTheMount) {
  const Directory directory;
  std::filesystem::create_directory_symlink("/proc", directory.path / "absolute");
  std::filesystem::create_directory_symlink("absolute/../proc", directory.path / "relative");
  std::filesystem::create_directory_symlink("turns", directory.path / "turns");
  std::filesystem::create_directory_symlink("gone", directory.path / "broken");
  EXPECT_EQ(resolve_mountpoint(directory.path / "absolute"), "/proc");
  EXPECT_EQ(resolve_mountpoint(directory.path / "relative"), directory.path / "proc");
  EXPECT_EQ(resolve_mountpoint(directory.path / "turns"), directory.path / "turns");
  EXPECT_EQ(resolve_mountpoint(directory.path / "broken"), directory.path / "gone");
}

TEST(Mount, IsNotMadeOnTheRoot) { EXPECT_FALSE(Mount::check("/")); }

// ---------------------------------------------------------------- known servers

TEST(KnownServers, RemembersAndReplaces) {
  const Directory directory;
  const KnownServers known(directory.path / "known_servers");
  EXPECT_EQ(*known.find("a:1"), std::nullopt);
  crypto::Fingerprint one, two;
  one.bytes.fill(std::byte{1});
  two.bytes.fill(std::byte{2});
  ASSERT_TRUE(known.remember("a:1", one));
  ASSERT_TRUE(known.remember("b:1", two));
  ASSERT_TRUE(known.remember("a:1", two));
  EXPECT_EQ(*known.find("a:1"), two);
  EXPECT_EQ(*known.find("b:1"), two);
  struct stat st {};
  ASSERT_EQ(::stat(known.file().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
}

TEST(KnownServers, MountsThatRememberAtTheSameTimeLoseNothing) {
  const Directory directory;
  const KnownServers known(directory.path / "k");
  const auto remember = [&](char name) {
    crypto::Fingerprint key;
    key.bytes.fill(static_cast<std::byte>(name));
    for (int i = 0; i < 5; ++i)
      EXPECT_TRUE(known.remember(std::string(1, name) + ":" + std::to_string(i), key));
  };
  // As processes: the file that is made anew is named by them.
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  remember(child == 0 ? 'a' : 'b');
  if (child == 0) ::_exit(testing::Test::HasFailure() ? 1 : 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (const char* name : {"a:", "b:"})
    for (int i = 0; i < 5; ++i) EXPECT_NE(*known.find(name + std::to_string(i)), std::nullopt) << name << i;
}

TEST(KnownServers, WhatSomebodyWroteBehindAKeyDoesNotMatter) {
  const Directory directory;
  crypto::Fingerprint key;
  key.bytes.fill(std::byte{1});
  for (const char* behind : {" ", "\r", " # the old one", "\t"}) {
    std::ofstream(directory.path / "k") << "a:1\t" << key.to_text() << behind << "\n";
    const KnownServers known(directory.path / "k");
    EXPECT_EQ(*known.find("a:1"), key) << behind;
    ASSERT_TRUE(known.remember("a:1", key));
    std::ifstream file(directory.path / "k");
    EXPECT_EQ(std::count(std::istreambuf_iterator<char>(file), {}, '\n'), 1);
  }
}

TEST(KnownServers, ADamagedLineIsNamed) {
  const Directory directory;
  std::ofstream(directory.path / "k") << "# comment\na:1 rubbish\n";
  const auto found = KnownServers(directory.path / "k").find("a:1");
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().context, testing::HasSubstr("line 2"));
}

// ---------------------------------------------------------------- known paths

rpc::PathStats path_of(Duration rtt, double sent, double received, ByteCount moved) {
  rpc::PathStats path;
  path.rtt_min = rtt;
  path.send_bandwidth = sent;
  path.receive_best = received;
  path.bytes_sent = sent > 0 ? moved : 0;
  path.bytes_received = received > 0 ? moved : 0;
  return path;
}

TEST(KnownPaths, RemembersBothWaysOfAPathThatWasUsed) {
  const Directory directory;
  const KnownPaths paths(directory.path / "known_paths");
  EXPECT_EQ(paths.find("a:1"), std::nullopt);
  ASSERT_TRUE(paths.remember("a:1", path_of(200ms, 1e6, 2e8, KnownPaths::kMovedMin)));
  ASSERT_TRUE(paths.remember("b:1", path_of(20ms, 3e6, 0, KnownPaths::kMovedMin)));
  const auto found = paths.find("a:1");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->round_trip, 200ms);
  EXPECT_EQ(found->sent, 1e6);
  EXPECT_EQ(found->received, 2e8);
  EXPECT_EQ(paths.find("b:1")->received, 0);
}

TEST(KnownPaths, AWayThatWasHardlyUsedKeepsWhatWasKnown) {
  const Directory directory;
  const KnownPaths paths(directory.path / "known_paths");
  ASSERT_TRUE(paths.remember("a:1", path_of(200ms, 1e6, 2e8, KnownPaths::kMovedMin)));
  ASSERT_TRUE(paths.remember("a:1", path_of(201ms, 1e3, 1e3, KnownPaths::kMovedMin - 1)));
  EXPECT_EQ(paths.find("a:1")->received, 2e8);
  ASSERT_TRUE(paths.remember("a:1", path_of(201ms, 0, 1e8, KnownPaths::kMovedMin)));
  EXPECT_EQ(paths.find("a:1")->sent, 1e6);
  EXPECT_EQ(paths.find("a:1")->received, 1e8);
}

TEST(KnownPaths, APathOfAnotherLengthIsAnotherPath) {
  const Directory directory;
  const KnownPaths paths(directory.path / "known_paths");
  ASSERT_TRUE(paths.remember("a:1", path_of(200ms, 1e6, 2e8, KnownPaths::kMovedMin)));
  ASSERT_TRUE(paths.remember("a:1", path_of(20ms, 0, 1e8, KnownPaths::kMovedMin)));
  EXPECT_EQ(paths.find("a:1")->sent, 0);
  EXPECT_EQ(paths.find("a:1")->round_trip, 20ms);
}

TEST(KnownPaths, WhatIsDamagedIsUnknown) {
  const Directory directory;
  for (const char* words : {"", "1", "200000 rubbish 3", "200000 -1 3", "nan 1 2", "1 1e300 2"}) {
    std::ofstream(directory.path / "p") << "a:1 " << words << "\n";
    EXPECT_EQ(KnownPaths(directory.path / "p").find("a:1"), std::nullopt) << words;
  }
}

// ---------------------------------------------------------------- status

class Status : public Client {};

TEST_F(Status, HasItsKeys) {
  const Handle file = create("a");
  write(file, 0, "12345");
  const MountFacts facts{.version = "1", .mountpoint = "/mnt/x", .server = "tusk://h/x"};
  const std::string json = status_json(facts, {}, *filesystem, scheduler.now());
  for (const char* key : {"\"version\"", "\"mountpoint\"", "\"server\"", "\"connected\"", "\"path\"",
                          "\"rtt_s\"", "\"read_bytes\"", "\"written_bytes\"", "\"pending_bytes\":5",
                          "\"last_error\"", "\"cache_used_bytes\""})
    EXPECT_THAT(json, testing::HasSubstr(key));
  const auto text = status_text(json);
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, testing::HasSubstr("/mnt/x"));
  EXPECT_FALSE(status_text("{}"));
  settle();
}

class Control : public testing::Test {
 protected:
  Control() { ::chmod(directory.path.c_str(), 0700); }

  auto serve(const std::string& mountpoint, ControlServer::Handlers handlers) {
    return ControlServer::start(mountpoint, std::move(handlers), directory.path);
  }
  auto serve_saying(const std::string& status) {
    ControlServer::Handlers handlers;
    handlers.status = [status] { return status; };
    return serve("/mnt/m", std::move(handlers));
  }
  [[nodiscard]] auto socket() const { return control_socket("/mnt/m", directory.path); }
  // What the daemon of /mnt/m says.
  std::string ask() {
    std::string answer;
    EXPECT_TRUE(control(socket().value(), "status", [&](std::string_view line) { answer += line; }));
    return answer;
  }

  const Directory directory;
};

TEST_F(Control, AnswersOnItsSocket) {
  std::promise<Done<void>> flush_asked;
  bool dropped = false;
  auto server = serve("/mnt/m", {.status = [] { return std::string("{}"); },
                                 .pending = [] { return ByteCount{7}; },
                                 .path = [] { return rpc::ChannelStats{{.connected = false}}; },
                                 .flush = [&](Done<void> done) { flush_asked.set_value(std::move(done)); },
                                 .untold =
                                     [] {
                                       return UntoldFailures::Value{2, "write to '\xff'"};
                                     },
                                 .drop = [&] { dropped = true; }});
  ASSERT_TRUE(server);
  const std::filesystem::path path = socket().value();
  EXPECT_EQ(ask(), "{}");
  EXPECT_EQ(daemon_at(path).value(), ::getpid());
  std::vector<std::string> lines;
  const auto gather = [&](std::string_view line) { lines.emplace_back(line); };
  auto flushing = std::async(std::launch::async, [&] { return control(path, "flush", gather).has_value(); });
  flush_asked.get_future().get()({});
  EXPECT_TRUE(flushing.get());
  EXPECT_EQ(lines.back(), R"({"pending_bytes":0,"flushed":true,"untold":2,"untold_last":"write to ')"
                          "\xef\xbf\xbd"
                          R"('"})");
  lines.clear();
  ASSERT_TRUE(control(path, "drop", gather));
  EXPECT_EQ(lines, std::vector<std::string>{"{\"lost_bytes\": 7}"});
  ASSERT_TRUE(control(path, "nonsense", gather));
  server->reset();
  EXPECT_TRUE(dropped);
  EXPECT_FALSE(socket());
  EXPECT_EQ(control(path, "status", gather).error().code, ErrorCode::kUnreachable);
}

TEST_F(Control, AFlushTellsWhatItWaitsFor) {
  std::promise<Done<void>> flush_asked;
  auto server = serve("/mnt/m", {.status = {},
                                 .pending = [] { return ByteCount{7}; },
                                 .path =
                                     [] {
                                       rpc::ChannelStats path;
                                       path.silent = std::chrono::seconds(3);
                                       return path;
                                     },
                                 .flush = [&](Done<void> done) { flush_asked.set_value(std::move(done)); },
                                 .untold =
                                     [] {
                                       return UntoldFailures::Value{0, "told since"};
                                     },
                                 .drop = {}});
  ASSERT_TRUE(server);
  std::vector<std::string> lines;
  ASSERT_TRUE(control(socket().value(), "flush", [&](std::string_view line) {
    lines.emplace_back(line);
    if (lines.size() == 1) flush_asked.get_future().get()({});
  }));
  EXPECT_EQ(lines.front(), R"({"pending_bytes":7,"uncommitted":0,"connected":false,"silent":true})");
  EXPECT_THAT(lines.back(), testing::HasSubstr(R"("untold":0,"untold_last":"")"));
}

TEST_F(Control, AFlushThatIsDoneIsToldToItsEndThoughTheDaemonEnds) {
  std::promise<Done<void>> flush_asked;
  auto server = serve("/mnt/m", {.status = {},
                                 .pending = [] { return ByteCount{7}; },
                                 .path = [] { return rpc::ChannelStats{{.connected = true}}; },
                                 .flush = [&](Done<void> done) { flush_asked.set_value(std::move(done)); },
                                 .untold =
                                     [] {
                                       return UntoldFailures::Value{1, "lost"};
                                     },
                                 .drop = {}});
  ASSERT_TRUE(server);
  std::string last;
  auto flushing = std::async(std::launch::async, [&, path = socket().value()] {
    return control(path, "flush", [&](std::string_view line) { last = line; }).has_value();
  });
  Done<void> done = flush_asked.get_future().get();
  done({});
  server->reset();
  EXPECT_TRUE(flushing.get());
  EXPECT_THAT(last, testing::HasSubstr(R"("untold_last":"lost")"));
}

// What this process says meanwhile.
class Log final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  [[nodiscard]] bool wait_for(std::string_view text) {
    std::unique_lock lock(mutex_);
    return came_.wait_for(lock, std::chrono::seconds(30),
                          [&] { return all_.find(text) != std::string::npos; });
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    all_.append(message.payload.data(), message.payload.size());
    came_.notify_all();
  }
  void flush_() override {}

  std::condition_variable_any came_;
  std::string all_;
};

TEST_F(Control, ADaemonThatHadNoDescriptorLeftAnswersOnceItHas) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "skipped, because the sanitizer looks at memory by descriptors of its own";
#endif
  const auto log = std::make_shared<Log>();
  spdlog::default_logger()->sinks().push_back(log);
  const auto server = serve_saying("here");
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  socket()->string().copy(address.sun_path, sizeof address.sun_path - 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);  // the lowest that was free
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = static_cast<rlim_t>(fd) + 1, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const bool met = log->wait_for("commands wait");
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(met);
  ::close(fd);
  EXPECT_EQ(ask(), "here");
  spdlog::default_logger()->sinks().pop_back();
}

TEST_F(Control, ADaemonThatEndsLateLeavesTheNewOneItsSocket) {
  auto early = serve_saying("early");
  auto late = serve_saying("late");
  EXPECT_EQ(ask(), "late");
  EXPECT_EQ(control_sockets(directory.path).size(), 2u);
  early->reset();
  EXPECT_EQ(ask(), "late");
}

TEST_F(Control, WhatWasNeverFinishedIsRemovedUnlessItIsJustBeingMade) {
  const timespec old[2] = {{.tv_sec = ::time(nullptr) - 120, .tv_nsec = 0},
                           {.tv_sec = ::time(nullptr) - 120, .tv_nsec = 0}};
  for (const char* const name : {"m-1.sock.new", "session-A.new", "session-B.new", "session-C"})
    std::ofstream(directory.path / name) << "x";
  for (const char* const name : {"m-1.sock.new", "session-A.new", "session-C"})
    ASSERT_EQ(::utimensat(AT_FDCWD, (directory.path / name).c_str(), old, 0), 0);
  const auto server = serve_saying("here");
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path))
    if (entry.path().extension() != ".sock") left.push_back(entry.path().filename());
  EXPECT_THAT(left, testing::UnorderedElementsAre("session-B.new", "session-C"));
}

TEST_F(Control, TheSocketsOfTheDeadAreRemovedAndThoseOfTheLivingAreNot) {
  const auto other = serve("/mnt/other", {});
  const auto dead = directory.path / "dead.sock";
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  dead.string().copy(address.sun_path, sizeof address.sun_path - 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ::close(fd);
  const auto server = serve_saying("alive");
  EXPECT_FALSE(std::filesystem::exists(dead));
  EXPECT_TRUE(control_socket("/mnt/other", directory.path));
  EXPECT_EQ(ask(), "alive");
}

TEST_F(Control, ADirectoryOthersCanReadIsRefused) {
  ASSERT_EQ(::chmod(directory.path.c_str(), 0755), 0);
  EXPECT_FALSE(serve("/mnt/m", {}));
}

TEST(ThreadScheduler, RunsTasksTimersAndNotifications) {
  ThreadScheduler scheduler;
  std::promise<void> task, timer, notification;
  const TimePoint begun = scheduler.now();
  scheduler.post_after(std::chrono::milliseconds(5), [&] { timer.set_value(); });
  scheduler.post([&] { task.set_value(); });
  scheduler.post_notification([&] { notification.set_value(); });
  task.get_future().get();
  notification.get_future().get();
  timer.get_future().get();
  EXPECT_GE(scheduler.now() - begun, std::chrono::milliseconds(5));
}

// ---------------------------------------------------------------- CachedAttributes

TEST(CachedAttributes, AreNotReplacedByAnOlderAnswerThatCameLaterEvenIfTheyCountForNothing) {
  const TimePoint start{std::chrono::hours(1)};
  const auto at = [start](int ms) { return start + std::chrono::milliseconds(ms); };
  CachedAttributes cached;
  Attributes attr;
  attr.mode = S_IFREG;
  attr.ctime = {.tv_sec = 2, .tv_nsec = 0};
  attr.size = 5;
  cached.expire(at(2));
  EXPECT_TRUE(cached.accept(attr, at(1), at(4)));
  EXPECT_FALSE(cached.learnt().ever());
  attr.ctime = {.tv_sec = 1, .tv_nsec = 0};
  attr.size = 0;
  EXPECT_FALSE(cached.accept(attr, at(3), at(5)));
  EXPECT_EQ(cached.value().size, 5u);
}

TEST(CachedAttributes, AreNotReplacedByWhatWasAskedBeforeTheyExpiredAndLooksAsNew) {
  const TimePoint start{std::chrono::hours(1)};
  const auto at = [start](int ms) { return start + std::chrono::milliseconds(ms); };
  const auto asked = [&](int ms) {
    Told told(at(ms));
    told.lease = 1;
    told.cover = schema::COVER_LEASE;
    return told;
  };
  CachedAttributes cached;
  Attributes before;
  before.mode = S_IFREG | 0644;
  before.ctime = {.tv_sec = 2, .tv_nsec = 0};
  Attributes after = before;
  after.mode = S_IFREG | 0604;  // within the same tick of the server's clock
  cached.expire(at(2));
  EXPECT_TRUE(cached.accept(after, asked(3), at(4)));
  EXPECT_FALSE(cached.accept(before, asked(1), at(5)));
  EXPECT_EQ(cached.value().mode, after.mode);
  // A write of this mount's own that was answered later.
  Attributes grown = after;
  grown.size = 1;
  EXPECT_TRUE(cached.accept(grown, asked(1), at(6)));
  EXPECT_EQ(cached.value().size, 1u);
}

}  // namespace
}  // namespace tusk::client
