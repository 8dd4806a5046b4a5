// After an unclean end of the server nobody changes what mounts of before may still trust.
#include "log_of.h"
#include "mounts_with_leases.h"

namespace tusk::server {
namespace {

using namespace std::chrono_literals;

const std::string kKnownMount(kSessionIdBytes, 'k');
const std::string kOtherMount(kSessionIdBytes, 'o');
constexpr Duration kLeaseGrace = 10'500ms;

// Two servers, one after the other, with what the first one has written down.
class LeasesAcrossARestart : public testing::Test {
 protected:
  LeasesAcrossARestart() {
    write_file(dir / "file", "one");
    setup.leasers_dir = state.path() / "leasers";
    setup.watch = [](Export&, ChangeWatch::Events events) {
      return std::make_unique<TellTale>(std::move(events));
    };
    Server& first = start();
    Mount known(first, {.session = kKnownMount, .leases = true});
    EXPECT_EQ(known.attached().grace_ms(), 0u);
    file = known.handle("file");
  }
  ~LeasesAcrossARestart() override {
    for (const auto& server : servers) server->service().reach_clients_by(nullptr);
    pushes.answer_all();
  }

  // The next process, while the one before goes on: it finds what a crash would have left, without its locks.
  Server& start() {
    const auto before = setup.leasers_dir;
    setup.leasers_dir = state.path() / std::to_string(servers.size());
    if (std::filesystem::exists(before)) {
      std::filesystem::copy(before, setup.leasers_dir, std::filesystem::copy_options::recursive);
    }
    servers.push_back(std::make_unique<Server>(dir.path(), setup));
    servers.back()->service().reach_clients_by(&pushes);
    return *servers.back();
  }
  // As SIGHUP does it, with settings that are others.
  void replace_export(Server& server, const std::string& name) const {
    ExportSettings settings{.name = name, .path = dir.path(), .access = Access::kReadWrite};
    settings.clients = {client_key()};
    (void)server.service().replace_exports({Export::open(settings, test_secret()).value()});
  }
  static schema::Request writing(const std::string& file) {
    schema::Request request;
    request.mutable_write()->set_handle(file);
    request.mutable_write()->set_length(3);
    return request;
  }
  schema::Request writing() const { return writing(file); }

