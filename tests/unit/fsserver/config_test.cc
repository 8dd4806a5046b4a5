// The configuration file, the state directory and the command line's words.
#include "fsserver/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <set>
#include <thread>

#include "fsserver/cli.h"
#include "fsserver/located.h"
#include "fsserver/state_file.h"
#include "fsserver/status_file.h"
#include "mount.h"
#include "proto/crypto/base64url.h"
#include "proto/crypto/identity.h"
#include "proto/io/udp_socket.h"

namespace tusk::server {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

std::string complaints_about(std::string_view text) {
  const auto config = parse_config(text);
  return config ? "" : to_text(config.error(), "f");
}

TEST(Config, ReadsEverything) {
  const std::string key = client_key().to_text();
  const auto config = parse_config(R"(
state_dir = "/var/lib/other"
listen = ["192.0.2.1:1234", "[::1]:8875"]
[limits]
workers = 4
mounts = 10
connections = 20
reply_memory_mib = 32
request_memory_mib = 64
attr_lifetime_ms = 0
session_keep_s = 60
[[export]]
name = "data"
path = "/srv/data"
access = "rw"
clients = [")" + key + R"("]
as = "nobody"
[[export]]
name = "films"
path = "/srv/films"
)");
  ASSERT_TRUE(config.has_value()) << to_text(config.error(), "f");
  EXPECT_EQ(config->state_dir, "/var/lib/other");
  ASSERT_EQ(config->listen.size(), 2u);
  EXPECT_EQ(config->listen[0].to_string(), "192.0.2.1:1234");
  EXPECT_EQ(config->limits.workers, 4u);
  EXPECT_EQ(config->limits.mounts, 10u);
  EXPECT_EQ(config->limits.connections, 20u);
  EXPECT_EQ(config->limits.reply_memory_bytes, 32u << 20);
  EXPECT_EQ(config->limits.request_memory_bytes, 64u << 20);
  EXPECT_EQ(config->limits.attr_lifetime_ms, 0u);
  EXPECT_EQ(config->limits.session_keep.count(), 60);
  ASSERT_EQ(config->exports.size(), 2u);
  EXPECT_EQ(config->exports[0].access, Access::kReadWrite);
  EXPECT_EQ(config->exports[0].act_as, "nobody");
  EXPECT_EQ(config->exports[0].clients, std::vector{client_key()});
  EXPECT_EQ(config->exports[1].access, Access::kReadOnly);
}

TEST(Config, NamesTheLineOfEveryMistake) {
  const std::string text = complaints_about(R"(state_dir = "relative"
listen = ["nonsense"]
colour = "red"
[limits]
workers = 1
wrokers = 3
[[export]]
name = "a/b"
path = "relative"
access = "maybe"
clients = ["short"]
[[export]]
path = "/x"
[[export]]
name = "x"
path = "/x"
[[export]]
name = "x"
path = 7
)");
  for (const char* expected :
       {"f:1: 'state_dir' must begin", "f:2: 'nonsense' is not an address",
        "f:3: there is no setting 'colour'", "f:5: [limits]: 'workers' must be a whole number from 2",
        "f:6: [limits]: there is no setting 'wrokers'", "f:8: [[export]]: an export's name has no '/'",
        "f:9: [[export]]: 'path' must begin", "f:10: [[export]]: 'access' must be",
        "f:11: [[export]]: 'short' is not a client's fingerprint", "f:12: [[export]]: 'name' is missing",
        "f:18: [[export]]: a second export named 'x'", "f:19: [[export]]: 'path' must be text"})
    EXPECT_THAT(text, HasSubstr(expected));
}

TEST(Config, SaysWhereTheTomlIsBroken) {
  EXPECT_THAT(complaints_about("a = 1\nb = = 2\n"), HasSubstr("f:2: "));
  EXPECT_THAT(complaints_about("state_dir = \"/x\nlisten = []"),
              HasSubstr("f:1: this is not TOML; is a quote,"));
  EXPECT_EQ(complaints_about("export = 3"), "f:1: each 'export' begins with [[export]]");
  EXPECT_THAT(complaints_about("[[export]]\nname=\"x\"\npath=\"/x\"\nclients=\"no list\""),
              HasSubstr("must be a list"));
  EXPECT_THAT(complaints_about("limits = 3\n[[export]]\nname=\"x\"\npath=\"/x\""),
              HasSubstr("must be a table"));
}

TEST(Config, SaysThatNothingIsExportedOnlyWhereNothingIs) {
  EXPECT_THAT(complaints_about(""), HasSubstr("nothing is exported"));
  EXPECT_THAT(complaints_about("listen = 3"),
              MatchesRegex("f:1: 'listen' must be .*\nf: nothing is exported.*"));
  EXPECT_THAT(complaints_about("listen = 3\n[[export]]\nname=\"x\"\npath=\"/x\""),
              Not(HasSubstr("nothing is exported")));
  EXPECT_THAT(complaints_about("[export]\nname=\"x\"\npath=\"/x\""), Not(HasSubstr("nothing is exported")));
}

TEST(Config, WhatOnlyTheMachineCanTellIsNamedWithTheRest) {
  TempDir dir;
  const std::string file = dir / "c.toml";
  write_file(file, R"(listen = ["nonsense"]
[[export]]
name = "a"
path = "/no such directory"
access = "rw"
as = "no such user"
[[export]]
name = "b"
path = "/dev/null"
)");
  const auto checked = check_config(file);
  ASSERT_FALSE(checked.has_value());
  for (const char* expected : {"c.toml:1: 'nonsense' is not an address",
                               "c.toml:4: [[export]]: /no such directory: No such file or directory",
                               "c.toml:6: [[export]]: there is no user 'no such user'",
                               "c.toml:9: [[export]]: /dev/null: Not a directory"})
    EXPECT_THAT(checked.error().context, HasSubstr(expected));
}

TEST(Config, ServesAtLeastWhatOneClientMaySend) {
  EXPECT_THAT(complaints_about("[limits]\nrequest_memory_mib = 16\n[[export]]\nname=\"x\"\npath=\"/x\""),
              HasSubstr("must be a whole number from 64"));
}

TEST(AccessStore, KeepsHashesOnlyAndTheFilesPrivate) {
  TempDir dir;
  const auto store = AccessStore::open(dir / "state").value();
  const auto token = store->new_token("data", Access::kReadWrite, std::nullopt, 0).value();
  EXPECT_EQ(token.size(), rpc::kTokenBytes);
  const std::string file = read_file(dir / "state/tokens.toml");
  EXPECT_THAT(file, HasSubstr(crypto::base64url_encode(crypto::sha256(token))));
  EXPECT_THAT(file, testing::Not(HasSubstr(crypto::base64url_encode(token))));
  struct stat status {};
  ASSERT_EQ(::stat((dir / "state/tokens.toml").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat((dir / "state").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST(AccessStore, GivesTheStrongestRight) {
  TempDir dir;
  const auto store = AccessStore::open(dir / "state").value();
  const auto ro = store->new_token("data", Access::kReadOnly, std::nullopt, 0).value();
  EXPECT_EQ(store->right_of("data", client_key(), ro, 0), Access::kReadOnly);
  EXPECT_EQ(store->right_of("data", client_key(), {}, 0), std::nullopt);
  ASSERT_TRUE(store->allow({client_key(), "data", Access::kReadWrite}).has_value());
  EXPECT_EQ(store->right_of("data", client_key(), ro, 0), Access::kReadWrite);
  EXPECT_EQ(store->right_of("data", client_key(2), ro, 0), Access::kReadOnly);
  EXPECT_EQ(store->right_of("other", client_key(), ro, 0), std::nullopt);
  ASSERT_TRUE(store->allow({client_key(), "data", Access::kReadOnly}).has_value());
  EXPECT_EQ(store->allowed().size(), 1u);
}

TEST(AccessStore, ForgetsExpiredTokens) {
  TempDir dir;
  const auto store = AccessStore::open(dir / "state").value();
  const auto token = store->new_token("data", Access::kReadOnly, 100, 0).value();
  EXPECT_EQ(store->right_of("data", client_key(), token, 99), Access::kReadOnly);
  EXPECT_EQ(store->right_of("data", client_key(), token, 100), std::nullopt);
  ASSERT_TRUE(store->new_token("data", Access::kReadOnly, std::nullopt, 200).has_value());
  EXPECT_THAT(read_file(dir / "state/tokens.toml"),
              testing::Not(HasSubstr(crypto::base64url_encode(crypto::sha256(token)))));
}

TEST(AccessStore, ASharedDirectoryKeepsItsToken) {
  TempDir dir;
  const auto first =
      AccessStore::open(dir / "state").value()->share_token("data", "/a", Access::kReadOnly, 0).value();
  const auto store = AccessStore::open(dir / "state").value();
  EXPECT_EQ(store->share_token("data", "/a", Access::kReadOnly, 0).value(), first);
  // The URL to write is another one, and changes nothing for those who have that to read; nor the reverse.
  const auto second = store->share_token("data", "/a", Access::kReadWrite, 0).value();
  EXPECT_NE(second, first);
  EXPECT_EQ(store->share_token("data", "/a", Access::kReadOnly, 0).value(), first);
  EXPECT_EQ(store->right_of("data", client_key(), first, 0), Access::kReadOnly);
  EXPECT_EQ(store->right_of("data", client_key(), second, 0), Access::kReadWrite);
  // Another directory under the name: the old URLs must not open it.
  EXPECT_NE(store->share_token("data", "/b", Access::kReadOnly, 0).value(), first);
  EXPECT_EQ(store->right_of("data", client_key(), first, 0), std::nullopt);
  EXPECT_EQ(store->right_of("data", client_key(), second, 0), std::nullopt);
  EXPECT_NE(store->share_token("data", "/a", Access::kReadWrite, 0).value(), second);
}

TEST(AccessStore, AShareThatFailsMidwayRevokesTheOldTokenTheNextTime) {
  TempDir dir;
  const auto old =
      AccessStore::open(dir / "state").value()->share_token("data", "/a", Access::kReadOnly, 0).value();
  const auto store = AccessStore::open(dir / "state").value();
  std::filesystem::rename(dir / "state/tokens.toml", dir / "aside");
  std::filesystem::create_directory(dir / "state/tokens.toml");
  EXPECT_FALSE(store->share_token("data", "/b", Access::kReadOnly, 0).has_value());
  std::filesystem::remove(dir / "state/tokens.toml");
  std::filesystem::rename(dir / "aside", dir / "state/tokens.toml");
  EXPECT_EQ(store->right_of("data", client_key(), old, 0), Access::kReadOnly);
  ASSERT_TRUE(store->share_token("data", "/b", Access::kReadOnly, 0).has_value());
  EXPECT_EQ(store->right_of("data", client_key(), old, 0), std::nullopt);
}

TEST(AccessStore, NamesAnExportWithAnyBytes) {
  TempDir dir;
  const std::string name = "a \"b\"\\ \n\xc3\xa4'";
  const auto token =
      AccessStore::open(dir / "state").value()->share_token(name, "/a", Access::kReadOnly, 0).value();
  EXPECT_EQ(AccessStore::open(dir / "state").value()->right_of(name, client_key(), token, 0),
            Access::kReadOnly);
}

TEST(AccessStore, SharesAnExportWhateverTheLengthOfItsName) {
  TempDir dir;
  std::set<std::vector<std::byte>> tokens;
  for (const std::size_t length : {1u, 171u, 172u, 173u, 190u, 255u})
    for (const char first : {'a', 'b'}) {
      const std::string name = first + std::string(length - 1, 'x');
      for (const Access access : {Access::kReadOnly, Access::kReadWrite}) {
        const auto token = AccessStore::open(dir / "state").value()->share_token(name, "/a", access, 0);
        ASSERT_TRUE(token.has_value()) << length << ": " << token.error().message();
        EXPECT_TRUE(tokens.insert(*token).second);
        EXPECT_EQ(AccessStore::open(dir / "state").value()->share_token(name, "/a", access, 0).value(), *token);
      }
    }
}

TEST(AccessStore, DamagedFilesAreNamedAtTheStartAndIgnoredLater) {
  TempDir dir;
  const auto store = AccessStore::open(dir / "state").value();
  const auto token = store->new_token("data", Access::kReadOnly, std::nullopt, 0).value();
  write_file(dir / "state/tokens.toml", "[[token]]\nsha256 = 3\n");
  EXPECT_EQ(store->right_of("data", client_key(), token, 0), Access::kReadOnly);
  const auto again = AccessStore::open(dir / "state");
  ASSERT_FALSE(again.has_value());
  EXPECT_THAT(again.error().context, HasSubstr("tokens.toml:2"));
}

TEST(StateFile, NeverLeavesHalfAFile) {
  TempDir dir;
  ASSERT_TRUE(write_state_file(dir / "f", "one").has_value());
  ASSERT_TRUE(write_state_file(dir / "f", "two").has_value());
  EXPECT_EQ(read_state_file(dir / "f").value(), "two");
  EXPECT_EQ(read_state_file(dir / "none").value(), std::nullopt);
  EXPECT_EQ(write_state_file(dir / "none/f", "x").error().message(),
            "cannot write " + (dir / "none/f").string() + ": No such file or directory");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

TEST(StateFile, ToldWhenItChanges) {
  TempDir dir;
  WatchedFile file(dir / "f");
  EXPECT_TRUE(file.changed());
  EXPECT_FALSE(file.changed());
  ASSERT_TRUE(write_state_file(dir / "f", "x").has_value());
  EXPECT_TRUE(file.changed());
  EXPECT_FALSE(file.changed());
  ASSERT_TRUE(write_state_file(dir / "f", "y").has_value());
  EXPECT_TRUE(file.changed());
  std::filesystem::remove(dir / "f");
  EXPECT_TRUE(file.changed());
}

ServerStatus status_of_server(std::string listen, std::string export_name) {
  return {.pid = ::getpid(),
          .listen = {std::move(listen)},
          .exports = {{.name = std::move(export_name), .path = "/srv", .access = Access::kReadWrite}},
          .clients = {}};
}

std::vector<std::filesystem::path> files_in(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) files.push_back(entry.path());
  return files;
}

TEST(StatusFile, TellsAllOfARunningServer) {
  TempDir dir;
  EXPECT_TRUE(running_servers(dir.path()).value().empty());
  ServerStatus status = status_of_server("[::]:8875", "d\xc3\xa4ta");
  StatusFile file(dir.path());
  ASSERT_TRUE(file.update(status).has_value());
  status.clients.push_back({.peer = {.key = client_key(), .address = "192.0.2.7:1"},
                            .client_name = "a \"name\"",
                            .export_name = "data",
                            .access = Access::kReadWrite,
                            .since_unix_s = 5,
                            .open_files = 3});
  ASSERT_TRUE(file.update(status).has_value());
  const auto read = running_servers(dir.path()).value();
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].pid, ::getpid());
  EXPECT_EQ(read[0].listen, status.listen);
  ASSERT_EQ(read[0].exports.size(), 1u);
  EXPECT_EQ(read[0].exports[0].name, "d\xc3\xa4ta");
  EXPECT_EQ(read[0].exports[0].path, "/srv");
  EXPECT_EQ(read[0].exports[0].access, Access::kReadWrite);
  ASSERT_EQ(read[0].clients.size(), 1u);
  EXPECT_EQ(read[0].clients[0].client_name, "a \"name\"");
  EXPECT_EQ(read[0].clients[0].peer.key, client_key());
  EXPECT_EQ(read[0].clients[0].access, Access::kReadWrite);
  EXPECT_EQ(read[0].clients[0].open_files, 3u);
}

TEST(StatusFile, EachServerHasItsOwn) {
  TempDir dir;
  StatusFile one(dir.path());
  ASSERT_TRUE(one.update(status_of_server("[::]:1", "one")).has_value());
  {
    StatusFile two(dir.path());
    ASSERT_TRUE(two.update(status_of_server("[::]:2", "two")).has_value());
    EXPECT_EQ(running_servers(dir.path()).value().size(), 2u);
  }
  const auto left = running_servers(dir.path()).value();
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].exports[0].name, "one");
}

TEST(StatusFile, WhatADeadServerLeftIsRemoved) {
  TempDir dir;
  StatusFile alive(dir.path());
  ASSERT_TRUE(alive.update(status_of_server("[::]:1", "one")).has_value());
  const auto file = files_in(dir / "running").at(0);
  // The same pid, even, as when another process has got the dead one's: only the lock tells.
  std::filesystem::copy_file(file, dir / "running/left-behind.toml");
  EXPECT_EQ(running_servers(dir.path()).value().size(), 1u);
  EXPECT_EQ(files_in(dir / "running"), std::vector{file});
}

TEST(StatusFile, AServerIsSeenWhileItWrites) {
  TempDir dir;
  StatusFile file(dir.path());
  ServerStatus status = status_of_server("[::]:1", "one");
  ASSERT_TRUE(file.update(status).has_value());
  std::atomic<bool> over{false};
  std::thread looker([&] {
    while (!over) EXPECT_EQ(running_servers(dir.path()).value().size(), 1u);
  });
  for (status.pid = 1; status.pid <= 300; ++status.pid) EXPECT_TRUE(file.update(status).has_value());
  over = true;
  looker.join();
}

// A state directory as a server makes it, and commands that look for it.
struct LocatedState {
  TempDir dir;
  std::filesystem::path state = dir / "state";
  StatusFile one{state};

