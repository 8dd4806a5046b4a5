#include "fsclient/operation_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <utility>
#include <vector>

#include "manual_scheduler.h"
#include "proto/rpc/log_alias.h"

namespace tusk::client {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Keeps calls until the test answers them, in any order.
class HeldCalls final : public rpc::Caller {
 public:
  rpc::CallId call(rpc::CallRequest request, rpc::Completion done) override {
    if (request.renew) request.renew(request.message);
    calls.push_back({std::move(request), std::move(done)});
    return rpc::CallId(++last_);
  }
  void cancel(rpc::CallId) override {}

  [[nodiscard]] const schema::LogRequest& log(std::size_t index) const {
    return calls.at(index).first.message.log();
  }
  // Every entry succeeds, but those of these indices fail.
  void answer(std::size_t index, const std::vector<int>& failing = {}) {
    rpc::CallReply reply;
    schema::LogReply& log = *reply.message.mutable_log();
    for (int i = 0; i < this->log(index).entries_size(); ++i) log.add_replies()->mutable_empty();
    for (const int i : failing)
      log.mutable_replies(i)->set_error(static_cast<std::uint32_t>(from_errno(ENOSPC)));
    std::exchange(calls.at(index).second, nullptr)(std::move(reply));
  }

  // Every entry has made a file.
  void answer_with_handles(std::size_t index, const std::vector<std::string>& handles) {
    rpc::CallReply reply;
    for (const std::string& handle : handles)
      reply.message.mutable_log()->add_replies()->mutable_open()->mutable_node()->set_handle(handle);
    std::exchange(calls.at(index).second, nullptr)(std::move(reply));
  }

  std::deque<std::pair<rpc::CallRequest, rpc::Completion>> calls;

 private:
  std::uint64_t last_ = 0;
};

class TheLog : public testing::Test {
 protected:
  static constexpr std::uint64_t kExclusive = 1;

  // Entry number `number`; what becomes of it is added to `answered`.
  bool append(int number, std::string_view bytes = {}, std::uint64_t exclusive = kExclusive) {
    schema::Request entry;
    entry.mutable_close()->set_open_id(static_cast<std::uint64_t>(number));
    return log.append(log.naming(), exclusive, {}, std::move(entry),
                      copy_bytes(std::as_bytes(std::span(bytes))),
                      [this, number](const Result<schema::Reply>& reply) {
                        answered.push_back(reply ? number : -number);
                        verifiers.push_back(reply ? reply->write_verifier() : 0);
                      });
  }
  // The open LOG goes.
  void age() {
    scheduler.advance(OperationLog::kBatchAge);
    scheduler.run();
  }

  ManualScheduler scheduler;
  HeldCalls line;
  PathEstimate path{[] { return rpc::PathStats{.connected = true}; }, scheduler};
  Remote remote{line, scheduler, path, schema::AttachReply()};
  OperationLog log{remote, scheduler};
  std::vector<int> answered;
  std::vector<std::uint64_t> verifiers;  // that came with them
};

TEST_F(TheLog, GathersWhatComesTogether) {
  for (int i = 1; i <= 3; ++i) EXPECT_TRUE(append(i, std::string(i, 'x')));
  EXPECT_TRUE(line.calls.empty());
  age();
  ASSERT_EQ(line.calls.size(), 1u);
  EXPECT_EQ(line.log(0).number(), 1u);
  EXPECT_EQ(line.log(0).entries_size(), 3);
  EXPECT_EQ(line.calls[0].first.body.size(), 6u);
  EXPECT_EQ(log.entries(), 3u);
  line.answer(0);
  EXPECT_THAT(answered, ElementsAre(1, 2, 3));
  EXPECT_EQ(log.entries(), 0u);
  EXPECT_EQ(log.bytes(), 0u);
}

TEST_F(TheLog, DoesNotWaitForAnswersAndHandsThemOnInOrder) {
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(append(i));
    age();
  }
  ASSERT_EQ(line.calls.size(), 3u);
  line.answer(2);
  line.answer(1, {0});
  EXPECT_THAT(answered, IsEmpty());
  EXPECT_EQ(log.answered(), 0u);
  line.answer(0);
  EXPECT_THAT(answered, ElementsAre(1, -2, 3));
  EXPECT_EQ(log.answered(), 3u);
}

// What it wrote is on the disk only if that machine has not been restarted before it was committed.
TEST_F(TheLog, TellsWhichMachineMadeAnEntryAlsoIfItWasRestartedBeforeTheAnswersTurn) {
  schema::AttachReply attached;
  attached.set_write_verifier(1);
  remote.handle_attached(attached);
  for (int i = 1; i <= 2; ++i) {
    ASSERT_TRUE(append(i));
    age();
  }
  line.answer(1);
  attached.set_write_verifier(2);
  remote.handle_attached(attached);
  line.answer(0);  // which was repeated
  EXPECT_THAT(answered, ElementsAre(1, 2));
  EXPECT_THAT(verifiers, ElementsAre(2, 1));
}