  TempDir dir;
  TempDir state;
  Pushes pushes;
  ServerSetup setup;
  std::vector<std::unique_ptr<Server>> servers;
  std::string file;
};

TEST_F(LeasesAcrossARestart, LetChangesWaitUntilTheMountsOfBeforeAreBack) {
  Server& second = start();
  Mount other(second, {.session = kOtherMount, .leases = true});
  EXPECT_GT(other.attached().grace_ms(), 0u);
  EXPECT_LE(other.attached().grace_ms(), 10'500u);
  const auto write = other.start(writing(), "two");
  EXPECT_OK(other.getattr(file));
  EXPECT_EQ(EXPECT_OK(other.read(file, 0, 0, 3)).text(), "one");
  EXPECT_FALSE(write->answered());
  EXPECT_EQ(read_file(dir / "file"), "one");
  Mount back(second, {.session = kKnownMount, .leases = true});
  EXPECT_FALSE(back.attached().resumed());
  EXPECT_EQ(back.attached().grace_ms(), 0u);
  EXPECT_OK(write->wait());
  EXPECT_EQ(second.service().grace_remaining(io::now()), Duration::zero());
}

TEST_F(LeasesAcrossARestart, LetChangesWaitForOneLeaseAtMostAndOnce) {
  {
    Server& second = start();
    Mount other(second, {.session = kOtherMount, .leases = true});
    const auto write = other.start(writing(), "two");
    second.housekeep_after(kLeaseGrace - 1s);
    EXPECT_FALSE(write->answered());
    second.housekeep_after(kLeaseGrace + 1s);
    EXPECT_OK(write->wait());
    other.disconnect(true);
    EXPECT_TRUE(second.service().drain(5s));
    second.service().reach_clients_by(nullptr);
  }
  Server& third = start();
  Mount other(third, {.session = kOtherMount, .leases = true});
  EXPECT_EQ(other.attached().grace_ms(), 0u);
  EXPECT_OK(other.call(writing(), "two"));
}

TEST_F(LeasesAcrossARestart, AreNotWaitedForWhereTheMountWasUnmounted) {
  Server& second = start();
  { Mount(second, {.session = kKnownMount, .leases = true}).disconnect(true); }
  EXPECT_TRUE(second.service().drain(5s));
  Server& third = start();
  Mount other(third, {.session = kOtherMount, .leases = true});
  EXPECT_OK(other.call(writing(), "two"));
}

TEST_F(LeasesAcrossARestart, AreNotWaitedForWhereTheMountWasAwayForLong) {
  Server& second = start();
  { Mount(second, {.session = kKnownMount, .leases = true}).disconnect(); }
  second.housekeep_after(kLeaseGrace + 1s);
  Server& third = start();
  Mount other(third, {.session = kOtherMount, .leases = true});
  EXPECT_OK(other.call(writing(), "two"));
}

TEST_F(LeasesAcrossARestart, AreOverAfterACleanEndThatAllHaveAnswered) {
  Server& second = start();
  Mount known(second, {.session = kKnownMount, .leases = true});
  (void)known.handle("file");
  std::jthread answering([&] {
    EXPECT_NE(pushes.wait_for(known.connection()).lease_floor(), 0u);
    pushes.answer_all();
  });
  second.service().end_leases(20s);
  EXPECT_EQ(known.getattr(file).reply.attr().attr().cover(), schema::COVER_LIFETIME)
      << "nothing is granted any more";
  Server& third = start();
  Mount other(third, {.session = kOtherMount, .leases = true});
  EXPECT_EQ(other.attached().grace_ms(), 0u);
  EXPECT_OK(other.call(writing(), "two"));
}

TEST_F(LeasesAcrossARestart, AreWaitedForAfterACleanEndThatAMountHasNotAnswered) {
  Server& second = start();
  Mount known(second, {.session = kKnownMount, .leases = true});
  (void)known.handle("file");
  second.service().end_leases(0s);
  Server& third = start();
  Mount other(third, {.session = kOtherMount, .leases = true});
  EXPECT_GT(other.attached().grace_ms(), 0u);
  EXPECT_FALSE(other.start(writing(), "two")->answered());
}

TEST_F(LeasesAcrossARestart, OfMountsWithoutLeasesNobodyWaitsFor) {
  Server& second = start();
  Mount back(second, {.session = kKnownMount});
  Mount plain(second, {.session = kOtherMount});
  Server& third = start();
  Mount other(third, {.session = std::string(kSessionIdBytes, 'x'), .leases = true});
  EXPECT_GT(other.attached().grace_ms(), 0u) << "the known one may be there with leases in another process";
  Mount again(third, {.session = kKnownMount});
  EXPECT_OK(other.call(writing(), "two"));
}

TEST_F(LeasesAcrossARestart, LetALogOfAMountThatIsBackWaitForTheOthers) {
  { Mount known_too(*servers.front(), {.session = kOtherMount, .leases = true}); }
  Server& second = start();
  Mount back(second, {.session = kKnownMount, .leases = true});
  const auto log = LogOf(1).write(file, 0, "two").start(back);
  EXPECT_EQ(read_file(dir / "file"), "one");
  Mount other(second, {.session = kOtherMount, .leases = true});
  EXPECT_EQ(errors_of(log->wait()).size(), 1u);
  EXPECT_EQ(read_file(dir / "file"), "two");
}

TEST_F(LeasesAcrossARestart, LetChangesWaitAlsoWhereTheExportHasOtherSettingsByThen) {
  Server& second = start();
  replace_export(second, "data");
  Mount other(second, {.session = kOtherMount, .leases = true});
  EXPECT_GT(other.attached().grace_ms(), 0u);
  const auto write = other.start(writing(), "two");
  EXPECT_OK(other.getattr(file));
  EXPECT_EQ(read_file(dir / "file"), "one");
  Mount back(second, {.session = kKnownMount, .leases = true});
  EXPECT_OK(write->wait());
}

TEST_F(LeasesAcrossARestart, LetChangesWaitAlsoWhereTheExportHasAnotherNameByThen) {
  setup.name = "elsewhere";
  Server& second = start();
  replace_export(second, "renamed");
  Mount other(second, {.export_name = "renamed", .session = kOtherMount, .leases = true});
  EXPECT_GT(other.attached().grace_ms(), 0u);
  const auto write = other.start(writing(other.handle("file")), "two");
  EXPECT_OK(other.getattr(other.handle("file")));
  EXPECT_EQ(read_file(dir / "file"), "one");
  second.housekeep_after(kLeaseGrace + 1s);
  EXPECT_OK(write->wait());
}

TEST_F(LeasesAcrossARestart, OutliveTheSettingsOfTheirExport) {
  Server& server = *servers.front();
  Mount silent(server, {.session = kKnownMount, .leases = true});
  (void)silent.handle("file");
  for (const std::string name : {"data", "renamed"}) {
    replace_export(server, name);
    silent.disconnect();  // and it does not hear why
    Mount other(server, {.export_name = name, .session = kOtherMount, .leases = true});
    const auto write = other.start(writing(other.handle("file")), "two");
    EXPECT_OK(other.getattr(other.handle("file")));
    EXPECT_FALSE(write->answered());
    if (name == "data") continue;
    server.housekeep_after(kLeaseGrace + 1s);
    EXPECT_OK(write->wait());
  }
}

// As after `tuskd share --rw` of two directories by one user.
TEST_F(LeasesAcrossARestart, OfAServerThatRunsAreOnlyItsOwn) {
  Server& second = start();
  Mount known(second, {.session = kKnownMount, .leases = true});
  TempDir elsewhere;
  write_file(elsewhere / "file", "one");
  ServerSetup beside = setup;
  beside.name = "elsewhere";
  Server other_server(elsewhere.path(), beside);
  other_server.service().reach_clients_by(&pushes);
  {
    Mount other(other_server, {.export_name = "elsewhere", .session = kOtherMount, .leases = true});
    EXPECT_EQ(other.attached().grace_ms(), 0u);
    EXPECT_OK(other.call(writing(other.handle("file")), "two"));
  }
  other_server.housekeep_after(kLeaseGrace + 1s);
  other_server.service().reach_clients_by(nullptr);
  Server& third = start();
  Mount other(third, {.session = kOtherMount, .leases = true});
  EXPECT_GT(other.attached().grace_ms(), 0u) << "the other server has left the entry where it was";
  EXPECT_FALSE(other.start(writing(), "two")->answered());
}

TEST_F(LeasesAcrossARestart, LetChangesWaitAlsoWhereNothingIsWatchedAnyMore) {
  setup.watch = nullptr;
  Server& second = start();
  Mount other(second, {.session = kOtherMount, .leases = true});
  const auto write = other.start(writing(), "two");
  EXPECT_OK(other.getattr(file));
  const auto log = LogOf(1).write(file, 0, "log").start(other);
  EXPECT_OK(other.getattr(file));
  EXPECT_FALSE(write->answered());
  EXPECT_FALSE(log->answered());
  EXPECT_EQ(read_file(dir / "file"), "one");
  second.housekeep_after(kLeaseGrace + 1s);
  EXPECT_OK(write->wait());
  EXPECT_EQ(errors_of(log->wait()).size(), 1u);
}

// The end of a session and the attach of its successor meet.
TEST_F(LeasesAcrossARestart, OfASuccessorOutliveTheEndOfTheSessionBefore) {
  LeaseKeeper keeper({});
  LeaseGrace grace(state.path() / "more", keeper);
  Export& exported = servers.front()->exported();
  grace.attached("session", exported, true);
  const std::uint64_t before = grace.attaches("session");
  grace.over("session");
  grace.attached("session", exported, true);
  grace.over("session", before);
  EXPECT_NE(grace.attaches("session"), 0u);
}

TEST(LocksOfASuccessor, OutliveTheEndOfTheSessionBefore) {
  TempDir state;
  LockingSessions lockers(state.path());
  lockers.add("session", 1, "data");
  lockers.add("session", 2, "data");
  lockers.remove("session", 1);
  lockers.remove("session", 0);
  EXPECT_EQ(lockers.of_export("data").size(), 1u);
  lockers.remove("session", 2);
  EXPECT_TRUE(lockers.of_export("data").empty());
  lockers.remove("of the process before", 0);
}

}  // namespace
}  // namespace tusk::server