  LocatedState() {
    EXPECT_TRUE(AccessStore::open(state).has_value());
    EXPECT_TRUE(crypto::Identity::load_or_create(state).has_value());
  }
  void serve_one() { EXPECT_TRUE(one.update(status_of_server("127.0.0.1:1", "one")).has_value()); }
  [[nodiscard]] StateArguments with_config() const {
    write_file(dir / "c.toml",
               "state_dir = \"" + state.string() +
                   "\"\nlisten = [\"127.0.0.1:3\"]\n[[export]]\nname = \"three\"\npath = \"/\"\n");
    return {.config_file = (dir / "c.toml").string(), .state_dir = ""};
  }
  [[nodiscard]] Result<Reachable> find(const std::string& name) const {
    return find_export(locate({.config_file = "", .state_dir = state.string()}).value(), name);
  }
};

TEST(Located, AnExportIsWhereItsServerListens) {
  LocatedState state;
  state.serve_one();
  StatusFile two(state.state);
  ASSERT_TRUE(two.update(status_of_server("127.0.0.1:2", "two")).has_value());
  EXPECT_EQ(state.find("one").value().listen.at(0).port(), 1u);
  EXPECT_EQ(state.find("two").value().listen.at(0).port(), 2u);
  EXPECT_EQ(state.find("two").value().warning, "");
}

TEST(Located, OfSeveralThatExportItTheOneThatLetsClientsWriteCounts) {
  LocatedState state;
  ServerStatus reading = status_of_server("127.0.0.1:1", "one");
  reading.exports[0].access = Access::kReadOnly;
  ASSERT_TRUE(state.one.update(reading).has_value());
  EXPECT_EQ(state.find("one").value().access, Access::kReadOnly);
  StatusFile two(state.state);
  ASSERT_TRUE(two.update(status_of_server("127.0.0.1:2", "one")).has_value());
  EXPECT_EQ(state.find("one").value().access, Access::kReadWrite);
  EXPECT_EQ(state.find("one").value().listen.at(0).port(), 2u);
}

TEST(Located, AnExportThatNobodyHasIsRefusedWithThoseThereAre) {
  LocatedState state;
  state.serve_one();
  const auto found = state.find("nope");
  ASSERT_FALSE(found.has_value());
  EXPECT_THAT(found.error().context, AllOf(HasSubstr("no export named 'nope'"), HasSubstr("there is 'one'")));
}

TEST(Located, WarnsWhenNobodyExportsItYet) {
  LocatedState state;
  EXPECT_THAT(state.find("any").value().warning, HasSubstr("no server is running with"));
  EXPECT_EQ(state.find("any").value().access, Access::kReadWrite);  // nobody knows
  const StateArguments config = state.with_config();
  const Reachable configured = find_export(locate(config).value(), "three").value();
  EXPECT_EQ(configured.listen.at(0).port(), 3u);
  EXPECT_EQ(configured.access, Access::kReadOnly);
  EXPECT_THAT(configured.warning, HasSubstr("no server is running with"));
  EXPECT_FALSE(find_export(locate(config).value(), "four").has_value());
  state.serve_one();
  EXPECT_THAT(find_export(locate(config).value(), "three").value().warning, HasSubstr("SIGHUP"));
}

TEST(Located, AMistypedStateDirectoryIsNotMade) {
  TempDir dir;
  const auto none = locate({.config_file = "", .state_dir = (dir / "none").string()});
  ASSERT_FALSE(none.has_value());
  EXPECT_THAT(none.error().context,
              AllOf(HasSubstr("none does not exist"), HasSubstr("start a server first")));
  EXPECT_FALSE(std::filesystem::exists(dir / "none"));
  const auto empty = locate({.config_file = "", .state_dir = dir.path().string()});
  ASSERT_FALSE(empty.has_value());
  EXPECT_THAT(empty.error().context, HasSubstr("holds no server's state"));
  EXPECT_TRUE(files_in(dir.path()).empty());
  write_file(dir / "file", "");
  EXPECT_THAT(locate({.config_file = "", .state_dir = (dir / "file").string()}).error().context,
              HasSubstr("is not a directory"));
}

TEST(AccessStore, AFileIsNoStateDirectory) {
  TempDir dir;
  write_file(dir / "file", "");
  EXPECT_THAT(AccessStore::open(dir / "file").error().context, HasSubstr("file is not a directory"));
}

TEST(CommandLine, UsageErrorsSayWhoComplains) {
  for (std::vector<std::string> words : {std::vector<std::string>{"tuskd", "--nonsense"},
                                         {"tuskd", "share"},
                                         {"tuskd", "share", "/", "--watch", "nonsense"},
                                         {"tuskd", "--config", "/etc/tusk/tuskd.toml", "share", "/"}}) {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    testing::internal::CaptureStderr();
    EXPECT_EQ(run_tuskd(static_cast<int>(argv.size()), argv.data(), "a test"), 2);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), StartsWith("tuskd: "));
  }
}

