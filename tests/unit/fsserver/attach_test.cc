// The door: who gets in, what is refused before, and what a session keeps.
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <latch>
#include <sstream>

#include "mount.h"
#include "proto/io/clock.h"

namespace tusk::server {
namespace {

schema::Request attach_request() {
  schema::Request request;
  request.mutable_attach()->set_export_name("data");
  request.mutable_attach()->set_session(std::string(kSessionIdBytes, 'x'));
  request.mutable_attach()->set_version(kSchemaVersion);
  return request;
}

TEST(Attach, ShowsTheRootAndTheServersFacts) {
  TempDir dir;
  Server server(dir.path());
  Mount mount(server);
  const schema::AttachReply& facts = mount.attached();
  EXPECT_FALSE(facts.read_only());
  EXPECT_FALSE(facts.resumed());
  EXPECT_EQ(facts.max_read(), kReadBytesMax);
  EXPECT_EQ(facts.max_write(), kWriteBytesMax);
  EXPECT_EQ(facts.attr_lifetime_ms(), 1000u);
  EXPECT_EQ(facts.server_name(), "test");
  EXPECT_EQ(facts.owner_uid(), ::geteuid());
  EXPECT_EQ(facts.boot_id().size(), 36u);
  EXPECT_EQ(facts.instance_id().size(), 16u);
  EXPECT_TRUE(S_ISDIR(facts.root().attr().mode()));
  EXPECT_LE(facts.root().handle().size(), kHandleBytesMax);
}

TEST(Attach, NothingWorksBefore) {
  TempDir dir;
  Server server(dir.path());
  Mount mount(server);
  const std::string root = mount.root();
  mount.reconnect();
  EXPECT_ERROR(mount.getattr(root), err(EACCES));
}

TEST(Attach, RefusesAStrangerWithoutSayingWhatThereIs) {
  TempDir dir;
  Server server(dir.path());
  Mount stranger(server, {.key = client_key(9)});
  EXPECT_ERROR(stranger.attach(), ErrorCode::kTokenRefused);
  Mount guessing(server, {.export_name = "other", .key = client_key(9)});
  EXPECT_ERROR(guessing.attach(), ErrorCode::kTokenRefused);
}

TEST(Attach, RefusesWhatItDoesNotUnderstand) {
  TempDir dir;
  Server server(dir.path());
  Mount mount(server);
  mount.reconnect();
  schema::Request request = attach_request();
  request.mutable_attach()->set_version(2);
  EXPECT_ERROR(mount.call(request), ErrorCode::kVersionMismatch);
  request = attach_request();
  request.mutable_attach()->set_session("short");
  EXPECT_ERROR(mount.call(request), ErrorCode::kMalformed);
  EXPECT_OK(mount.call(attach_request()));
  EXPECT_ERROR(mount.call({}), ErrorCode::kUnsupported);
  request = {};
  request.mutable_invalidate();
  EXPECT_ERROR(mount.call(request), ErrorCode::kUnsupported);
}

TEST(Attach, ATokenOpensItsOwnExportWithItsOwnRight) {
  TempDir dir;
  TempDir state;
  const auto store = AccessStore::open(state / "state").value();
  Server server(dir.path(), {.access_store = store});
  const auto rw = store->new_token("data", Access::kReadWrite, std::nullopt, 0).value();
  const auto ro = store->new_token("data", Access::kReadOnly, std::nullopt, 0).value();
  const auto other = store->new_token("other", Access::kReadWrite, std::nullopt, 0).value();
  const auto expired = store->new_token("data", Access::kReadWrite, 1000, 0).value();

  Mount writer(server, {.token = rw});
  EXPECT_FALSE(writer.attached().read_only());
  Mount reader(server, {.token = ro});
  EXPECT_TRUE(reader.attached().read_only());
  EXPECT_ERROR(Mount(server, {.token = other}).attach(), ErrorCode::kTokenRefused);
  EXPECT_ERROR(Mount(server, {.token = expired}).attach(), ErrorCode::kTokenRefused);
  EXPECT_ERROR(Mount(server, {}).attach(), ErrorCode::kTokenRefused);
  EXPECT_ERROR(Mount(server, {.export_name = "other", .token = other}).attach(), ErrorCode::kNoSuchExport);
}

TEST(Attach, NoTokenWritesToAReadOnlyExport) {
  TempDir dir;
  TempDir state;
  const auto store = AccessStore::open(state / "state").value();
  Server server(dir.path(), {.access = Access::kReadOnly, .access_store = store});
  Mount mount(server, {.token = store->new_token("data", Access::kReadWrite, std::nullopt, 0).value()});
  EXPECT_TRUE(mount.attached().read_only());
}

TEST(Attach, SeesRightsGivenWhileItRuns) {
  TempDir dir;
  TempDir state;
  const auto store = AccessStore::open(state / "state").value();
  Server server(dir.path(), {.access_store = store});
  Mount mount(server);
  EXPECT_ERROR(mount.attach(), ErrorCode::kTokenRefused);
  // Another process, as `tuskd allow` is.
  const auto elsewhere = AccessStore::open(state / "state").value();
  ASSERT_TRUE(elsewhere->allow({client_key(1), "data", Access::kReadOnly}).has_value());
  EXPECT_TRUE(EXPECT_OK(mount.attach()).reply.attach().read_only());
  ASSERT_TRUE(elsewhere->allow({client_key(1), "data", Access::kReadWrite}).has_value());
  EXPECT_FALSE(EXPECT_OK(mount.attach()).reply.attach().read_only());
}

// What is logged while it lives.
class CapturedLog {
 public:
  CapturedLog() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "captured", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)));
  }
  ~CapturedLog() { spdlog::set_default_logger(before_); }
  [[nodiscard]] std::string text() const { return text_.str(); }

 private:
  std::shared_ptr<spdlog::logger> before_;
  std::ostringstream text_;
};

