// Mutations are done once, however often they are sent.
#include "mount.h"

namespace tusk::server {
namespace {

schema::Request make_directory(const Mount& mount, std::string name, std::uint64_t sequence,
                               std::uint64_t done_below = 0) {
  schema::Request request;
  request.set_sequence(sequence);
  request.set_sequence_done(done_below);
  request.mutable_make_node()->set_parent(mount.root());
  request.mutable_make_node()->set_name(std::move(name));
  request.mutable_make_node()->set_mode(S_IFDIR | 0755);
  return request;
}

TEST(Once, ARepeatGetsTheFirstAnswer) {
  TempDir dir;
  Server server(dir.path());
  Mount mount(server);
  const Answer first = EXPECT_OK(mount.call(make_directory(mount, "d", 1)));
  std::filesystem::remove(dir / "d");
  const Answer again = EXPECT_OK(mount.call(make_directory(mount, "d", 1)));
  EXPECT_EQ(again.reply.SerializeAsString(), first.reply.SerializeAsString());
  EXPECT_FALSE(std::filesystem::exists(dir / "d"));
}

TEST(Once, AnErrorIsRememberedToo) {
  TempDir dir;
  std::filesystem::create_directory(dir / "d");
  Server server(dir.path());
  Mount mount(server);
  EXPECT_ERROR(mount.call(make_directory(mount, "d", 1)), err(EEXIST));
  std::filesystem::remove(dir / "d");
  EXPECT_ERROR(mount.call(make_directory(mount, "d", 1)), err(EEXIST));
}

TEST(Once, AlsoAfterAReconnect) {
  TempDir dir;
  Server server(dir.path());
  Mount mount(server);
  EXPECT_OK(mount.call(make_directory(mount, "d", 7)));
  mount.reconnect();
  mount.attach();
  EXPECT_OK(mount.call(make_directory(mount, "d", 7)));
}

TEST(Once, TwoMountsHaveSequencesOfTheirOwn) {
  TempDir dir;
  Server server(dir.path());
  Mount mount(server);
  Mount other(server, {.session = std::string(kSessionIdBytes, 'o')});
  EXPECT_OK(mount.call(make_directory(mount, "a", 1)));
  EXPECT_OK(other.call(make_directory(other, "b", 1)));
  EXPECT_TRUE(std::filesystem::exists(dir / "b"));
}

TEST(Once, WhatOnlyLooksIsNotRemembered) {
  TempDir dir;
  Server server(dir.path());
  Mount mount(server);
  schema::Request list;
  list.set_sequence(1);
  list.mutable_readdir()->set_handle(mount.root());
  EXPECT_EQ(EXPECT_OK(mount.call(list)).reply.readdir().entries_size(), 0);
  write_file(dir / "file", "");
  EXPECT_EQ(EXPECT_OK(mount.call(list)).reply.readdir().entries_size(), 1);
}

TEST(Once, ForgetsWhatTheClientHasTheAnswerOf) {
  TempDir dir;
  Server server(dir.path());
  Mount mount(server);
  EXPECT_OK(mount.call(make_directory(mount, "a", 1)));
  EXPECT_OK(mount.call(make_directory(mount, "b", 2, 2)));
  std::filesystem::remove(dir / "a");
  // A straggler from the network: it must not run again.
  EXPECT_ERROR(mount.call(make_directory(mount, "a", 1)), ErrorCode::kCancelled);
  EXPECT_FALSE(std::filesystem::exists(dir / "a"));
}

TEST(Once, WithoutASequenceEveryCallRuns) {
  TempDir dir;
  Server server(dir.path());
  Mount mount(server);
  EXPECT_OK(mount.call(make_directory(mount, "d", 0)));
  EXPECT_ERROR(mount.call(make_directory(mount, "d", 0)), err(EEXIST));
}

TEST(ReplyMemory, RepeatsOfARunningCallWaitForIt) {
  ReplyMemory memory;
  int answers = 0;
  const auto count = [&](const schema::Reply& reply) { answers += static_cast<int>(reply.error()); };
  EXPECT_EQ(memory.begin(1, 0, count), ReplyMemory::Verdict::kRun);
  EXPECT_EQ(memory.begin(1, 0, count), ReplyMemory::Verdict::kJoined);
  EXPECT_EQ(memory.begin(1, 0, count), ReplyMemory::Verdict::kJoined);
  EXPECT_EQ(answers, 0);
  schema::Reply reply;
  reply.set_error(1);
  memory.finish(1, reply);
  EXPECT_EQ(answers, 2);
  EXPECT_EQ(memory.begin(1, 0, count), ReplyMemory::Verdict::kAnswered);
  EXPECT_EQ(answers, 3);
}

TEST(ReplyMemory, IsBounded) {
  ReplyMemory memory;
  const auto ignore = [](const schema::Reply&) {};
  for (std::uint64_t sequence = 1; sequence <= kRememberedRepliesMax; ++sequence) {
    ASSERT_EQ(memory.begin(sequence, 0, ignore), ReplyMemory::Verdict::kRun);
    memory.finish(sequence, {});
  }
  EXPECT_EQ(memory.begin(kRememberedRepliesMax + 1, 0, ignore), ReplyMemory::Verdict::kFull);
  EXPECT_EQ(memory.begin(kRememberedRepliesMax + 1, kRememberedRepliesMax, ignore),
            ReplyMemory::Verdict::kRun);
  EXPECT_EQ(memory.size(), 2u);
}

TEST(ReplyMemory, IsBoundedInBytes) {
  ReplyMemory memory;
  const auto ignore = [](const schema::Reply&) {};
  schema::Reply large;
  large.set_message(std::string(kRememberedBytesMax / 4, 'x'));
  for (std::uint64_t sequence = 1; sequence <= 4; ++sequence) {
    ASSERT_EQ(memory.begin(sequence, 0, ignore), ReplyMemory::Verdict::kRun);
    memory.finish(sequence, large);
  }
  EXPECT_EQ(memory.begin(5, 0, ignore), ReplyMemory::Verdict::kFull);
  EXPECT_EQ(memory.begin(5, 2, ignore), ReplyMemory::Verdict::kRun);
}

// LOGs have been answered to programs: better no answer to a repeat than no LOG.
TEST(ReplyMemory, OfLogsForgetsTheOldestInsteadOfRefusing) {
  ReplyMemory memory(kOfLogs);
  const auto ignore = [](const schema::Reply&) {};
  ASSERT_EQ(memory.begin(1, 0, ignore), ReplyMemory::Verdict::kRun);
  for (std::uint64_t number = 2; number <= 2 * kRememberedLogsMax; ++number) {
    ASSERT_EQ(memory.begin(number, 0, ignore), ReplyMemory::Verdict::kRun);
    memory.finish(number, {});
  }
  EXPECT_EQ(memory.size(), kRememberedLogsMax);
  EXPECT_EQ(memory.begin(1, 0, ignore), ReplyMemory::Verdict::kJoined) << "it is in progress";
  schema::Reply large;
  large.set_message(std::string(kRememberedLogBytesMax / 4, 'x'));
  for (std::uint64_t number = 5000; number < 5008; ++number) {
    ASSERT_EQ(memory.begin(number, 0, ignore), ReplyMemory::Verdict::kRun);
    memory.finish(number, large);
  }
  EXPECT_LE(memory.size(), 5u);
  EXPECT_EQ(memory.begin(5007, 0, ignore), ReplyMemory::Verdict::kAnswered);
}

TEST(ReplyMemory, OfManyRepeatsTheNewestWait) {
  ReplyMemory memory;
  std::vector<std::size_t> answered;
  EXPECT_EQ(memory.begin(1, 0, [](const schema::Reply&) {}), ReplyMemory::Verdict::kRun);
  for (std::size_t repeat = 0; repeat < 2 * kRepeatsWaitingMax; ++repeat)
    EXPECT_EQ(memory.begin(1, 0, [&, repeat](const schema::Reply&) { answered.push_back(repeat); }),
              ReplyMemory::Verdict::kJoined);
  memory.finish(1, {});
  EXPECT_EQ(answered.size(), kRepeatsWaitingMax);
  EXPECT_EQ(answered.back(), 2 * kRepeatsWaitingMax - 1);
}

TEST(ReplyMemory, KeepsWhatIsStillRunningWhateverTheClientSays) {
  ReplyMemory memory;
  const auto ignore = [](const schema::Reply&) {};
  EXPECT_EQ(memory.begin(1, 0, ignore), ReplyMemory::Verdict::kRun);
  EXPECT_EQ(memory.begin(2, 5, ignore), ReplyMemory::Verdict::kForgotten);
  EXPECT_EQ(memory.begin(1, 5, ignore), ReplyMemory::Verdict::kJoined);
  memory.finish(1, {});
  EXPECT_EQ(memory.size(), 0u);
}

TEST(ReplyMemory, WhatIsWithdrawnHasNeverCome) {
  ReplyMemory memory;
  EXPECT_EQ(memory.begin(1, 0, [](const schema::Reply&) {}), ReplyMemory::Verdict::kRun);
  EXPECT_TRUE(memory.withdraw(1));
  EXPECT_EQ(memory.size(), 0u);
  EXPECT_EQ(memory.begin(1, 0, [](const schema::Reply&) {}), ReplyMemory::Verdict::kRun);
}

TEST(ReplyMemory, WhatARepeatWaitsForIsNotWithdrawn) {
  ReplyMemory memory;
  const auto ignore = [](const schema::Reply&) {};
  bool wanted = true;
  bool answered = false;
  EXPECT_EQ(memory.begin(1, 0, ignore), ReplyMemory::Verdict::kRun);
  EXPECT_EQ(memory.begin(1, 0, ignore, [] { return false; }), ReplyMemory::Verdict::kJoined);
  EXPECT_EQ(memory.begin(
                1, 0, [&](const schema::Reply&) { answered = true; }, [&] { return wanted; }),
            ReplyMemory::Verdict::kJoined);
  EXPECT_FALSE(memory.withdraw(1));
  wanted = false;
  EXPECT_TRUE(memory.withdraw(1));
  EXPECT_FALSE(answered);
}

}  // namespace
}  // namespace tusk::server
