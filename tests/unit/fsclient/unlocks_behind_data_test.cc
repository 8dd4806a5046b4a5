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

// The kernel names the owner of a flock by an address, which the next open has as soon as it is free.
TEST_F(UnlockBehindData, OfAFlockLeavesThatOfTheNextOpenWhichTheKernelNamesAlike) {
  const NewLock held{.flock = true, .owner = 1, .type = F_WRLCK, .end = INT64_MAX};
  const Handle next_open = open("a");
  ASSERT_TRUE(finished(lock(held)));
  write(file, 0, "under the lock");
  filesystem->release(file, true);
  scheduler.run();
  ASSERT_EQ(server.waiting_kinds(), (std::vector{schema::Request::kWrite}));
  file = next_open;
  const auto next = lock(held);
  const auto owner_asked_for = [this](std::uint32_t type) {
    for (const auto& call : server.waiting())
      if (call.request.message.has_lock() && call.request.message.lock().type() == type)
        return call.request.message.lock().owner();
    return std::uint64_t{0};
  };
  const std::uint64_t taken_by = owner_asked_for(F_WRLCK);
  EXPECT_NE(taken_by, 0u);
  server.answer();  // the data
  scheduler.run();
  const std::uint64_t given_back_by = owner_asked_for(F_UNLCK);
  EXPECT_NE(given_back_by, 0u);
  EXPECT_NE(given_back_by, taken_by);
  EXPECT_TRUE(finished(next));
  const schema::AttachRequest again = reattach(server.attached());
  ASSERT_EQ(again.locks_size(), 1) << "what the mount would ask for again";
  EXPECT_EQ(again.locks(0).owner(), taken_by);
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

// Its data is at the server: the answer is a round trip away, and a program that may not wait would be told
// that a lock is taken which nobody has any more.
TEST_F(UnlockBehindData, OthersThatMayNotWaitDoSoOnceItIsSent) {
  const NewLock of_description{.owner = 77, .type = F_WRLCK, .end = INT64_MAX};
  const Handle closed = open("a");
  auto locked = new_answer<void>();
  filesystem->set_lock({}, closed, of_description, into(locked));
  ASSERT_TRUE(finished(locked));
  filesystem->release(closed, false);  // F_OFD_SETLK: nobody's flush gives the lock back
  ASSERT_EQ(server.waiting_kinds().front(), schema::Request::kLock);
  const auto others = lock({.owner = 2, .type = F_WRLCK, .end = INT64_MAX});
  EXPECT_EQ(std::ranges::count(server.waiting_kinds(), schema::Request::kLock), 1);
  settle();
  EXPECT_TRUE(others->has_value());
}

// A process that locks again through another descriptor keeps that lock when the first one's release comes
// late.
TEST_F(UnlockBehindData, OfADescriptionLeavesWhatAProcessHasLockedAnew) {
  const Handle first_handle = open("a");
  const NewLock of_process{.owner = 5, .type = F_WRLCK, .end = INT64_MAX};
  auto locked = new_answer<void>();
  filesystem->set_lock({}, first_handle, of_process, into(locked));
  ASSERT_TRUE(finished(locked));
  auto flushed = new_answer<void>();
  filesystem->flush({}, first_handle, of_process.owner, into(flushed));
  ASSERT_TRUE(finished(flushed));
  ASSERT_TRUE(finished(lock(of_process)));
  filesystem->release(first_handle, false);
  EXPECT_EQ(std::ranges::count(server.waiting_kinds(), schema::Request::kLock), 0);
  settle();
}

}  // namespace
}  // namespace tusk::client