// An entry may call a file by an alias that the server is to know as long as the entry is on its way.
TEST_F(TheLog, TellsAsAnsweredWhatWasSoWhenItsFirstEntryCame) {
  ASSERT_TRUE(append(1));
  age();
  ASSERT_TRUE(append(2));
  line.answer(0);
  age();
  EXPECT_EQ(line.log(1).answered(), 0u);
  ASSERT_TRUE(append(3));
  age();
  EXPECT_EQ(line.log(2).answered(), 1u);
}

// ... also when the answer came between reading what the file is called and appending.
TEST_F(TheLog, TellsAsAnsweredNothingThatWhoWritesAnEntryMayNotKnowYet) {
  ASSERT_TRUE(append(1));
  age();
  {
    const OperationLog::Naming naming = log.naming();
    line.answer(0);
    EXPECT_EQ(log.answered(), 1u);
    ASSERT_TRUE(append(2)) << "somebody else, who knows it";
    age();
    EXPECT_EQ(line.log(1).answered(), 0u);
    ASSERT_TRUE(
        log.append(naming, kExclusive, {}, {}, {}, [](const Result<schema::Reply>&) {}));
    age();
    EXPECT_EQ(line.log(2).answered(), 0u);
  }
  ASSERT_TRUE(append(3));
  age();
  EXPECT_EQ(line.log(3).answered(), 1u);
}

// A server process that was not there when the alias was given cannot know it.
TEST_F(TheLog, CallsNodesByTheirHandlesOnceItKnowsThem) {
  const auto append_create = [this](std::uint64_t alias, const std::string& parent) {
    schema::Request entry;
    entry.set_alias(alias);
    entry.mutable_create()->set_parent(parent);
    return log.append(log.naming(), kExclusive, {}, std::move(entry), {},
                      [](const Result<schema::Reply>&) {});
  };
  const auto parents = [](const schema::LogRequest& sent) {
    std::vector<std::string> found;
    for (const schema::Request& entry : sent.entries()) found.push_back(entry.create().parent());
    return found;
  };
  const std::string one = rpc::handle_of_alias(1);
  const std::string two = rpc::handle_of_alias(2);
  ASSERT_TRUE(append_create(1, "root"));
  age();
  ASSERT_TRUE(append_create(2, one));
  age();
  ASSERT_TRUE(append_create(0, one));
  ASSERT_TRUE(append_create(0, two));
  age();
  line.answer_with_handles(1, {"handle of two"});  // overtakes the first
  EXPECT_THAT(parents(line.log(2)), ElementsAre(one, two));
  const auto renewed = [&](std::size_t index) {
    schema::Request message = line.calls.at(index).first.message;
    line.calls.at(index).first.renew(message);
    return parents(message.log());
  };
  EXPECT_THAT(renewed(0), ElementsAre("root"));
  EXPECT_THAT(renewed(2), ElementsAre(one, "handle of two"));
  ASSERT_TRUE(append_create(0, one));  // while its handle is not known
  line.answer_with_handles(0, {"handle of one"});
  age();
  EXPECT_THAT(parents(line.log(3)), ElementsAre("handle of one"));
  EXPECT_THAT(renewed(2), ElementsAre("handle of one", "handle of two"));
}

// Its LOGs have numbers of their own: the server may forget what else it has answered meanwhile.
TEST_F(TheLog, HoldsUpNoReplyOfAnotherMutation) {
  ASSERT_TRUE(append(1));
  age();
  EXPECT_EQ(line.calls[0].first.message.sequence(), 0u);
  for (const std::uint64_t sequence : {1, 2}) {
    remote.mutate({}, {}, schema::Reply::kEmpty, [](const Result<rpc::CallReply>&) {});
    EXPECT_EQ(line.calls.back().first.message.sequence_done(), sequence);
    rpc::CallReply reply;
    reply.message.mutable_empty();
    line.calls.back().second(std::move(reply));
  }
}

TEST_F(TheLog, WhoWaitsForItSendsItAtOnceAndComesBehindItsEntries) {
  ASSERT_TRUE(append(1));
  std::vector<int> seen;
  log.when_answered([&] { seen = answered; });
  ASSERT_EQ(line.calls.size(), 1u);
  scheduler.run();
  EXPECT_THAT(seen, IsEmpty());
  line.answer(0);
  scheduler.run();
  EXPECT_THAT(seen, ElementsAre(1));
  bool called = false;
  log.when_answered([&] { called = true; });
  EXPECT_FALSE(called) << "nothing is in it, but who asks again from there would ask without end";
  scheduler.run();
  EXPECT_TRUE(called);
}