TEST(CommandLine, ATypoInACommandIsRecognised) {
  std::string program = "tuskd", command = "shre", directory = "/srv";
  std::vector<char*> argv{program.data(), command.data(), directory.data()};
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_tuskd(static_cast<int>(argv.size()), argv.data(), "a test"), 2);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("no command 'shre': did you mean share?"));
}

TEST(CommandLine, AShareThatFailsLeavesNothingBehind) {
  TempDir dir;
  write_file(dir / "file", "");
  const auto taken = io::UdpSocket::open({.bind = *io::parse("127.0.0.1:0")});
  ASSERT_TRUE(taken);
  const std::string free = "127.0.0.1:0";
  const std::string state = dir / "some/state";
  for (const auto& [directory, listen, url_file, why] : std::vector<std::array<std::string, 4>>{
           {dir / "missing", free, "", "missing: No such file"},
           {dir / "file", free, "", "file: Not a directory"},
           {dir.path(), taken->local_address().to_string(), "", "cannot listen on UDP"},
           {dir.path(), "somewhere", "", "not an address"},
           {dir.path(), free, dir / "missing/url", "--url-file: nothing can be written"}}) {
    const auto shared = share(
        {.directory = directory, .name = "name", .listen = listen, .state_dir = state, .url_file = url_file});
    ASSERT_FALSE(shared.has_value());
    EXPECT_THAT(shared.error().context, HasSubstr(why));
    EXPECT_FALSE(std::filesystem::exists(dir / "some")) << why;
  }
}