TEST(Attach, SaysWhenTheDirectoryIsGone) {
  CapturedLog log;
  TempDir dir;
  std::filesystem::create_directory(dir / "export");
  Server server(dir / "export");
  Mount mount(server);
  const std::string root = mount.root();
  std::filesystem::remove(dir / "export");
  EXPECT_ERROR(mount.lookup(root, "file"), err(ENOENT));
  EXPECT_ERROR(mount.create(root, "file"), err(ENOENT));
  mount.reconnect();
  EXPECT_ERROR(mount.attach(), err(ENOENT));
  EXPECT_TRUE(server.service().drain(5s));
  const std::string said = log.text();
  const std::size_t first = said.find("has been removed; clients get errors");
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("has been removed; clients get errors", first + 1), std::string::npos) << "said twice";
}

TEST(Attach, SaysWhoWasRefusedButNotForEver) {
  CapturedLog log;
  TempDir dir;
  Server server(dir.path());
  Mount stranger(server, {.export_name = "line\nbreak \x1b[2J", .key = client_key(9)});
  for (unsigned i = 0; i < 5 * LogLimit::kLinesPerWindow; ++i) stranger.attach();
  EXPECT_TRUE(server.service().drain(5s));
  const std::string said = log.text();
  EXPECT_THAT(said, testing::HasSubstr("may not mount 'line?break ?[2J'"));
  // Another window may have begun.
  EXPECT_LE(std::ranges::count(said, '\n'), 2 * LogLimit::kLinesPerWindow);
}

TEST(LogLimit, CountsWhatItLeavesOut) {
  LogLimit limit;
  const TimePoint now{};
  for (unsigned i = 0; i < LogLimit::kLinesPerWindow; ++i) EXPECT_EQ(limit.admit(now + 1s), 0u);
  EXPECT_FALSE(limit.admit(now + 2s).has_value());
  EXPECT_FALSE(limit.admit(now + 3s).has_value());
  EXPECT_EQ(limit.admit(now + 1s + LogLimit::kWindow), 2u);
  EXPECT_EQ(limit.admit(now + 1s + LogLimit::kWindow), 0u);
}

