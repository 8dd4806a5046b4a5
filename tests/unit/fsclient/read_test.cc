// Reading: what is asked of the server, what is not, and that the bytes are right.
#include "client.h"

namespace tusk::client {
namespace {

class Reading : public Client {};

TEST_F(Reading, ASmallFileComesWithItsOpen) {
  server.put("a", "hello");
  const Handle file = open("a");
  EXPECT_EQ(read(file, 0, 100), "hello");
  EXPECT_EQ(read(file, 2, 2), "ll");
  EXPECT_EQ(read(file, 5, 100), "");
  EXPECT_EQ(server.seen(schema::Request::kRead), 0u);
  close(file);
  EXPECT_EQ(server.open_files(), 0u);
}

TEST_F(Reading, EveryByteIsFetchedOnce) {
  const std::string content = pattern(3'000'000);
  server.put("a", content);
  const Handle file = open("a");
  std::string got;
  for (ByteCount offset = 0; offset < content.size(); offset += 128 * kKiB)
    got += read(file, offset, 128 * kKiB);
  EXPECT_EQ(got, content);
  EXPECT_EQ(filesystem->counters().fetched.load(), content.size());
}

TEST_F(Reading, TwoReadersOfTheSameBytesShareOneFetch) {
  server.put("a", pattern(2'000'000));
  const Handle file = open("a");
  const auto one = begin_read(file, 1'000'000, 1000);
  const auto two = begin_read(file, 1'000'100, 500);
  EXPECT_EQ(server.waiting().size(), 1u);
  EXPECT_EQ(text_of(finished(one)), pattern(2'000'000).substr(1'000'000, 1000));
  EXPECT_EQ(text_of(finished(two)), pattern(2'000'000).substr(1'000'100, 500));
}

TEST_F(Reading, ARandomReadBringsLittleMore) {
  server.put("a", pattern(20'000'000));
  const Handle file = open("a");
  const auto before = filesystem->counters().fetched.load();
  (void)read(file, 10'000'000, 4096);
  EXPECT_LE(filesystem->counters().fetched.load() - before, 2 * ReadAhead::kGrainNearby);
}

TEST_F(Reading, AnswersInAnyOrder) {
  const std::string content = pattern(2'000'000);
  server.put("a", content);
  const Handle file = open("a");
  const auto answer = begin_read(file, 500'000, 1'000'000);
  while (!server.waiting().empty()) server.answer(server.waiting().size() - 1);
  EXPECT_EQ(text_of(finished(answer)), content.substr(500'000, 1'000'000));
}

TEST_F(Reading, AFailureIsAnErrorAndTheNextReadTriesAgain) {
  server.put("a", pattern(1'000'000));
  const Handle file = open("a");
  server.fault = [](const schema::Request& r) {
    return r.has_read() ? std::optional<Error>({from_errno(EIO), "disk"}) : std::nullopt;
  };
  EXPECT_THAT(read(file, 700'000, 10), testing::HasSubstr("disk"));
  server.fault = nullptr;
  EXPECT_EQ(read(file, 700'000, 10), pattern(1'000'000).substr(700'000, 10));
}

TEST_F(Reading, AnUnchangedFileIsNotFetchedAgainAfterReopening) {
  server.put("a", pattern(1'000'000));
  const Handle first = open("a");
  EXPECT_FALSE(last_open.keep_cache);
  (void)read(first, 0, 1'000'000);
  close(first);
  const auto fetched = filesystem->counters().fetched.load();
  scheduler.advance(std::chrono::hours(1));
  const Handle again = open("a");
  EXPECT_TRUE(last_open.keep_cache);
  EXPECT_EQ(read(again, 0, 1'000'000), pattern(1'000'000));
  EXPECT_EQ(filesystem->counters().fetched.load(), fetched);
}

TEST_F(Reading, AChangedFileIsFetchedAgainAfterReopening) {
  server.put("a", pattern(1'000'000, 1));
  const Handle first = open("a");
  (void)read(first, 0, 1'000'000);
  close(first);
  server.put("a", pattern(1'000'000, 2));
  const Handle again = open("a");
  EXPECT_FALSE(last_open.keep_cache);
  EXPECT_EQ(read(again, 0, 1'000'000), pattern(1'000'000, 2));
}

TEST_F(Reading, OpeningAGrownFileMakesTheKernelAskForItsSizeFirst) {
  server.put("a", "old");
  const NodeId node = lookup("a").node;  // the kernel may use this size for a while
  server.put("a", "longer than before");
  auto answer = new_answer<OpenReply>();
  filesystem->open({}, node, O_RDONLY, into(answer));
  while (!answer->has_value()) {
    EXPECT_TRUE(kernel.attributes.empty());
    ASSERT_TRUE(server.answer_all() || scheduler.run());
  }
  EXPECT_THAT(kernel.attributes, testing::ElementsAre(node));
  EXPECT_EQ(attributes(node)->attr.size, 18u);
  close((*answer)->value().handle);
}

TEST_F(Reading, OpeningAnUnchangedFileTellsTheKernelNothing) {
  server.put("a", "same");
  close(open("a"));
  close(open("a"));
  EXPECT_TRUE(kernel.attributes.empty());
}

TEST_F(Reading, AReplyThatCrossesOurWriteDoesNotUndoIt) {
  server.put("a", std::string(1'000'000, 'o'));
  const Handle file = open("a");
  const auto answer = begin_read(file, 600'000, 100);
  server.execute(0);  // the server has read the old bytes
  write(file, 600'010, "new");
  server.deliver();
  std::string expected(100, 'o');
  expected.replace(10, 3, "new");
  EXPECT_EQ(text_of(finished(answer)), expected);
  EXPECT_EQ(read(file, 600'000, 100), expected);
  close(file);
  EXPECT_EQ(server.content("a").substr(600'000, 100), expected);
}

// The read overlaps the truncation, so it may show what was there before; no later one may.
TEST_F(Reading, AReplyThatCrossesATruncationIsNotUsedAgain) {
  server.put("a", std::string(1'000'000, 'o'));
  const Handle file = open("a");
  const auto answer = begin_read(file, 600'000, 100);
  server.execute(0);
  auto truncated = new_answer<AttributesReply>();
  filesystem->set_attributes({}, lookup("a").node, file, {.size = 10}, into(truncated));
  server.execute(0);
  server.deliver(1);  // the truncation's answer first
  auto grown = new_answer<AttributesReply>();
  filesystem->set_attributes({}, lookup("a").node, file, {.size = 1'000'000}, into(grown));
  settle();
  server.deliver(0);
  EXPECT_EQ(text_of(finished(answer)), std::string(100, 'o'));
  EXPECT_EQ(read(file, 600'000, 100), std::string(100, '\0'));
  scheduler.advance(KernelPages::kOnceFor);
  settle();
  EXPECT_THAT(kernel.ranges, testing::Contains(testing::Pair(testing::_, Interval{600'000, 600'100})))
      << "the kernel has the old page";
}

TEST_F(Reading, AFileThatShrankEndsEarlier) {
  server.put("a", pattern(1'000'000));
  const Handle file = open("a");
  server.put("a", pattern(600'000));
  EXPECT_EQ(read(file, 599'000, 10'000), pattern(600'000).substr(599'000));
  EXPECT_EQ(read(file, 700'000, 10), "");
}

TEST_F(Reading, ADirectReadSeesTheServersNewEnd) {
  server.put("a", "12345");
  const Handle file = open("a", O_RDONLY | O_DIRECT);
  EXPECT_EQ(read(file, 0, 100), "12345");
  server.put("a", "1234567890");
  scheduler.advance(std::chrono::seconds(2));
  EXPECT_EQ(read(file, 5, 100), "67890");
}

TEST_F(Reading, AnInterruptedReadEndsAndTheFetchGoesOn) {
  server.put("a", pattern(1'000'000));
  const Handle file = open("a");
  const auto interrupt = std::make_shared<Interrupt>();
  auto answer = new_answer<ReadPieces>();
  filesystem->read({.interrupt = interrupt}, file, 800'000, 10, into(answer));
  interrupt->fire();
  EXPECT_FALSE(answer->has_value());  // within the grace period
  scheduler.advance(kInterruptGrace);
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ((*answer)->error().code, ErrorCode::kCancelled);
  settle();
  EXPECT_EQ(read(file, 800'000, 10), pattern(1'000'000).substr(800'000, 10));
}

// A base, so that it is there before the client that asks for it.
struct Line {
  bool connected = true;
};

class OutOfReach : protected Line, public Client {
 protected:
  OutOfReach() : Client({.path = [this] { return rpc::PathStats{.connected = connected}; }}) {}
};

TEST_F(OutOfReach, InterruptsAreHonouredAtOnce) {
  server.put("a", pattern(1'000'000));
  const Handle file = open("a");
  connected = false;
  scheduler.advance(PathEstimate::kAgeMax * 2);
  const auto interrupt = std::make_shared<Interrupt>();
  auto answer = new_answer<ReadPieces>();
  filesystem->read({.interrupt = interrupt}, file, 800'000, 10, into(answer));
  const auto looking = std::make_shared<Interrupt>();
  auto entry = new_answer<EntryReply>();
  filesystem->lookup({.interrupt = looking}, kRootNode, "b", into(entry));
  interrupt->fire();
  looking->fire();
  scheduler.run();
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ((*answer)->error().code, ErrorCode::kCancelled);
  ASSERT_TRUE(entry->has_value());
  EXPECT_EQ((*entry)->error().code, ErrorCode::kCancelled);
  settle();  // no call may be left to the destructor
}

TEST_F(Reading, FetchesNobodyWaitsForAreGivenUpWithTheLastClose) {
  server.put("a", pattern(20'000'000));
  const Handle file = open("a");
  const auto answer = begin_read(file, 0, 600 * kKiB);  // more than came with the open
  while (!answer->has_value()) {
    server.answer();
    scheduler.run();
  }
  EXPECT_GT(server.waiting().size(), 4u);  // read ahead
  filesystem->release(file, false);
  EXPECT_TRUE(server.waiting().empty());
  settle();
}

TEST_F(Reading, OfTwoThatHaveItOpenOneStopsReadingAhead) {
  server.put("a", pattern(40'000'000));
  const Handle one = open("a");
  const Handle other = open("a");
  const auto answer = begin_read(one, 0, 600 * kKiB);
  while (!answer->has_value()) {
    server.answer();
    scheduler.run();
  }
  const auto far = begin_read(other, 30'000'000, 10);
  EXPECT_GT(server.waiting().size(), 4u);
  filesystem->release(one, false);
  EXPECT_THAT(server.waiting_kinds(), testing::ElementsAre(schema::Request::kRead));
  EXPECT_EQ(text_of(finished(far)), pattern(40'000'000).substr(30'000'000, 10));
}

TEST_F(Reading, WhatWasLeftIsGivenUpAndFetchedOnceItIsWanted) {
  const std::string content = pattern(40'000'000);
  server.put("a", content);
  const Handle file = open("a");
  const auto first = begin_read(file, 0, 600 * kKiB);
  while (!first->has_value()) {
    server.answer();
    scheduler.run();
  }
  EXPECT_GT(server.waiting().size(), 4u);
  const auto far = begin_read(file, 30'000'000, 10);
  EXPECT_EQ(server.waiting().size(), 1u);
  EXPECT_EQ(text_of(finished(far)), content.substr(30'000'000, 10));
  EXPECT_EQ(read(file, 600 * kKiB, 1'000'000), content.substr(600 * kKiB, 1'000'000));
}

TEST_F(Reading, AReadOfWhatIsJustBeingGivenUpIsAnswered) {
  const std::string content = pattern(40'000'000);
  server.put("a", content);
  const Handle file = open("a");
  (void)begin_read(file, 0, 600 * kKiB);
  const auto far = begin_read(file, 30'000'000, 10);
  const auto back = begin_read(file, 700'000, 100'000);
  EXPECT_EQ(text_of(finished(back)), content.substr(700'000, 100'000));
  EXPECT_EQ(text_of(finished(far)), content.substr(30'000'000, 10));
}

TEST_F(Reading, EqualStepsAreFetchedAheadWithoutWhatLiesBetween) {
  const std::string content = pattern(40'000'000);
  server.put("a", content);
  const Handle file = open("a");
  const auto before = filesystem->counters().fetched.load();
  for (ByteCount step = 5; step < 30; ++step)
    EXPECT_EQ(read(file, step * kMiB, 64 * kKiB), content.substr(step * kMiB, 64 * kKiB));
  EXPECT_GT(filesystem->counters().read_from_cache.load(), 20 * 64 * kKiB);
  EXPECT_LE(filesystem->counters().fetched.load() - before, 2 * 25 * 64 * kKiB);
}

// `file` looks at the first MiB of each film, cp takes them whole.
TEST_F(Reading, ACopyIsBelievedAtOnceUnlessTheLastOneStoppedEarly) {
  const auto asked_ahead_at_the_start = [this](const std::string& name, ByteCount read_all) {
    scheduler.advance(2 * StreamCensus::kPeriod);
    const Handle file = open(name);
    const auto answer = begin_read(file, 0, kMiB);
    const std::uint64_t calls = server.waiting().size();
    EXPECT_EQ(text_of(finished(answer)).size(), kMiB);
    for (ByteCount at = kMiB; at < read_all; at += kMiB) (void)read(file, at, kMiB);
    close(file);
    return calls * kBlockSize;
  };
  for (const char* name :
       {"copied", "looked at", "looked at too", "copied later", "copied last", "copied after all"})
    server.put(name, pattern(40 * kMiB));
  server.put("small", pattern(2 * kMiB));
  EXPECT_GE(asked_ahead_at_the_start("copied", 20 * kMiB), 30 * kMiB);
  EXPECT_GE(asked_ahead_at_the_start("looked at", kMiB), 30 * kMiB);
  EXPECT_LE(asked_ahead_at_the_start("looked at too", kMiB), 4 * kMiB);
  EXPECT_LE(asked_ahead_at_the_start("copied later", 20 * kMiB), 4 * kMiB);
  EXPECT_GE(asked_ahead_at_the_start("copied last", 20 * kMiB), 30 * kMiB);
  EXPECT_GE(asked_ahead_at_the_start("small", 2 * kMiB), 1 * kMiB);
  EXPECT_GE(asked_ahead_at_the_start("copied after all", 20 * kMiB), 30 * kMiB);
}

class ShortOfPages : public Client {
 protected:
  ShortOfPages() : Client({.cache_bytes = 16 * kMiB}) {}
};

TEST_F(ShortOfPages, WhatTheKernelDroppedAndAsksForOnceMoreIsStillHere) {
  const std::string content = pattern(60 * kMiB);
  server.put("a", content);
  server.put("b", content);
  {
    // What is of use to nobody any more.
    const Handle other = open("b");
    for (ByteCount n = 0; n < 20; ++n) (void)read(other, (n * 7 % 20) * 3 * kMiB, kMiB);
    close(other);
  }
  const auto before = filesystem->counters().fetched.load();
  const Handle file = open("a");
  for (ByteCount offset = 0; offset < content.size(); offset += kMiB) {
    EXPECT_TRUE(read(file, offset, kMiB) == content.substr(offset, kMiB)) << offset;
    const ByteCount dropped = offset - std::min(offset, kMiB);
    EXPECT_TRUE(read(file, dropped, kMiB) == content.substr(dropped, kMiB)) << dropped;
  }
  EXPECT_EQ(filesystem->counters().fetched.load() - before, content.size());
  EXPECT_LE(filesystem->cache_used(), 18 * kMiB);
}

class SmallMemory : public Client {
 protected:
  SmallMemory() : Client({.cache_bytes = 4 * kBlockSize}) {}
};

TEST_F(SmallMemory, OldBlocksMakeRoom) {
  const std::string content = pattern(10'000'000);
  server.put("a", content);
  const Handle file = open("a");
  std::string got;
  for (ByteCount offset = 0; offset < content.size(); offset += 100 * kKiB)
    got += read(file, offset, 100 * kKiB);
  EXPECT_EQ(got, content);
  EXPECT_LE(filesystem->cache_used(), 8 * kBlockSize);
}

TEST_F(SmallMemory, WhatFollowsFirstPagesTakesNoMoreThanThereIs) {
  std::vector<Handle> files;
  std::vector<Answer<ReadPieces>> pages;
  for (int n = 0; n < 12; ++n) server.put(std::to_string(n), pattern(6 * kMiB, n));
  for (int n = 0; n < 12; ++n) files.push_back(open(std::to_string(n)));
  for (const Handle file : files) pages.push_back(begin_read(file, 3 * kMiB, 16 * kKiB));
  ByteCount asked = 0;
  for (const auto& waiting : server.waiting())
    if (waiting.request.message.has_read()) asked += waiting.request.message.read().length();
  EXPECT_LE(asked, 4 * kBlockSize + 12 * 32 * kKiB);
  settle();
  for (const auto& page : pages) EXPECT_TRUE(page->has_value());
  for (const Handle file : files) close(file);
}

TEST_F(SmallMemory, ReadsThatFindNoRoomTakeTurns) {
  constexpr int kFiles = 10;
  std::vector<Handle> files;
  std::vector<Answer<ReadPieces>> answers;
  for (int n = 0; n < kFiles; ++n) server.put(std::to_string(n), pattern(6 * kMiB, n));
  for (int n = 0; n < kFiles; ++n) files.push_back(open(std::to_string(n)));
  for (const Handle file : files) answers.push_back(begin_read(file, 3 * kMiB, kBlockSize));
  EXPECT_EQ(server.waiting().size(), 1u);  // three eighths of the memory
  const auto small = begin_read(files.back(), 5 * kMiB, 4096);
  EXPECT_EQ(server.waiting().size(), 2u);
  for (int n = 0; n < kFiles; ++n)
    EXPECT_EQ(text_of(finished(answers[n])), pattern(6 * kMiB, n).substr(3 * kMiB, kBlockSize));
  EXPECT_EQ(text_of(finished(small)), pattern(6 * kMiB, kFiles - 1).substr(5 * kMiB, 4096));
}

TEST_F(SmallMemory, OneThatIsInterruptedInItsTurnHoldsUpNobody) {
  server.put("a", pattern(20 * kMiB));
  const Handle file = open("a");
  std::vector<Answer<ReadPieces>> answers;
  for (const ByteCount at : {3, 7, 9}) answers.push_back(begin_read(file, at * kMiB, kBlockSize));
  const auto interrupt = std::make_shared<Interrupt>();
  auto interrupted = new_answer<ReadPieces>();
  filesystem->read({.interrupt = interrupt}, file, 14 * kMiB, kBlockSize, into(interrupted));
  answers.push_back(begin_read(file, 18 * kMiB, kBlockSize));
  EXPECT_EQ(server.waiting().size(), 1u);
  interrupt->fire();
  scheduler.advance(kInterruptGrace);
  ASSERT_TRUE(interrupted->has_value());
  EXPECT_EQ((*interrupted)->error().code, ErrorCode::kCancelled);
  for (auto& answer : answers) EXPECT_EQ(text_of(finished(answer)).size(), kBlockSize);
}

TEST_F(SmallMemory, ReadingAheadLeavesRoomForReads) {
  server.put("a", pattern(20 * kMiB));
  const Handle file = open("a");
  (void)begin_read(file, 0, 600 * kKiB);
  EXPECT_LE(filesystem->cache_used(), 8 * kBlockSize);
  settle();
}

TEST_F(SmallMemory, DirtyBlocksAreNotEvicted) {
  const Handle file = create("a");
  const std::string content = pattern(12 * kBlockSize);
  for (ByteCount offset = 0; offset < content.size(); offset += kBlockSize)
    write(file, offset, content.substr(offset, kBlockSize));
  EXPECT_GE(filesystem->cache_used(), 12 * kBlockSize);
  close(file);
  EXPECT_EQ(server.content("a"), content);
}

}  // namespace
}  // namespace tusk::client