TEST(CommandLine, AnEmptyNameIsNone) {
  TempDir dir;
  const auto shared =
      share({.directory = dir.path().string(), .name = "", .listen = "", .state_dir = "", .url_file = ""});
  ASSERT_FALSE(shared.has_value());
  EXPECT_THAT(shared.error().context, HasSubstr("an export needs a name"));
}

TEST(CommandLine, ADirectoryWhoseNameIsNoExportsNeedsAnother) {
  TempDir dir;
  for (const char* name : {"a,suid", "a\nb"}) {
    const std::filesystem::path directory = dir / name;
    std::filesystem::create_directory(directory);
    const auto shared =
        share({.directory = directory.string(), .listen = "", .state_dir = "", .url_file = ""});
    ASSERT_FALSE(shared.has_value());
    EXPECT_THAT(shared.error().context, HasSubstr("no comma and no control characters (--name"));
    EXPECT_THAT(shared.error().context, Not(HasSubstr("\n")));
  }
}

TEST(CommandLine, AllowSaysWhereAClientsFingerprintIs) {
  LocatedState state;
  state.serve_one();
  const auto allowed = allow({.state = {.config_file = "", .state_dir = state.state.string()},
                              .fingerprint = "short",
                              .export_name = "one"});
  ASSERT_FALSE(allowed.has_value());
  EXPECT_THAT(allowed.error().context, HasSubstr("\"client_key\""));
}

