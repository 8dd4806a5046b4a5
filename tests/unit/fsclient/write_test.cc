// Writing: answered at once, sent soon, in an order that cannot go wrong, with errors that reach somebody.
#include "client.h"

namespace tusk::client {
namespace {

class Writing : public Client {};

TEST_F(Writing, IsAnsweredAtOnceAndSentAfterAMoment) {
  const Handle file = create("a");
  const auto answer = write(file, 0, "hello");
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ(**answer, 5u);
  EXPECT_TRUE(server.waiting().empty());
  EXPECT_EQ(filesystem->pending_bytes(), 5u);
  scheduler.advance(WriteBehind::kDirtyAge - std::chrono::milliseconds(1));
  EXPECT_TRUE(server.waiting().empty());
  scheduler.advance(std::chrono::milliseconds(1));
  EXPECT_EQ(server.waiting().size(), 1u);
  settle();
  EXPECT_EQ(server.content("a"), "hello");
  EXPECT_EQ(filesystem->pending_bytes(), 0u);
}

TEST_F(Writing, AFullBlockIsSentAtOnce) {
  const Handle file = create("a");
  write(file, 0, pattern(kBlockSize));
  EXPECT_EQ(server.waiting().size(), 1u);
  EXPECT_EQ(server.waiting().front().request.body.size(), kBlockSize);
}

TEST_F(Writing, WhatIsBeingFilledIsLeftAlone) {
  using namespace std::chrono_literals;
  const Handle file = create("a");
  const ByteCount half = kBlockSize / 2;
  write(file, 0, pattern(half));
  scheduler.advance(WriteBehind::kDirtyAge - 1ms);
  write(file, half, pattern(half));
  write(file, kBlockSize, pattern(half));
  scheduler.advance(2ms);  // the age of the first byte
  write(file, kBlockSize + half, pattern(half));
  write(file, 2 * kBlockSize, pattern(half));
  ASSERT_EQ(server.waiting().size(), 2u);
  for (const auto& waiting : server.waiting()) EXPECT_EQ(waiting.request.body.size(), kBlockSize);
  for (int i = 0; i < 2; ++i) scheduler.advance(WriteBehind::kDirtyAge);
  ASSERT_EQ(server.waiting().size(), 3u);
  EXPECT_EQ(server.waiting().back().request.body.size(), half);
}

TEST_F(Writing, SmallWritesBecomeOneCall) {
  const Handle file = create("a");
  for (ByteCount i = 0; i < 100; ++i) write(file, i * 10, pattern(10, i));
  EXPECT_TRUE(flush(file));
  EXPECT_EQ(server.seen(schema::Request::kWrite), 1u);
}

TEST_F(Writing, FlushWaitsForTheServer) {
  const Handle file = create("a");
  write(file, 0, "hello");
  const auto flushed = begin_flush(file);
  EXPECT_FALSE(flushed->has_value());
  EXPECT_EQ(server.waiting().size(), 1u);
  server.answer();
  ASSERT_TRUE(flushed->has_value());
  EXPECT_TRUE(**flushed);
}

TEST_F(Writing, FlushOfACleanFileAsksNobody) {
  server.put("a", "x");
  const Handle file = open("a", O_RDONLY);
  const auto flushed = begin_flush(file);
  EXPECT_TRUE(flushed->has_value());
}

TEST_F(Writing, FlushDoesNotWaitForLaterWrites) {
  const Handle file = create("a");
  write(file, 0, "first");
  const auto flushed = begin_flush(file);
  write(file, 10 * kBlockSize, "second");
  server.answer();
  EXPECT_TRUE(flushed->has_value());
  EXPECT_GT(filesystem->pending_bytes(), 0u);
}

TEST_F(Writing, OneBlockHasOneCallOnItsWay) {
  const Handle file = create("a");
  write(file, 0, "AAAA");
  (void)begin_flush(file);
  write(file, 2, "BBBB");
  const auto flushed = begin_flush(file);
  ASSERT_EQ(server.waiting().size(), 1u);                                   // the second waits for the first
  EXPECT_EQ(as_text(server.waiting().front().request.body.bytes), "AAAA");  // untouched by the second write
  server.answer();
  ASSERT_EQ(server.waiting().size(), 1u);
  EXPECT_EQ(as_text(server.waiting().front().request.body.bytes), "BBBB");
  server.answer();
  EXPECT_TRUE(flushed->has_value());
  EXPECT_EQ(server.content("a"), "AABBBB");
}

TEST_F(Writing, BlocksMayArriveInAnyOrder) {
  const Handle file = create("a");
  const std::string content = pattern(5 * kBlockSize + 1000);
  write(file, 0, content);
  const auto flushed = begin_flush(file);
  while (!server.waiting().empty()) server.answer(server.waiting().size() - 1);
  EXPECT_TRUE(flushed->has_value());
  EXPECT_EQ(server.content("a"), content);
  EXPECT_EQ(attributes(last_node)->attr.size, content.size());
}

TEST_F(Writing, TheSizeIsOursWhileTheServerKnowsLess) {
  const Handle file = create("a");
  write(file, 0, "12345");
  EXPECT_EQ(attributes(last_node)->attr.size, 5u);
  scheduler.advance(std::chrono::seconds(5));
  write(file, 5, "67890");
  auto answer = new_answer<AttributesReply>();
  filesystem->attributes({}, last_node, into(answer));
  EXPECT_EQ(finished(answer)->attr.size, 10u);
}

TEST_F(Writing, AnOldSizeFromTheServerDoesNotShrinkTheFile) {
  const Handle file = create("a");
  scheduler.advance(std::chrono::seconds(5));
  auto attr = new_answer<AttributesReply>();
  filesystem->attributes({}, last_node, into(attr));
  server.execute(0);  // the server says: empty
  write(file, 0, "hello");
  const auto flushed = begin_flush(file);
  server.answer(0);
  ASSERT_TRUE(flushed->has_value());
  server.deliver();
  EXPECT_EQ(finished(attr)->attr.size, 5u);
  EXPECT_EQ(read(file, 0, 100), "hello");
}

TEST_F(Writing, AnErrorIsToldOnceToEachOpenFile) {
  const Handle one = create("a");
  const Handle two = open("a");
  server.fault = [](const schema::Request& r) {
    return r.has_write() ? std::optional<Error>({from_errno(ENOSPC), ""}) : std::nullopt;
  };
  write(one, 0, "lost");
  EXPECT_EQ(flush(one).error().code, from_errno(ENOSPC));
  EXPECT_TRUE(flush(one));
  EXPECT_EQ(flush(two).error().code, from_errno(ENOSPC));
  EXPECT_TRUE(flush(two));
  EXPECT_TRUE(flush(open("a")));  // opened later: not its error
  const auto [text, count] = filesystem->last_error().value();
  EXPECT_EQ(count, 1u);
  EXPECT_TRUE(text.starts_with("write to 'a': ")) << text;
}

// Who only reads the file has nothing to do with it.
TEST_F(Writing, AnErrorThatOnlyAReaderCouldBeToldIsToldToWhoRenamesTheFile) {
  const Handle file = create("a");
  const Handle reader = open("a", O_RDONLY);
  server.fault = [](const schema::Request& r) {
    return r.has_write() ? std::optional<Error>({from_errno(ENOSPC), ""}) : std::nullopt;
  };
  write(file, 0, "lost");
  filesystem->release(file, false);  // a close that was interrupted
  scheduler.advance(WriteBehind::kDirtyAge);
  settle();
  EXPECT_EQ(flush(reader).error().code, from_errno(ENOSPC));
  EXPECT_EQ(filesystem->untold_failures().count, 1u);
  EXPECT_THAT(filesystem->untold_failures().last, testing::StartsWith("write to 'a': "));
  const auto rename = [this] {
    auto renamed = new_answer<void>();
    filesystem->rename({}, kRootNode, "a", kRootNode, "b", 0, into(renamed));
    return finished(renamed);
  };
  EXPECT_EQ(rename().error().code, from_errno(ENOSPC));
  EXPECT_EQ(filesystem->untold_failures().count, 0u);
  EXPECT_TRUE(rename()) << "once";
}

TEST_F(Writing, AFailureThatAWriterIsToldIsNoneThatNobodyWasTold) {
  const Handle file = create("a");
  server.fault = [](const schema::Request& r) {
    return r.has_write() ? std::optional<Error>({from_errno(ENOSPC), ""}) : std::nullopt;
  };
  write(file, 0, "lost");
  EXPECT_FALSE(flush(file));
  filesystem->release(file, false);
  EXPECT_EQ(filesystem->untold_failures().count, 0u);
}

TEST_F(Writing, SoIsOneThatCameBetweenTheLastCloseAndItsEnd) {
  const Handle file = create("a");
  server.fault = [](const schema::Request& r) {
    return r.has_write() ? std::optional<Error>({from_errno(ENOSPC), ""}) : std::nullopt;
  };
  EXPECT_TRUE(flush(file));
  write(file, 0, "mapped");
  scheduler.advance(WriteBehind::kDirtyAge);
  settle();
  filesystem->release(file, false);
  auto renamed = new_answer<void>();
  filesystem->rename({}, kRootNode, "a", kRootNode, "b", 0, into(renamed));
  EXPECT_EQ(finished(renamed).error().code, from_errno(ENOSPC));
}

TEST_F(Writing, AnErrorEndsALongWrite) {
  const Handle file = create("a");
  server.fault = [](const schema::Request& r) {
    return r.has_write() ? std::optional<Error>({from_errno(ENOSPC), ""}) : std::nullopt;
  };
  write(file, 0, pattern(kBlockSize));
  settle();
  const auto next = write(file, kBlockSize, "more");
  ASSERT_TRUE(next->has_value());
  EXPECT_EQ((*next)->error().code, from_errno(ENOSPC));
}

TEST_F(Writing, LostBytesAreNotReadBack) {
  server.put("a", "before");
  const Handle file = open("a");
  server.fault = [](const schema::Request& r) {
    return r.has_write() ? std::optional<Error>({from_errno(EIO), ""}) : std::nullopt;
  };
  write(file, 0, "AFTER!");
  EXPECT_FALSE(flush(file));
  EXPECT_EQ(read(file, 0, 100), "before");
  EXPECT_FALSE(kernel.inodes.empty());  // the kernel forgets them too
}

// Whether the server had them before it emptied the file only the server knows.
TEST_F(Writing, BytesThatWereOnTheirWayWhileTheFileWasEmptiedAreReadFromTheServer) {
  server.put("a", "before");
  const Handle file = open("a");
  const NodeId node = lookup("a").node;
  auto emptied = new_answer<OpenReply>();
  filesystem->open({}, node, O_RDWR | O_TRUNC, into(emptied));
  scheduler.advance(std::chrono::milliseconds(1));
  write(file, 0, "ours");
  scheduler.advance(WriteBehind::kDirtyAge);
  ASSERT_EQ(server.waiting_kinds(), (std::vector{schema::Request::kOpen, schema::Request::kWrite}));
  server.execute(1);
  server.execute(0);
  server.deliver(1);
  server.deliver(0);
  EXPECT_TRUE(finished(emptied));
  write(file, 8, "x");
  EXPECT_TRUE(flush(file));
  EXPECT_EQ(read(file, 0, 100), std::string(8, '\0') + "x");
}

TEST_F(Writing, FsyncCommits) {
  const Handle file = create("a");
  write(file, 0, "safe");
  EXPECT_TRUE(sync(file));
  EXPECT_EQ(server.seen(schema::Request::kCommit), 1u);
}

TEST_F(Writing, ChmodComesAfterTheWritesBefore) {
  const Handle file = create("a");
  write(file, 0, "hello");
  auto answer = new_answer<AttributesReply>();
  filesystem->set_attributes({}, last_node, file, {.mode = 0600}, into(answer));
  EXPECT_EQ(server.waiting_kinds(), (std::vector{schema::Request::kWrite}));
  server.answer();
  EXPECT_EQ(server.waiting_kinds(), (std::vector{schema::Request::kSetattr}));
  EXPECT_TRUE(finished(answer));
}

TEST_F(Writing, OurOwnChangesDoNotCostTheCache) {
  const Handle file = create("a");
  write(file, 0, pattern(1'000'000));
  close(file);
  auto changed = new_answer<AttributesReply>();
  filesystem->set_attributes({}, last_node, std::nullopt, {.mode = 0600}, into(changed));
  EXPECT_TRUE(finished(changed));
  auto renamed = new_answer<void>();
  filesystem->rename({}, kRootNode, "a", kRootNode, "b", 0, into(renamed));
  EXPECT_TRUE(finished(renamed));
  const Handle again = open("b");
  EXPECT_TRUE(last_open.keep_cache);
  EXPECT_EQ(read(again, 0, 1'000'000), pattern(1'000'000));
  EXPECT_EQ(server.seen(schema::Request::kRead), 0u);
}

TEST_F(Writing, AnswersThatOvertakeOneAnotherDoNotCostTheCache) {
  const Handle file = create("a");
  write(file, 0, pattern(3 * kBlockSize));
  for (int i = 0; i < 3; ++i) server.execute(0);
  for (const std::size_t which : {2, 0, 0}) server.deliver(which);
  close(file);
  const Handle again = open("a");
  EXPECT_TRUE(last_open.keep_cache);
  EXPECT_EQ(read(again, 0, 3 * kBlockSize), pattern(3 * kBlockSize));
  EXPECT_EQ(server.seen(schema::Request::kRead), 0u);
}

TEST_F(Writing, AChangeByOthersBetweenOursIsNotTakenForOurs) {
  server.put("a", pattern(1'000'000, 1));
  const Handle file = open("a");
  EXPECT_EQ(read(file, 0, 1'000'000), pattern(1'000'000, 1));
  server.put("a", pattern(1'000'000, 2));
  write(file, 900'000, "ours");
  close(file);
  const Handle again = open("a");
  EXPECT_FALSE(last_open.keep_cache);
  EXPECT_EQ(read(again, 0, 1000), pattern(1'000'000, 2).substr(0, 1000));
  EXPECT_EQ(read(again, 900'000, 4), "ours");
}

TEST_F(Writing, AppendGoesWhereTheServersEndIs) {
  server.put("log", "one\n");
  const Handle file = open("log", O_WRONLY | O_APPEND);
  server.put("log", "one\ntwo\n");
  const auto answer = write(file, 4, "three\n", true);
  EXPECT_EQ(*finished(answer), 6u);
  EXPECT_EQ(server.content("log"), "one\ntwo\nthree\n");
  EXPECT_THAT(kernel.tails, testing::ElementsAre(testing::Pair(testing::_, 4)));  // pages end where it was
}

TEST_F(Writing, AMappedPageOfAFileOpenForAppendingGoesToItsPlace) {
  server.put("log", "one\ntwo\n");
  const Handle file = open("log", O_RDWR | O_APPEND);
  write(file, 0, "ONE");
  EXPECT_TRUE(flush(file));
  EXPECT_EQ(server.content("log"), "ONE\ntwo\n");
}

TEST_F(Writing, BytesWrittenAgainAndAgainDoNotKeepOthersOfTheirBlockWaiting) {
  const Handle file = create("a");
  write(file, 100'000, "waited for");
  write(file, 0, "busy");
  const auto flushed = begin_flush(file);
  for (int i = 0; i < 5 && !flushed->has_value(); ++i) {
    write(file, 0, "busy");  // before the answer: the block stays dirty at its front
    ASSERT_TRUE(server.answer_all());
  }
  EXPECT_TRUE(flushed->has_value());
  EXPECT_EQ(server.content("a").substr(100'000), "waited for");
}

TEST_F(Writing, ACommitIsDoneOnceOnly) {
  const Handle file = create("a");
  write(file, 0, "x");
  settle();
  EXPECT_TRUE(flush(file));
  auto answer = new_answer<void>();
  filesystem->sync({}, file, false, into(answer));
  ASSERT_EQ(server.waiting().size(), 1u);
  EXPECT_GT(server.waiting().front().request.message.sequence(), 0u);
}

TEST_F(Writing, AHolderOfALockThatTheServerForgotIsTold) {
  const Handle file = create("a");
  const Handle other = open("a");
  auto locked = new_answer<void>();
  filesystem->set_lock({}, file, {.flock = true, .owner = 1, .type = F_WRLCK, .end = INT64_MAX},
                       into(locked));
  ASSERT_TRUE(finished(locked));
  schema::AttachReply again = server.attached();
  again.set_resumed(true);
  again.add_locks_kept(0);
  reattach(again);
  EXPECT_TRUE(finished(write(file, 0, "still mine")));
  again.set_resumed(false);  // a new server, which has given it again
  reattach(again);
  EXPECT_TRUE(finished(write(file, 0, "still mine")));
  again.clear_locks_kept();
  reattach(again);
  EXPECT_EQ(finished(write(file, 0, "not any more")).error().code, from_errno(EIO));
  EXPECT_EQ(finished(begin_read(file, 0, 1)).error().code, from_errno(EIO));
  EXPECT_TRUE(finished(write(other, 0, "never locked")));
  auto unlocked = new_answer<void>();
  filesystem->set_lock({}, file, {.flock = true, .owner = 1, .type = F_UNLCK, .end = INT64_MAX},
                       into(unlocked));
  EXPECT_TRUE(finished(unlocked));
  EXPECT_TRUE(finished(write(file, 0, "starts anew")));
}

TEST_F(Writing, ARestartOfTheServerIsAnErrorOnlyForLocksThatAreLost) {
  const Handle file = create("a");
  schema::AttachReply again = server.attached();
  again.set_resumed(false);
  reattach(again);
  EXPECT_EQ(filesystem->last_error().value().first, "");

  auto locked = new_answer<void>();
  filesystem->set_lock({}, file, {.flock = true, .owner = 1, .type = F_WRLCK, .end = INT64_MAX},
                       into(locked));
  ASSERT_TRUE(finished(locked));
  const schema::AttachRequest asked = reattach(again);
  ASSERT_EQ(asked.locks_size(), 1);
  EXPECT_TRUE(asked.locks(0).flock());
  EXPECT_EQ(asked.locks(0).owner(), file.value());
  EXPECT_THAT(filesystem->last_error().value().first,
              testing::HasSubstr("locks that the server had granted are lost"));
  EXPECT_EQ(reattach(again).locks_size(), 0);
}

TEST_F(Writing, WhoGetsALockSeesWhatOthersHaveWrittenAlsoWhileWritesOfOursAreOnTheirWay) {
  server.put("a", "0123456789");
  const Handle file = open("a");
  EXPECT_EQ(read(file, 0, 10), "0123456789");
  const auto ours = write(file, 0, "X");
  server.put("a", "01234=====");
  auto locked = new_answer<void>();
  filesystem->set_lock({}, file, {.owner = 1, .type = F_WRLCK, .start = 5, .end = 9}, into(locked));
  ASSERT_TRUE(finished(locked));
  EXPECT_EQ(read(file, 5, 5), "=====");
  EXPECT_FALSE(kernel.inodes.empty());  // the kernel forgets them too
}

TEST_F(Writing, AKilledProgramGetsAwayFromAnUnlockThatIsMadeAllTheSame) {
  const Handle file = create("a");
  auto locked = new_answer<void>();
  filesystem->set_lock({}, file, {.owner = 1, .type = F_WRLCK, .end = 9}, into(locked));
  ASSERT_TRUE(finished(locked));
  const auto interrupt = std::make_shared<Interrupt>();
  interrupt->fire();  // as its last flush finds it
  auto flushed = new_answer<void>();
  filesystem->flush({.interrupt = interrupt}, file, 1, into(flushed));
  scheduler.advance(kInterruptGrace);
  EXPECT_TRUE(flushed->has_value());
  ASSERT_EQ(server.waiting_kinds(), (std::vector{schema::Request::kLock}));
  EXPECT_EQ(server.waiting().front().request.message.lock().type(), static_cast<std::uint32_t>(F_UNLCK));
  settle();  // its answer comes late and to nobody
}

TEST_F(Writing, AnUnlockComesBehindTheDataAlsoIfItsProgramIsKilled) {
  const Handle file = create("a");
  const NewLock whole{.owner = 1, .type = F_WRLCK, .end = INT64_MAX};
  auto locked = new_answer<void>();
  filesystem->set_lock({}, file, whole, into(locked));
  ASSERT_TRUE(finished(locked));
  write(file, 0, "under the lock");
  const auto interrupt = std::make_shared<Interrupt>();
  auto flushed = new_answer<void>();
  filesystem->flush({.interrupt = interrupt}, file, 1, into(flushed));
  interrupt->fire();
  scheduler.advance(kInterruptGrace);
  ASSERT_TRUE(flushed->has_value());
  EXPECT_EQ((*flushed)->error().code, ErrorCode::kCancelled);
  EXPECT_EQ(server.waiting_kinds(), (std::vector{schema::Request::kWrite}));
  // If it lives on it may want the lock again, which that unlock must not take.
  auto again = new_answer<void>();
  filesystem->set_lock({}, file, whole, into(again));
  scheduler.run();
  EXPECT_EQ(server.waiting_kinds(), (std::vector{schema::Request::kWrite}));
  for (const int type : {F_UNLCK, F_WRLCK}) {
    server.answer();
    scheduler.run();
    ASSERT_EQ(server.waiting_kinds(), (std::vector{schema::Request::kLock}));
    EXPECT_EQ(server.waiting().front().request.message.lock().type(), static_cast<std::uint32_t>(type));
  }
  EXPECT_TRUE(finished(again));
}

TEST_F(Writing, SoDoesThatOfTheLastCloseOfALockedFile) {
  const Handle file = create("a");
  auto locked = new_answer<void>();
  filesystem->set_lock({}, file, {.flock = true, .owner = 1, .type = F_WRLCK, .end = INT64_MAX},
                       into(locked));
  ASSERT_TRUE(finished(locked));
  write(file, 0, "under the lock");
  filesystem->release(file, true);
  scheduler.run();
  EXPECT_EQ(server.waiting_kinds(), (std::vector{schema::Request::kWrite}));
  filesystem->handle_outage({ErrorCode::kTimedOut, "out of reach"});
  EXPECT_EQ(server.waiting_kinds(), (std::vector{schema::Request::kWrite}));
  server.answer();
  EXPECT_THAT(server.waiting_kinds(), testing::Contains(schema::Request::kLock));
  settle();
  EXPECT_EQ(server.open_files(), 0u);
}

TEST_F(Writing, WhatFailsTogetherIsToldOnce) {
  const Handle file = create("a");
  server.fault = [](const schema::Request& r) {
    return r.has_write() ? std::optional<Error>({from_errno(ENOSPC), ""}) : std::nullopt;
  };
  write(file, 0, pattern(kBlockSize));
  write(file, kBlockSize, pattern(kBlockSize));
  ASSERT_EQ(server.waiting().size(), 2u);
  server.answer();
  const auto refused = write(file, 2 * kBlockSize, "not taken");
  EXPECT_FALSE(refused->has_value());
  EXPECT_EQ(finished(refused).error().code, from_errno(ENOSPC));
  EXPECT_TRUE(flush(file));
}

TEST_F(Writing, ASynchronousWriteWaits) {
  const Handle file = create("a", O_WRONLY | O_SYNC);
  const auto answer = write(file, 0, "now");
  EXPECT_FALSE(answer->has_value());
  ASSERT_EQ(server.waiting().size(), 1u);
  EXPECT_TRUE(server.waiting().front().request.message.write().sync());
  EXPECT_TRUE(finished(answer));
}

TEST_F(Writing, TheCloseIsSentAfterTheLastWrite) {
  const Handle file = create("a");
  write(file, 0, "hello");
  filesystem->release(file, false);  // a close that was interrupted
  scheduler.run();
  EXPECT_EQ(server.open_files(), 1u);
  scheduler.advance(WriteBehind::kDirtyAge);
  settle();
  EXPECT_EQ(server.content("a"), "hello");
  EXPECT_EQ(server.open_files(), 0u);
}

TEST_F(Writing, FlushAllBringsEverythingToTheServer) {
  const Handle one = create("a");
  const Handle two = create("b");
  write(one, 0, "1");
  write(two, 0, "2");
  auto answer = new_answer<void>();
  filesystem->flush_all(into(answer));
  EXPECT_FALSE(answer->has_value());
  EXPECT_TRUE(finished(answer));
  EXPECT_EQ(filesystem->pending_bytes(), 0u);
}

TEST_F(Writing, SequenceNumbersGrowAndTheOldestUnansweredIsTold) {
  auto one = new_answer<void>();
  filesystem->remove({}, kRootNode, "x", false, into(one));
  auto two = new_answer<void>();
  filesystem->remove({}, kRootNode, "y", false, into(two));
  ASSERT_EQ(server.waiting().size(), 2u);
  EXPECT_LT(server.waiting()[0].request.message.sequence(), server.waiting()[1].request.message.sequence());
  EXPECT_EQ(server.waiting()[1].request.message.sequence_done(),
            server.waiting()[0].request.message.sequence());
  settle();
  auto three = new_answer<void>();
  filesystem->remove({}, kRootNode, "z", false, into(three));
  EXPECT_EQ(server.waiting()[0].request.message.sequence_done(),
            server.waiting()[0].request.message.sequence());
  settle();
}

class LittleMemory : public Client {
 protected:
  LittleMemory() : Client({.cache_bytes = 6 * kBlockSize}) {}
};

TEST_F(LittleMemory, AWriterAheadOfTheLineIsKeptWaiting) {
  const Handle file = create("a");
  std::vector<Answer<std::uint32_t>> answers;
  for (ByteCount i = 0; i < 6; ++i) answers.push_back(write(file, i * kBlockSize, pattern(kBlockSize, i)));
  EXPECT_TRUE(answers[3]->has_value());
  EXPECT_FALSE(answers[4]->has_value());
  EXPECT_FALSE(answers[5]->has_value());
  server.answer();
  EXPECT_FALSE(answers[4]->has_value());
  server.answer();
  EXPECT_TRUE(answers[4]->has_value());
  settle();
  EXPECT_TRUE(answers[5]->has_value());
}

TEST_F(LittleMemory, AWaitingWriterSendsWholeBlocks) {
  const Handle file = create("a");
  for (ByteCount i = 0; i < 4; ++i) write(file, i * kBlockSize, pattern(kBlockSize, i));
  const auto kept_waiting = write(file, 4 * kBlockSize, pattern(kBlockSize / 2));
  EXPECT_FALSE(kept_waiting->has_value());
  EXPECT_EQ(server.waiting().size(), 4u);
  server.answer();
  EXPECT_TRUE(kept_waiting->has_value());
  write(file, 4 * kBlockSize + kBlockSize / 2, pattern(kBlockSize / 2));
  ASSERT_EQ(server.waiting().size(), 4u);
  EXPECT_EQ(server.waiting().back().request.body.size(), kBlockSize);
  settle();
}

TEST_F(LittleMemory, AWaitingWriterGoesOnWhenWhatIsWaitingIsTruncatedAway) {
  const Handle file = create("a");
  Answer<std::uint32_t> last;
  for (ByteCount i = 0; i < 10; ++i) last = write(file, i * kBlockSize, pattern(kBlockSize / 2, i));
  EXPECT_FALSE(last->has_value());
  EXPECT_TRUE(server.waiting().empty());
  open("a", O_RDWR | O_TRUNC);
  EXPECT_EQ(filesystem->pending_bytes(), 0u);
  EXPECT_TRUE(last->has_value());
}

TEST_F(LittleMemory, AWaitingWriterCanBeInterrupted) {
  const Handle file = create("a");
  const auto interrupt = std::make_shared<Interrupt>();
  auto answer = new_answer<std::uint32_t>();
  filesystem->write({.interrupt = interrupt}, file, 0, as_byte_span(pattern(6 * kBlockSize)), false,
                    into(answer));
  EXPECT_FALSE(answer->has_value());
  interrupt->fire();
  scheduler.advance(kInterruptGrace);
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ(**answer, 6 * kBlockSize);  // the bytes were taken in
}

TEST_F(Writing, WhoWaitsForWritesIsToldOfAnOutage) {
  const Handle file = create("a");
  write(file, 0, "bytes");
  auto synced = new_answer<void>();
  filesystem->sync({}, file, false, into(synced));
  EXPECT_FALSE(synced->has_value());
  filesystem->handle_outage({ErrorCode::kTimedOut, "out of reach"});
  ASSERT_TRUE(synced->has_value());
  EXPECT_EQ((*synced)->error().code, ErrorCode::kTimedOut);
  settle();
  EXPECT_EQ(server.content("a"), "bytes");
}

TEST_F(LittleMemory, AWaitingWriterIsToldOfAnOutage) {
  const Handle file = create("a");
  const auto waiting = write(file, 0, pattern(6 * kBlockSize));
  EXPECT_FALSE(waiting->has_value());
  filesystem->handle_outage({ErrorCode::kTimedOut, "out of reach"});
  ASSERT_TRUE(waiting->has_value());
  EXPECT_EQ((*waiting)->error().code, ErrorCode::kTimedOut);
  settle();
  EXPECT_EQ(server.content("a"), pattern(6 * kBlockSize));  // what had been taken in goes all the same
}

// Random writes, reads, truncations, with answers in random order, against a string.
class WritingAtRandom : public Client, public testing::WithParamInterface<std::uint64_t> {};

TEST_P(WritingAtRandom, EndsAsAStringWould) {
  Random random(GetParam());
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  const Handle file = create("a");
  std::string model;
  std::vector<std::pair<Answer<ReadPieces>, std::string>> reads;
  for (int step = 0; step < 400; ++step) {
    const ByteCount offset = random.below(3 * kBlockSize);
    const ByteCount size = random.below(kBlockSize) + 1;
    switch (random.below(8)) {
      case 0:
      case 1:
      case 2: {
        const std::string bytes = pattern(size, static_cast<std::size_t>(step));
        write(file, offset, bytes);
        if (model.size() < offset + size) model.resize(offset + size);
        model.replace(offset, size, bytes);
        break;
      }
      case 3: {
        // Reads are answered before the next step: later writes may show in them.
        EXPECT_EQ(read(file, offset, size), offset < model.size() ? model.substr(offset, size) : "");
        break;
      }
      case 4:
        (void)begin_flush(file);
        break;
      case 5:
        scheduler.advance(std::chrono::milliseconds(random.below(30)));
        break;
      case 6:
        if (!server.waiting().empty()) server.answer(random.below(server.waiting().size()));
        scheduler.run();
        break;
      default:
        if (random.chance(0.2)) {
          auto truncated = new_answer<AttributesReply>();
          filesystem->set_attributes({}, last_node, file, {.size = offset}, into(truncated));
          EXPECT_TRUE(finished(truncated));
          model.resize(offset);
        }
    }
  }
  close(file);
  EXPECT_EQ(server.content("a"), model);
}

INSTANTIATE_TEST_SUITE_P(Seeds, WritingAtRandom, testing::Range<std::uint64_t>(1, 21));

}  // namespace
}  // namespace tusk::client