TEST(Rights, EndConnectionsWhenTheyAreTakenAway) {
  TempDir dir;
  TempDir state;
  const auto store = AccessStore::open(state / "state").value();
  Server server(dir.path(), {.access_store = store});
  const std::int64_t now = io::unix_seconds();
  const auto short_lived = store->new_token("data", Access::kReadWrite, now + 1000, now).value();
  ASSERT_TRUE(store->allow({client_key(1), "data", Access::kReadWrite}).has_value());
  Mount guest(server, {.token = short_lived, .key = client_key(2)});
  Mount writer(server);
  Mount reader(server, {.session = std::string(kSessionIdBytes, 'r'), .read_only = true});
  EXPECT_THAT(server.service().without_right(now), testing::IsEmpty());

  EXPECT_THAT(server.service().without_right(now + 1000), testing::ElementsAre(guest.connection()));
  guest.disconnect();
  ASSERT_TRUE(store->allow({client_key(1), "data", Access::kReadOnly}).has_value());
  EXPECT_THAT(server.service().without_right(now), testing::ElementsAre(writer.connection()));
  writer.disconnect();
  std::filesystem::remove(state / "state/clients.toml");
  EXPECT_THAT(server.service().without_right(now), testing::ElementsAre(reader.connection()));
}

TEST(Session, SurvivesAReconnect) {
  TempDir dir;
  Server server(dir.path());
  Mount mount(server);
  const auto created = EXPECT_OK(mount.create(mount.root(), "f")).reply.open();
  mount.reconnect();
  EXPECT_TRUE(EXPECT_OK(mount.attach()).reply.attach().resumed());
  EXPECT_OK(mount.write(created.node().handle(), created.open_id(), 0, "x"));
}

TEST(Session, EndsWhenItsTimeIsOver) {
  TempDir dir;
  Server server(dir.path());
  Mount mount(server);
  EXPECT_OK(mount.create(mount.root(), "f"));
  mount.disconnect();
  server.housekeep_after(kSessionKeepDefault - 1min);
  EXPECT_EQ(server.service().sessions(), 1u);
  server.housekeep_after(kSessionKeepDefault + 1s);
  EXPECT_EQ(server.service().sessions(), 0u);
  mount.reconnect();
  EXPECT_FALSE(mount.attach().reply.attach().resumed());
}

TEST(Session, LastsAsLongAsOneOfItsConnections) {
  TempDir dir;
  Server server(dir.path());
  Mount first(server);
  Mount second(server);
  EXPECT_TRUE(second.attached().resumed());
  first.disconnect();
  server.housekeep_after(1h);
  EXPECT_EQ(server.service().sessions(), 1u);
}

TEST(Session, OfAnotherKeyIsAnotherSession) {
  TempDir dir;
  Server server(dir.path());
  Mount mine(server);
  Mount thief(server, {.key = client_key(2)});
  EXPECT_FALSE(thief.attached().resumed());
  EXPECT_EQ(server.service().sessions(), 2u);
}

TEST(Session, IsOverAtOnceAfterDetach) {
  TempDir dir;
  Server server(dir.path());
  Mount mount(server);
  schema::Request request;
  request.mutable_detach();
  EXPECT_OK(mount.call(request));
  EXPECT_EQ(server.service().sessions(), 0u);
  EXPECT_ERROR(mount.getattr(mount.root()), err(EACCES));
}

class RightsQuotas : public testing::Test {
 protected:
  // A mount by a token with a key and a session of its own.
  [[nodiscard]] MountSetup another(const std::vector<std::byte>& token) {
    ++mounts_;
    return {.token = token,
            .key = client_key(static_cast<unsigned char>(mounts_)),
            .session = std::string(kSessionIdBytes, static_cast<char>(mounts_))};
  }
  [[nodiscard]] std::vector<std::byte> token() {
    return store_->new_token("data", Access::kReadWrite, std::nullopt, 0).value();
  }
  // How many mounts are let in.
  [[nodiscard]] std::size_t fill(Server& server, const std::vector<std::byte>& token) {
    for (std::size_t made = 0;; ++made) {
      kept_.push_back(std::make_unique<Mount>(server, another(token)));
      const auto attached = kept_.back()->attach();
      if (attached.error() != ErrorCode::kOk) return made;
    }
  }