TEST(Config, WhatTakesARestartIsNamed) {
  ServerConfig running;
  running.state_dir = default_state_dir().value();
  ServerConfig fresh;  // which has no name in the file
  fresh.exports.resize(2);
  EXPECT_EQ(needs_restart(running, fresh), "");
  fresh.limits.mounts = 7;
  EXPECT_EQ(needs_restart(running, fresh), "limits");
  fresh.state_dir = "/srv/state";
  fresh.listen.clear();
  fresh.watch = WatchWish::kNone;
  EXPECT_EQ(needs_restart(running, fresh), "state_dir, listen, watch, limits");
  EXPECT_EQ(needs_restart(fresh, fresh), "");
  ServerConfig back = fresh;
  back.state_dir.clear();
  EXPECT_EQ(needs_restart(fresh, back), "state_dir");
}

TEST(Words, Lifetimes) {
  EXPECT_EQ(parse_lifetime("90s").value(), 90);
  EXPECT_EQ(parse_lifetime("30m").value(), 1800);
  EXPECT_EQ(parse_lifetime("12h").value(), 43200);
  EXPECT_EQ(parse_lifetime("7d").value(), 604800);
  for (const char* bad : {"", "7", "d", "-1d", "0d", "7w", "7d ", "99999999999999d", "1.5h"})
    EXPECT_FALSE(parse_lifetime(bad).has_value()) << bad;
}

