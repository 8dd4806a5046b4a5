// What the server does without being asked, and that it does nothing when there is nothing to do.
#include <atomic>
#include <latch>
#include <thread>

#include "mounts_with_leases.h"
#include "tests/support/sleeps.h"

namespace tusk::server {
namespace {

using namespace std::chrono_literals;

// Whose file system does not let go of it.
class LingeringWatch final : public ChangeWatch {
 public:
  LingeringWatch(std::latch& ending, std::latch& may_end) : ending_(ending), may_end_(may_end) {}
  ~LingeringWatch() override {
    ending_.count_down();
    may_end_.wait();
  }
  [[nodiscard]] schema::ChangeWatching kind() const override { return schema::WATCH_FANOTIFY; }
  [[nodiscard]] bool watch_node(std::string_view, const Status&) override { return true; }
  [[nodiscard]] bool watch_names(std::string_view, const Fd&) override { return true; }

 private:
  std::latch& ending_;
  std::latch& may_end_;
};

std::shared_ptr<Export> open_export(std::string name, const std::filesystem::path& path) {
  ExportSettings settings;
  settings.name = std::move(name);
  settings.path = path;
  settings.access = Access::kReadWrite;
  settings.clients = {client_key()};
  return Export::open(settings, test_secret(), {}).value();
}

TEST(Housekeeping, EndsLeasesInTimeAlsoWhileAFileSystemHangs) {
  TempDir dir, other;
  write_file(dir / "file", "one");
  std::latch ending(1), may_end(1);
  const auto watch = [&](Export& exported, ChangeWatch::Events events) -> std::unique_ptr<ChangeWatch> {
    if (exported.name() == "other") return std::make_unique<LingeringWatch>(ending, may_end);
    return std::make_unique<TellTale>(std::move(events));
  };
  Pushes pushes;
  Server server(dir.path(), {.watch = watch,
                             .leases = {.lease = 300ms, .slack = 10ms, .room_bytes = 0, .room_files = 0},
                             .own_housekeeping = true});
  server.service().reach_clients_by(&pushes);
  const auto data = open_export("data", dir.path());
  (void)server.service().replace_exports({data, open_export("other", other.path())});
  Mount reader(server, {.session = std::string(kSessionIdBytes, 'r'), .leases = true});
  Mount writer(server, {.session = std::string(kSessionIdBytes, 'w'), .leases = true});
  EXPECT_NE(reader.handle("file"), "");
  (void)server.service().replace_exports({data});
  ending.wait();
  schema::Request request;
  request.mutable_remove()->set_parent(writer.root());
  request.mutable_remove()->set_name("file");
  const auto removing = writer.start(request);
  EXPECT_TRUE(pushes.wait_for(reader.connection()).items_size() > 0);
  reader.disconnect();
  EXPECT_OK(removing->wait());  // when the lease of who is away is over
  may_end.count_down();
  server.service().reach_clients_by(nullptr);
  pushes.answer_all();
}

// Whose file system does not answer as long as a test says so.
class HangingWatch final : public ChangeWatch {
 public:
  explicit HangingWatch(std::atomic<bool>& hangs) : hangs_(hangs) {}
  [[nodiscard]] schema::ChangeWatching kind() const override { return schema::WATCH_FANOTIFY; }
  [[nodiscard]] bool watch_node(std::string_view, const Status&) override {
    hangs_.wait(true);
    return true;
  }
  [[nodiscard]] bool watch_names(std::string_view, const Fd&) override { return true; }

 private:
  std::atomic<bool>& hangs_;
};

TEST(Housekeeping, LeavesToWorkersWhatWaitedForALeaseHoweverManyCallsWait) {
  TempDir dir;
  write_file(dir / "file", "one");
  std::atomic<bool> hangs{false};
  const auto watch = [&](Export&, const ChangeWatch::Events&) -> std::unique_ptr<ChangeWatch> {
    return std::make_unique<HangingWatch>(hangs);
  };
  Pushes pushes;
  Server server(dir.path(), {.watch = watch,
                             .workers = 2,
                             .leases = {.lease = 300ms, .slack = 10ms, .room_bytes = 0, .room_files = 0}});
  server.service().reach_clients_by(&pushes);
  Mount reader(server, {.session = std::string(kSessionIdBytes, 'r'), .leases = true});
  Mount writer(server, {.session = std::string(kSessionIdBytes, 'w'), .leases = true});
  EXPECT_NE(reader.handle("file"), "");
  schema::Request request;
  request.mutable_remove()->set_parent(writer.root());
  request.mutable_remove()->set_name("file");
  const auto removing = writer.start(request);
  (void)pushes.wait_for(reader.connection());
  reader.disconnect();

  hangs = true;
  schema::Request look;
  look.mutable_getattr()->set_handle(writer.root());
  std::vector<std::shared_ptr<PendingCall>> looking;
  do looking.push_back(writer.start(look));
  while (!looking.back()->answered());
  EXPECT_ERROR(looking.back()->wait(), ErrorCode::kLimitExceeded);
  server.housekeep_after(1s);
  EXPECT_FALSE(removing->answered());
  EXPECT_TRUE(std::filesystem::exists(dir / "file"));

  hangs = false;
  hangs.notify_all();
  EXPECT_OK(removing->wait());
  server.service().reach_clients_by(nullptr);
  pushes.answer_all();
}

TEST(Housekeeping, RestsUntilThereIsSomethingToKeep) {
  TempDir dir;
  write_file(dir / "file", "content");
  const support::Sleeps older = support::sleeps_of_the_first();
  Server server(dir.path(), {.own_housekeeping = true});
  std::this_thread::sleep_for(1500ms);
  const support::Sleeps before = support::sleeps_of_others(older);
  std::this_thread::sleep_for(2500ms);
  EXPECT_LE(support::sleeps_since(before), 1u);

  Mount mount(server);
  EXPECT_NE(mount.handle("file"), "");
  const std::size_t held = server.exported().nodes().descriptors();
  std::filesystem::remove(dir / "file");
  for (int i = 0; i < 200 && server.exported().nodes().descriptors() >= held; ++i)
    std::this_thread::sleep_for(50ms);
  EXPECT_LT(server.exported().nodes().descriptors(), held) << "the space of the removed file is in use";
}

}  // namespace
}  // namespace tusk::server
