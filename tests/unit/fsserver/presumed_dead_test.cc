// A mount was killed, and the next one of the same client says so when it attaches.
#include <atomic>
#include <thread>

#include "log_of.h"
#include "mounts_with_leases.h"

namespace tusk::server {
namespace {

using namespace std::chrono_literals;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

const std::string kNext(kSessionIdBytes, 'n');

class PresumedDead : public MountsWithLeases {
 protected:
  PresumedDead() {
    schema::Request acquire;
    acquire.mutable_acquire()->add_handles(sub);
    EXPECT_EQ(EXPECT_OK(writer->call(acquire)).reply.acquire().names(0), schema::COVER_EXCLUSIVE);
  }
  MountSetup naming(std::vector<std::string> ended, const crypto::Fingerprint& key = client_key()) const {
    return {.key = key, .session = kNext, .leases = true, .ended_sessions = std::move(ended)};
  }
  static schema::Request write_lock(const std::string& file) {
    schema::Request request;
    schema::LockRequest& lock = *request.mutable_lock();
    lock.set_handle(file);
    lock.set_owner(1);
    lock.set_type(static_cast<std::uint32_t>(LockType::kWrite));
    lock.set_end(kLockEnd);
    return request;
  }
  std::shared_ptr<PendingCall> look(Mount& looking) const {
    schema::Request request;
    request.mutable_readdir()->set_handle(sub);
    return looking.start(request);
  }
  void expect_waited_for(Mount& looking) {
    const auto waiting = look(looking);
    EXPECT_NE(pushes.wait_for_recall(writer->connection()).exclusive_over(), 0u);
    EXPECT_FALSE(waiting->answered());
    pushes.answer_all();
    EXPECT_OK(waiting->wait());
  }

  const std::string sub = writer->handle("sub");               // is the writer's alone
  const std::string died = std::string(kSessionIdBytes, 'w');  // the writer's
};

TEST_F(PresumedDead, IsNotWaitedFor) {
  Mount next(server, naming({"short", died, std::string(kSessionIdBytes, '?')}));
  EXPECT_OK(look(next)->wait());
  EXPECT_EQ(pushes.waiting(), 0u);
  server.housekeep_after(0s);
  EXPECT_THAT(pushes.cut, Contains(writer->connection())) << "should it be alive after all";
}

// It had answered them to its programs. The first waits for somebody, the second for its turn.
TEST_F(PresumedDead, HasTheLogsThatHaveComeCarriedOutFirst) {
  const std::string file = reader->handle("file");
  const auto first = LogOf(1).write(file, 0, "two").start(*writer);
  const auto second = LogOf(2).create(0, sub, "late").start(*writer);
  (void)pushes.wait_for(reader->connection());
  Mount next(server, naming({died}));
  const auto looking = look(next);
  (void)pushes.wait_for_recall(writer->connection());
  server.housekeep_after(1s);
  EXPECT_FALSE(looking->answered());
  EXPECT_THAT(pushes.cut, IsEmpty());
  pushes.answer(reader->connection());
  EXPECT_THAT(errors_of(first->wait()), ElementsAre(kDone));
  EXPECT_THAT(errors_of(second->wait()), ElementsAre(kDone));
  EXPECT_FALSE(looking->answered()) << "the next one may be just coming";
  while (!looking->answered()) server.housekeep_after(1s);  // a turn ends a moment after its answer
  EXPECT_EQ(EXPECT_OK(looking->wait()).reply.readdir().entries_size(), 1);
}

TEST_F(PresumedDead, IsNobodyBySayingNothing) {
  Mount next(server, naming({}));
  expect_waited_for(next);
  EXPECT_THAT(pushes.cut, IsEmpty());
}

TEST_F(PresumedDead, IsNoneOfAnotherKey) {
  Mount thief(server, naming({died}, client_key(2)));
  expect_waited_for(thief);
  EXPECT_THAT(pushes.cut, IsEmpty());
}

TEST_F(PresumedDead, AreOnlySoManyByOneAttach) {
  std::vector<std::string> many(16, std::string(kSessionIdBytes, '?'));
  many.push_back(died);
  Mount next(server, naming(many));
  expect_waited_for(next);
}

TEST_F(PresumedDead, IsNotWhoSaysIt) {
  Mount itself(server, naming({kNext}));
  itself.reconnect();
  EXPECT_OK(itself.attach());
  EXPECT_THAT(pushes.cut, IsEmpty());
  EXPECT_TRUE(itself.attached().resumed());
}

TEST_F(PresumedDead, GivesItsLocksToWhoWantsThem) {
  const std::string file = writer->handle("file");
  EXPECT_OK(writer->call(write_lock(file)));
  EXPECT_ERROR(reader->call(write_lock(file)), err(EAGAIN));
  const Mount next(server, naming({died}));
  EXPECT_OK(reader->call(write_lock(file)));
}

TEST_F(PresumedDead, ComesBackAsOneThatWasAwayForLong) {
  const Mount next(server, naming({died}));
  server.housekeep_after(0s);
  writer->reconnect();
  EXPECT_OK(writer->attach());
  EXPECT_TRUE(writer->attached().resumed());
  EXPECT_NE(pushes.wait_for_recall(writer->connection()).exclusive_over(), 0u)
      << "it is told what it has lost";
  EXPECT_OK(writer->getattr(writer->root()));
}

// The LOG of a redo waits for the only worker when the next redo takes its place.
TEST(PresumedDeadAfterARedo, IsNotWaitedForBecauseOfOneThatWasBegunAnew) {
  TempDir dir;
  std::filesystem::create_directory(dir / "sub");
  Pushes pushes;
  std::atomic<bool> hold{false}, held{false};
  Server server(dir.path(), {.mutated =
                                 [&](Export&, const std::vector<std::string>&) {
                                   held = hold.load();
                                   while (hold) std::this_thread::yield();
                                 },
                             .watch =
                                 [](Export&, ChangeWatch::Events events) {
                                   return std::make_unique<TellTale>(std::move(events));
                                 },
                             .workers = 1});
  server.service().reach_clients_by(&pushes);
  {
    const std::string died(kSessionIdBytes, 'w');
    Mount writer(server, {.session = died, .leases = true});
    const std::string sub = writer.handle("sub");
    schema::Request acquire;
    acquire.mutable_acquire()->add_handles(sub);
    EXPECT_OK(writer.call(acquire));
    hold = true;
    const auto holding = LogOf(1).create(0, writer.root(), "new").start(writer);
    while (!held) std::this_thread::yield();
    std::vector<std::shared_ptr<PendingCall>> logs;
    for (const unsigned redo : {1u, 2u}) {
      LogOf log(1);
      log.log().set_redo(redo);
      logs.push_back(log.setattr(sub).start(writer));
    }
    hold = false;
    EXPECT_OK(holding->wait());
    EXPECT_OK(logs.back()->wait());
    Mount next(server, {.session = kNext, .leases = true, .ended_sessions = {died}});
    schema::Request list;
    list.mutable_readdir()->set_handle(sub);
    const auto looking = next.start(list);
    for (int i = 0; i < 200 && !looking->answered(); ++i) {
      server.housekeep_after(1s);
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_TRUE(looking->answered());
  }
  server.service().reach_clients_by(nullptr);
  pushes.answer_all();
}

}  // namespace
}  // namespace tusk::server