TEST(Words, ListenAddresses) {
  EXPECT_EQ(parse_listen("192.0.2.1:1").value().to_string(), "192.0.2.1:1");
  EXPECT_EQ(parse_listen("192.0.2.1").value().port(), rpc::kDefaultPort);
  EXPECT_EQ(parse_listen(":9000").value(), io::Address::any(9000));
  EXPECT_EQ(parse_listen("9000").value(), io::Address::any(9000));
  EXPECT_EQ(parse_listen("[::1]").value().port(), rpc::kDefaultPort);
  for (const char* bad : {"", ":", "host:1", "99999", "1.2.3.4:99999"})
    EXPECT_FALSE(parse_listen(bad).has_value()) << bad;
}

TEST(Config, SetuidIsOffUnlessAnExportSaysItPlainly) {
  const auto parsed = [](const std::string& line) {
    return parse_config("[[export]]\nname = \"a\"\npath = \"/\"\n" + line);
  };
  EXPECT_FALSE(parsed("")->exports[0].setuid);
  EXPECT_FALSE(parsed("setuid = false")->exports[0].setuid);
  EXPECT_TRUE(parsed("setuid = true")->exports[0].setuid);
  for (const char* line : {"setuid = 1", "setuid = \"true\""})
    EXPECT_THAT(parsed(line).error()[0].what, HasSubstr("'setuid' must be true or false")) << line;
}