// A server that was restarted waits for none that does not come again.
TEST_F(TheLog, TellsWhichOfItsLogsDoNotComeAgain) {
  const auto told = [this] {
    schema::AttachRequest request;
    log.tell(request);
    return request;
  };
  EXPECT_EQ(told().log_answered_beyond(), "");
  for (int i = 1; i <= 12; ++i) {
    ASSERT_TRUE(append(i));
    age();
  }
  line.answer(0);
  EXPECT_EQ(told().log_answered(), 1u);
  EXPECT_EQ(told().log_answered_beyond(), "") << "nothing beyond";
  for (const std::size_t index : {2, 4, 10}) line.answer(index);
  EXPECT_EQ(told().log_answered(), 1u);
  EXPECT_EQ(told().log_sent(), 12u);
  EXPECT_EQ(told().log_answered_beyond(), std::string("\x0a\x02"));
  line.answer(1);
  EXPECT_EQ(told().log_answered(), 3u);
  EXPECT_EQ(told().log_answered_beyond(), std::string("\x82", 1));
}

// Also while its entries are told of it.
TEST_F(TheLog, TellsOfTheOneWhoseAnswerIsJustBeingHandedOn) {
  schema::AttachRequest request;
  ASSERT_TRUE(log.append(log.naming(), kExclusive, {}, {}, {},
                         [&](const Result<schema::Reply>&) { log.tell(request); }));
  age();
  line.answer(0);
  EXPECT_EQ(request.log_answered(), 0u);
  EXPECT_EQ(request.log_answered_beyond(), std::string("\x01"));
}

TEST_F(TheLog, OutlivesOutages) {
  ASSERT_TRUE(append(1));
  age();
  EXPECT_TRUE(line.calls[0].first.outlives_outages);
}

// Programs hear of an outage; what they were told before waits for the server.
TEST_F(TheLog, WhoWaitsForItHearsOfAnOutageAndItsEntriesDoNot) {
  for (std::size_t i = 0; i < OperationLog::kEntriesMax; ++i) ASSERT_TRUE(append(1));
  std::vector<std::string> ends;
  const auto end = [&](const std::string& what) { return [&, what] { ends.push_back(what); }; };
  const auto gave_up = [&](const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kTimedOut);
    ends.emplace_back("gave up");
  };
  log.when_answered(end("answered"), gave_up);
  log.when_room(end("room"), gave_up);
  log.when_answered(end("push answered"));
  log.give_up({ErrorCode::kTimedOut, ""});
  scheduler.run();
  EXPECT_THAT(ends, ElementsAre("gave up", "gave up"));
  EXPECT_THAT(answered, IsEmpty());
  for (std::size_t call = 0; call < line.calls.size(); ++call) line.answer(call);
  scheduler.run();
  EXPECT_THAT(ends, ElementsAre("gave up", "gave up", "push answered"));
}

TEST_F(TheLog, TakesNothingUnderWhatHasBeenTakenBack) {
  log.grant(kExclusive);
  ASSERT_TRUE(append(1));
  bool out = false;
  log.take_back(kExclusive, [&] { out = true; });
  EXPECT_FALSE(append(2));
  EXPECT_FALSE(log.stands(kExclusive));
  EXPECT_TRUE(log.stands(kExclusive + 1));
  EXPECT_FALSE(out);
  line.answer(0);
  scheduler.run();
  EXPECT_TRUE(out);
  EXPECT_THAT(answered, ElementsAre(1));
  EXPECT_FALSE(append(3, {}, 0)) << "there never is one without a number";
}

TEST_F(TheLog, IsFullAtItsBounds) {
  for (std::size_t i = 0; i < OperationLog::kEntriesMax; ++i) ASSERT_TRUE(append(static_cast<int>(i)));
  EXPECT_FALSE(log.has_room());
  bool room = false;
  log.when_room([&] { room = true; });
  EXPECT_FALSE(room);
  line.answer(0);
  scheduler.run();
  EXPECT_TRUE(room);
  EXPECT_TRUE(log.has_room());
}

// Who has much to add waits for more room than who has little.
TEST_F(TheLog, HasRoomForMuchOnceSoMuchLessIsOnItsWay) {
  const std::string half(OperationLog::kBytesMax / 2, 'x');
  EXPECT_TRUE(append(1, half));
  EXPECT_TRUE(append(2, half));
  int little = 0;
  int much = 0;
  log.when_room([&] { ++little; });
  log.when_room([&] { ++much; }, nullptr, OperationLog::kBytesMax / 4);
  line.answer(0);
  scheduler.run();
  EXPECT_EQ(little, 1);
  EXPECT_EQ(much, 0);
  line.answer(1);
  scheduler.run();
  EXPECT_EQ(much, 1);
}

TEST_F(TheLog, AnAnswerOfAnotherLengthIsAnErrorOfAllItsEntries) {
  ASSERT_TRUE(append(1));
  ASSERT_TRUE(append(2));
  age();
  rpc::CallReply reply;
  reply.message.mutable_log()->add_replies();
  line.calls[0].second(std::move(reply));
  EXPECT_THAT(answered, ElementsAre(-1, -2));
}

}  // namespace
}  // namespace tusk::client
