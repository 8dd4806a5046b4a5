// The configuration file, the state directory and the command line's words.
#include "fsserver/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "fsserver/cli.h"
#include "fsserver/state_file.h"
#include "fsserver/status_file.h"
#include "mount.h"
#include "proto/crypto/base64url.h"

namespace tusk::server {
namespace {

using testing::HasSubstr;

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
  EXPECT_EQ(config->export_lines, (std::vector<unsigned>{12, 18}));
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
  EXPECT_THAT(complaints_about(""), HasSubstr("nothing is exported"));
  EXPECT_THAT(complaints_about("export = 3"), HasSubstr("begins with [[export]]"));
  EXPECT_THAT(complaints_about("[[export]]\nname=\"x\"\npath=\"/x\"\nclients=\"no list\""),
              HasSubstr("must be a list"));
  EXPECT_THAT(complaints_about("limits = 3\n[[export]]\nname=\"x\"\npath=\"/x\""),
              HasSubstr("must be a table"));
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
  EXPECT_EQ(store->share_token("data", "/a", Access::kReadWrite, 0).value(), first);
  EXPECT_EQ(store->right_of("data", client_key(), first, 0), Access::kReadWrite);
  // Another directory under the name: the old URL must not open it.
  EXPECT_NE(store->share_token("data", "/b", Access::kReadOnly, 0).value(), first);
  EXPECT_EQ(store->right_of("data", client_key(), first, 0), std::nullopt);
}

TEST(AccessStore, NamesAnExportWithAnyBytes) {
  TempDir dir;
  const std::string name = "a \"b\"\\ \n\xc3\xa4'";
  const auto token =
      AccessStore::open(dir / "state").value()->share_token(name, "/a", Access::kReadOnly, 0).value();
  EXPECT_EQ(AccessStore::open(dir / "state").value()->right_of(name, client_key(), token, 0),
            Access::kReadOnly);
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
  EXPECT_FALSE(write_state_file(dir / "none/f", "x").has_value());
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

TEST(StatusFile, TellsOfARunningServerOnly) {
  TempDir dir;
  EXPECT_EQ(read_status(dir.path()).value().has_value(), false);
  ServerStatus status{.pid = ::getpid(), .listen = {"[::]:8875"}, .clients = {}};
  status.clients.push_back({.peer = {.key = client_key(), .address = "192.0.2.7:1"},
                            .client_name = "a \"name\"",
                            .export_name = "data",
                            .access = Access::kReadWrite,
                            .since_unix_s = 5,
                            .open_files = 3});
  write_file(status_file(dir.path()), to_toml(status));
  const auto read = read_status(dir.path()).value();
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->listen, status.listen);
  ASSERT_EQ(read->clients.size(), 1u);
  EXPECT_EQ(read->clients[0].client_name, "a \"name\"");
  EXPECT_EQ(read->clients[0].peer.key, client_key());
  EXPECT_EQ(read->clients[0].access, Access::kReadWrite);
  EXPECT_EQ(read->clients[0].open_files, 3u);
  status.pid = 0x7ffffffe;  // nobody has it
  write_file(status_file(dir.path()), to_toml(status));
  EXPECT_FALSE(read_status(dir.path()).value().has_value());
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

TEST(Words, HostsForUrls) {
  const auto host = [](const char* text) { return public_host({io::parse(text).value()}); };
  EXPECT_EQ(host("192.0.2.1:8875"), "192.0.2.1");
  EXPECT_EQ(host("127.0.0.1:8875"), "127.0.0.1");
  EXPECT_EQ(host("[::1]:8875"), "::1");
  EXPECT_EQ(host("[2001:db8::1]:8875"), "2001:db8::1");
  EXPECT_FALSE(host("[::]:8875").empty());
  EXPECT_EQ(public_host({io::parse("127.0.0.1:1").value(), io::parse("192.0.2.1:1").value()}), "192.0.2.1");
}

TEST(Words, ForAShell) {
  EXPECT_EQ(shell_word("/mnt/data"), "/mnt/data");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace tusk::server
