// The client's list of its locks: what it asks for again, and what it finds lost.
#include "fsclient/held_locks.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "fsclient/inode_table.h"

namespace tusk::client {
namespace {

class Holding : public testing::Test {
 protected:
  Holding() {
    const auto inode = std::make_shared<Inode>(table_, NodeId(7), "handle");
    file_ = open_of(inode);
    other_ = open_of(inode);
  }
  static std::shared_ptr<OpenFile> open_of(const std::shared_ptr<Inode>& inode) {
    return std::make_shared<OpenFile>(inode, 1, O_RDWR, [](std::uint64_t) {});
  }
  static NewLock record(std::uint64_t owner, std::uint32_t type, std::uint64_t start, std::uint64_t end) {
    return {.owner = owner, .type = type, .start = start, .end = end};
  }
  // Owner, type and range of each, in the order of their starts.
  std::vector<std::string> offered() {
    request_ = {};
    locks_.offer(request_);
    std::vector<std::string> texts;
    for (const schema::LockRequest& lock : request_.locks())
      texts.push_back(std::to_string(lock.start()) + "-" + std::to_string(lock.end()) + " of " +
                      std::to_string(lock.owner()) + (lock.type() == F_RDLCK ? " shared" : ""));
    std::ranges::sort(texts);
    return texts;
  }

  InodeTable table_{"root"};
  std::shared_ptr<OpenFile> file_;
  std::shared_ptr<OpenFile> other_;
  HeldLocks locks_;
  schema::AttachRequest request_;
};

using Texts = std::vector<std::string>;

TEST_F(Holding, RangesAreCutAsTheServerCutsThem) {
  locks_.note(file_, record(1, F_WRLCK, 10, 19));
  locks_.note(file_, record(2, F_RDLCK, 30, 39));
  EXPECT_EQ(offered(), (Texts{"10-19 of 1", "30-39 of 2 shared"}));
  locks_.note(file_, record(1, F_RDLCK, 13, 15));
  EXPECT_EQ(offered(), (Texts{"10-12 of 1", "13-15 of 1 shared", "16-19 of 1", "30-39 of 2 shared"}));
  locks_.note(file_, record(1, F_UNLCK, 12, 100));
  EXPECT_EQ(offered(), (Texts{"10-11 of 1", "30-39 of 2 shared"}));
  locks_.note(file_, record(1, F_UNLCK, 0, INT64_MAX));
  locks_.note(file_, record(2, F_UNLCK, 0, INT64_MAX));
  EXPECT_EQ(locks_.count(), 0u);
}

TEST_F(Holding, AFlockIsOneAndBesideRecordLocks) {
  locks_.note(file_, {.flock = true, .owner = 1, .type = F_RDLCK});
  locks_.note(file_, record(1, F_WRLCK, 0, 9));
  locks_.note(file_, {.flock = true, .owner = 1, .type = F_WRLCK});
  EXPECT_EQ(locks_.count(), 2u);
  locks_.note(file_, {.flock = true, .owner = 1, .type = F_UNLCK});
  EXPECT_EQ(offered(), (Texts{"0-9 of 1"}));
}

TEST_F(Holding, WhatIsNotKeptIsLostToThoseWhoTookIt) {
  locks_.note(file_, record(1, F_WRLCK, 0, 9));
  locks_.note(other_, record(2, F_WRLCK, 10, 19));
  (void)offered();
  locks_.note(file_, record(1, F_WRLCK, 30, 39));  // granted since: the answer does not speak of it
  schema::AttachReply reply;
  for (int index = 0; index < request_.locks_size(); ++index)
    if (request_.locks(index).owner() == 1) reply.add_locks_kept(static_cast<std::uint32_t>(index));
  EXPECT_EQ(locks_.settle(reply), (std::vector{other_}));
  EXPECT_EQ(offered(), (Texts{"0-9 of 1", "30-39 of 1"}));
}

TEST_F(Holding, WhatThereIsNoRoomForIsKeptOnlyWithTheSession) {
  constexpr std::uint64_t kMany = 1000;
  for (std::uint64_t lock = 0; lock < kMany; ++lock)
    locks_.note(file_, record(1, F_WRLCK, 2 * lock, 2 * lock));
  (void)offered();
  const auto room = static_cast<std::uint32_t>(request_.locks_size());
  EXPECT_GT(room, 100u);
  EXPECT_LT(room, kMany);
  EXPECT_LE(request_.ByteSizeLong(), kOfferedBytesMax);
  schema::AttachReply reply;
  for (std::uint32_t index = 0; index < room; ++index) reply.add_locks_kept(index);
  reply.set_resumed(true);
  EXPECT_TRUE(locks_.settle(reply).empty());
  (void)offered();
  reply.set_resumed(false);
  EXPECT_EQ(locks_.settle(reply).size(), kMany - room);
  EXPECT_EQ(locks_.count(), room);
}

TEST_F(Holding, AClosedFileHasNone) {
  locks_.note(other_, record(2, F_WRLCK, 10, 19));
  other_.reset();
  EXPECT_TRUE(offered().empty());
  EXPECT_TRUE(locks_.settle({}).empty());
  EXPECT_EQ(locks_.count(), 0u);
}

}  // namespace
}  // namespace tusk::client