TEST(Config, NamesThatCannotStandInMountOptionsAreRefused) {
  for (const char* name : {"x,suid,dev", "a\\nb", "a\\u001b[2J", "a\\u009b", "..", "a/b"}) {
    const auto parsed = parse_config("[[export]]\nname = \"" + std::string(name) + "\"\npath = \"/\"\n");
    ASSERT_FALSE(parsed) << name;
    EXPECT_THAT(parsed.error()[0].what, HasSubstr("an export's name")) << name;
    EXPECT_EQ(parsed.error()[0].line, 2u) << name;
  }
}

TEST(Words, HostsForUrls) {
  const auto host = [](const char* text) { return public_host({io::parse(text).value()}); };
  EXPECT_EQ(host("192.0.2.1:8875"), "192.0.2.1");
  EXPECT_EQ(host("127.0.0.1:8875"), "127.0.0.1");
  EXPECT_EQ(host("[::1]:8875"), "::1");
  EXPECT_EQ(host("[2001:db8::1]:8875"), "2001:db8::1");
  EXPECT_FALSE(host("[::]:8875").empty());
  EXPECT_EQ(public_host({io::parse("127.0.0.1:1").value(), io::parse("192.0.2.1:1").value()}), "192.0.2.1");
}

}  // namespace
}  // namespace tusk::server
