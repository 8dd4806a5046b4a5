// Who waits for an unlock that waits for data, and who does not.
#include "fsclient/unlocks_behind_data.h"

#include "client.h"

namespace tusk::client {
namespace {

class UnlockBehindData : public Client {
 protected:
  UnlockBehindData() {
    server.put("a", "");
    file = open("a");
  }
  Answer<void> lock(NewLock wanted) {
    auto answer = new_answer<void>();
    filesystem->set_lock({}, file, wanted, into(answer));
    scheduler.run();
    return answer;
  }
  // A program that is killed: its unlock waits for its data.
  void unlock_behind_data(const NewLock& held) {
    ASSERT_TRUE(finished(lock(held)));
    write(file, 0, "under the lock");
    const auto interrupt = std::make_shared<Interrupt>();
    interrupt->fire();
    auto flushed = new_answer<void>();
    filesystem->flush({.interrupt = interrupt}, file, held.owner, into(flushed));
    scheduler.advance(kInterruptGrace);
    ASSERT_TRUE(flushed->has_value());
    ASSERT_EQ(server.waiting_kinds(), (std::vector{schema::Request::kWrite}));
  }

  const NewLock first{.owner = 1, .type = F_WRLCK, .end = INT64_MAX};
  Handle file;
};

TEST_F(UnlockBehindData, OthersAskTheServer) {
  unlock_behind_data(first);
  const std::vector with_lock{schema::Request::kWrite, schema::Request::kLock};
  (void)lock({.owner = 2, .type = F_WRLCK, .end = INT64_MAX});
  EXPECT_EQ(server.waiting_kinds(), with_lock);
  server.answer(1);
  scheduler.run();
  settle();
}

TEST_F(UnlockBehindData, ItsOwnerWaitsUntilCallsFail) {
  unlock_behind_data(first);
  const auto again = lock(first);
  EXPECT_EQ(server.waiting_kinds(), (std::vector{schema::Request::kWrite}));
  EXPECT_FALSE(again->has_value());
  filesystem->handle_outage({ErrorCode::kTimedOut, "out of reach"});
  ASSERT_TRUE(again->has_value());
  EXPECT_EQ((*again)->error().code, ErrorCode::kTimedOut);
  settle();
}

TEST_F(UnlockBehindData, AFlockWaitsHereIfItMayWaitAtAll) {
  UnlocksBehindData unlocks;
  InodeTable inodes("root");
  const std::shared_ptr<Inode> inode = inodes.make();
  const std::shared_ptr<Inode> other = inodes.make();
  const NewLock unlock{.flock = true, .owner = 1, .type = F_UNLCK};
  const NewLock waits{.flock = true, .owner = 2, .type = F_WRLCK, .wait = true};
  const NewLock tries{.flock = true, .owner = 2, .type = F_WRLCK};
  const NewLock record{.owner = 1, .type = F_WRLCK, .wait = true};
  unlocks.begin(*inode, unlock);
  EXPECT_TRUE(unlocks.concern(*inode, waits));
  EXPECT_FALSE(unlocks.concern(*inode, tries));
  EXPECT_FALSE(unlocks.concern(*inode, record));
  EXPECT_FALSE(unlocks.concern(*other, waits));
  UnlocksBehindData::Waiter waiter{[] {}, [](const Error&) {}};
  EXPECT_TRUE(unlocks.wait(*inode, waits, waiter));
  EXPECT_EQ(unlocks.end(*inode, unlock).size(), 1u);
  EXPECT_FALSE(unlocks.concern(*inode, waits));
  EXPECT_TRUE(unlocks.take_waiters().empty());
}

}  // namespace
}  // namespace tusk::client