  TempDir dir_;
  TempDir state_;
  std::shared_ptr<AccessStore> store_ = AccessStore::open(state_.path()).value();
  std::vector<std::unique_ptr<Mount>> kept_;  // no longer than their server
  int mounts_ = 0;
};

TEST_F(RightsQuotas, SessionsAreATokensWhateverItsKeys) {
  Server server(dir_.path(), {.access_store = store_, .sessions_max = 32});
  const auto one = token();
  const auto other = token();
  EXPECT_EQ(fill(server, one), 18u) << "nine sixteenths";
  EXPECT_GE(fill(server, other), 1u);
  EXPECT_GE(fill(server, token()), 1u);
  kept_.clear();
}

TEST_F(RightsQuotas, DescriptorsAreATokensWhateverItsKeys) {
  write_file(dir_ / "file", "x");
  Server server(dir_.path(), {.access_store = store_, .descriptors_max = 16});
  const auto one = token();
  int opened = 0;
  for (int keys = 0; keys < 4; ++keys) {
    kept_.push_back(std::make_unique<Mount>(server, another(one)));
    Mount& mount = *kept_.back();
    for (int i = 0; i < 12; ++i) opened += mount.open(mount.handle("file")).error() == ErrorCode::kOk ? 1 : 0;
    EXPECT_ERROR(mount.open(mount.handle("file")), err(EMFILE));
    EXPECT_ERROR(mount.create(mount.root(), "new"), err(EMFILE));
  }
  EXPECT_EQ(opened, 9);
  EXPECT_FALSE(std::filesystem::exists(dir_ / "new"));
  Mount other(server, another(token()));
  const auto first = EXPECT_OK(other.open(other.handle("file"))).reply.open().open_id();
  EXPECT_OK(other.close(first));
  kept_.clear();
}

TEST_F(RightsQuotas, AnEmptySessionEndsSoonAfterItsConnection) {
  write_file(dir_ / "file", "x");
  Server server(dir_.path(), {.access_store = store_});
  const auto one = token();
  Mount empty(server, another(one));
  Mount holding(server, another(one));
  EXPECT_OK(holding.open(holding.handle("file")));
  empty.disconnect();
  holding.disconnect();
  server.housekeep_after(kEmptySessionKeep / 2);
  EXPECT_EQ(server.service().sessions(), 2u);
  server.housekeep_after(kEmptySessionKeep + 1s);
  EXPECT_EQ(server.service().sessions(), 1u);
  server.housekeep_after(kSessionKeepDefault + 1s);
  EXPECT_EQ(server.service().sessions(), 0u);
}

TEST(Service, ListsItsClients) {
  TempDir dir;
  Server server(dir.path());
  Mount mount(server, {.read_only = true});
  const auto clients = server.service().clients();
  ASSERT_EQ(clients.size(), 1u);
  EXPECT_EQ(clients[0].client_name, "tester");
  EXPECT_EQ(clients[0].export_name, "data");
  EXPECT_EQ(clients[0].access, Access::kReadOnly);
  mount.disconnect();
  EXPECT_TRUE(server.service().clients().empty());
}

schema::Request make_request(const Mount& mount, std::string name) {
  schema::Request request;
  request.mutable_make_node()->set_parent(mount.root());
  request.mutable_make_node()->set_name(std::move(name));
  request.mutable_make_node()->set_mode(S_IFDIR | 0755);
  return request;
}

TEST(Service, FinishesWhatRunsAndLeavesTheRestToTheNextServer) {
  TempDir dir;
  std::promise<void> begun;
  std::promise<void> gate;
  Server server(dir.path(), {.mutated = [&](Export&, const std::vector<std::string>&) {
                  begun.set_value();
                  gate.get_future().wait();
                }});
  Mount mount(server);
  const auto running = mount.start(make_request(mount, "running"));
  begun.get_future().wait();
  EXPECT_FALSE(server.service().drain(1ms));
  const auto late = mount.start(make_request(mount, "late"));
  const auto given_up = mount.start(make_request(mount, "late"));
  given_up->cancel();
  EXPECT_ERROR(given_up->wait(), ErrorCode::kCancelled);
  gate.set_value();
  EXPECT_OK(running->wait());
  EXPECT_TRUE(server.service().drain(20s));
  EXPECT_FALSE(late->answered());
  EXPECT_FALSE(std::filesystem::exists(dir / "late"));
}

TEST(Service, ReplacesExportsAndNamesWhomToDisconnect) {
  TempDir dir;
  Server server(dir.path());
  Mount mount(server);
  EXPECT_EQ(server.service().replace_exports({}).size(), 1u);
  mount.reconnect();
  EXPECT_ERROR(mount.attach(), ErrorCode::kTokenRefused);
}

TEST(Service, DoesNotBeginWhatWasCancelled) {
  TempDir dir;
  Server server(dir.path());
  Mount mount(server);
  // Many at once, cancelled at any moment: each is either done or answered as cancelled, none is lost.
  std::vector<std::shared_ptr<PendingCall>> calls;
  for (int i = 0; i < 200; ++i) {
    schema::Request request;
    request.mutable_lookup()->set_parent(mount.root());
    request.mutable_lookup()->set_name("none");
    calls.push_back(mount.start(request));
    calls.back()->cancel();
  }
  for (const auto& call : calls)
    EXPECT_THAT(call->wait().error(), testing::AnyOf(ErrorCode::kCancelled, err(ENOENT)));
}

TEST(Service, ClosesAFileThatNobodyWaitsForAnyMore) {
  TempDir dir;
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  Server server(dir.path(), {.mutated = [&](Export&, const std::vector<std::string>&) { opened.wait(); }});
  Mount mount(server);
  schema::Request request;
  request.mutable_create()->set_parent(mount.root());
  request.mutable_create()->set_name("file");
  request.mutable_create()->set_mode(0644);
  request.mutable_create()->set_flags(O_RDWR);
  const auto call = mount.start(request);
  call->cancel();
  gate.set_value();
  const Answer answer = call->wait();
  ASSERT_TRUE(answer.reply.has_open() || answer.error() == ErrorCode::kCancelled);
  const auto open_here = [&] {
    return std::ranges::count_if(std::filesystem::directory_iterator("/proc/self/fd"),
                                 [&](const auto& entry) {
                                   std::error_code gone;
                                   return std::filesystem::read_symlink(entry.path(), gone) == dir / "file";
                                 });
  };
  // What is left is the table's own (O_PATH).
  if (answer.reply.has_open()) {
    EXPECT_ERROR(mount.write("", answer.reply.open().open_id(), 0, "x"), err(ESTALE));
    EXPECT_LE(open_here(), 1);
  }
}

TEST(Service, LetsGoOfWhatWasCancelledBeforeItsTurn) {
  TempDir dir;
  write_file(dir / "file", std::string(1 << 20, 'x'));
  std::latch begun(2);
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  Server server(dir.path(), {.mutated =
                                 [&](Export&, const std::vector<std::string>&) {
                                   begun.count_down();
                                   opened.wait();
                                 },
                             .reply_memory_max = 1 << 20,
                             .workers = 2});
  Mount mount(server);
  schema::Request read;
  read.mutable_read()->set_handle(mount.handle("file"));
  read.mutable_read()->set_length(1 << 20);
  const auto first = mount.start(read);
  first->wait();
  const auto for_memory = mount.start(read, "what came with it");
  const auto one = mount.start(make_request(mount, "1"));
  const auto two = mount.start(make_request(mount, "2"));
  begun.wait();
  const auto for_a_worker = mount.start(make_request(mount, "3"), "what came with it");

  for (const auto& call : {for_memory, for_a_worker}) {
    EXPECT_TRUE(call->lives());
    call->cancel();
    EXPECT_ERROR(call->wait(), ErrorCode::kCancelled);
    EXPECT_FALSE(call->lives());
  }
  gate.set_value();
  EXPECT_OK(one->wait());
  EXPECT_OK(two->wait());
  EXPECT_TRUE(server.service().drain(20s));
  EXPECT_FALSE(std::filesystem::exists(dir / "3"));
}

}  // namespace
}  // namespace tusk::server
