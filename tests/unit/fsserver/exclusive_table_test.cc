// Exclusiveness in virtual time: who gets it, who waits for it, when it is over.
#include "fsserver/exclusive_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsserver/lease_table.h"

namespace tusk::server {
namespace {

using Names = LeaseTable::Of;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr SessionNumber kHolder = 1;
constexpr SessionNumber kOtherOne = 2;
constexpr SessionNumber kThird = 3;
constexpr std::uint64_t kFirst = 1001;  // number

class Exclusiveness : public testing::Test {
 protected:
  Exclusiveness() {
    for (const SessionNumber session : {kHolder, kOtherOne, kThird}) (void)table.attach(session, now);
  }
  std::uint64_t acquire(std::string_view directory, SessionNumber session = kHolder) {
    return table.grant_exclusive(session, std::span(&directory, 1), now);
  }
  LeaseTable::Begun look(std::string_view directory, SessionNumber by = kOtherOne) {
    return table.begin_look(by, std::span(&directory, 1), now);
  }
  LeaseTable::Begun change(const std::string& directory, SessionNumber by = kOtherOne,
                           LeaseTable::From from = LeaseTable::From::kRequest) {
    return table.begin_change(by, {{.handle = directory, .name = "x"}}, now, nullptr, from);
  }
  void answer(const LeaseTable::Push& push) { (void)table.answered(push.session, push.number); }

  TimePoint now{1h};
  LeaseTable table{{}, kFirst - 1};
};

TEST_F(Exclusiveness, IsOneThingWithANumber) {
  EXPECT_EQ(acquire("a"), kFirst);
  EXPECT_EQ(acquire("b"), kFirst);
  EXPECT_EQ(acquire("a"), kFirst);
  EXPECT_EQ(acquire("a", kOtherOne), 0u);
  EXPECT_EQ(acquire("c", kOtherOne), kFirst + 1) << "of a session";
  const auto begun = look("a");
  ASSERT_THAT(begun.pushes, SizeIs(1));
  EXPECT_EQ(begun.pushes[0].session, kHolder);
  EXPECT_EQ(begun.pushes[0].exclusive_over, kFirst);
  answer(begun.pushes[0]);
  EXPECT_FALSE(table.has_exclusive(kHolder)) << "all of it";
  EXPECT_EQ(acquire("b"), kFirst + 2);
}

TEST_F(Exclusiveness, IsOfWhatNobodyElseKnows) {
  EXPECT_EQ(table.grant(kOtherOne, "names", Names::kNames), LeaseTable::Grant::kLease);
  EXPECT_EQ(table.grant(kOtherOne, "node", Names::kNode), LeaseTable::Grant::kLease);
  EXPECT_EQ(acquire("names"), 0u);
  EXPECT_EQ(acquire("node"), 0u) << "its times and links change with the names";
  EXPECT_EQ(table.grant(kHolder, "own", Names::kNames), LeaseTable::Grant::kLease);
  EXPECT_EQ(acquire("own"), kFirst);
}

TEST_F(Exclusiveness, IsNotOfWhatIsBeingTakenBackOrChanged) {
  EXPECT_EQ(table.grant(kOtherOne, "dir", Names::kNode), LeaseTable::Grant::kLease);
  const auto taken_back = change("dir", kHolder);
  EXPECT_EQ(acquire("dir"), 0u) << "it has not answered yet";
  answer(taken_back.pushes.at(0));
  EXPECT_EQ(acquire("dir"), kFirst);
  const auto begun = change("other");
  EXPECT_EQ(acquire("other"), 0u);
  table.end_change(begun.id);
  EXPECT_EQ(acquire("other"), kFirst);
}

TEST_F(Exclusiveness, TwoDirectoriesAreHadTogetherOrNotAtAll) {
  EXPECT_EQ(acquire("b", kOtherOne), kFirst);
  const std::vector<std::string_view> both{"a", "b"};
  EXPECT_EQ(table.grant_exclusive(kHolder, both, now), 0u);
  EXPECT_FALSE(table.has_exclusive(kHolder));
}

TEST_F(Exclusiveness, WhoLooksWaitsForTheHolder) {
  EXPECT_EQ(acquire("dir"), kFirst);
  EXPECT_TRUE(look("elsewhere").may_go_on);
  EXPECT_TRUE(look("dir", kHolder).may_go_on) << "its own";
  const auto first = look("dir");
  EXPECT_FALSE(first.may_go_on);
  const auto second = look("dir", kThird);
  EXPECT_FALSE(second.may_go_on);
  EXPECT_THAT(second.pushes, IsEmpty()) << "the same answer";
  EXPECT_THAT(table.answered(kHolder, first.pushes.at(0).number),
              testing::UnorderedElementsAre(first.id, second.id));
}

TEST_F(Exclusiveness, WhoChangesWaitsForTheHolder) {
  EXPECT_EQ(acquire("dir"), kFirst);
  const auto begun = change("dir");
  EXPECT_FALSE(begun.may_go_on);
  EXPECT_THAT(table.answered(kHolder, begun.pushes.at(0).number), ElementsAre(begun.id));
}

TEST_F(Exclusiveness, TheLogOfTheHolderDoesNotWaitForWhoWaitsForIt) {
  EXPECT_EQ(acquire("dir"), kFirst);
  const auto waiting = change("dir");
  EXPECT_FALSE(waiting.may_go_on);
  EXPECT_TRUE(change("dir", kHolder, LeaseTable::From::kLog).may_go_on);
}

TEST_F(Exclusiveness, TwoLogsDoNotWaitForEachOther) {
  EXPECT_EQ(acquire("a"), kFirst);
  EXPECT_EQ(acquire("b", kOtherOne), kFirst + 1);
  const auto first = change("b", kHolder, LeaseTable::From::kLog);
  EXPECT_FALSE(first.may_go_on);
  const auto second = change("a", kOtherOne, LeaseTable::From::kLog);
  EXPECT_TRUE(second.may_go_on) << "the first one waits for this log";
  EXPECT_THAT(second.pushes, SizeIs(1)) << "it is taken back all the same";
}

TEST_F(Exclusiveness, NothingIsToldToOthersMeanwhile) {
  EXPECT_EQ(acquire("dir"), kFirst);
  EXPECT_EQ(table.grant(kOtherOne, "dir", Names::kNode), LeaseTable::Grant::kBeingChanged);
  EXPECT_EQ(table.grant(kOtherOne, "dir", Names::kNames), LeaseTable::Grant::kBeingChanged);
  EXPECT_EQ(table.grant(kHolder, "dir", Names::kNames), LeaseTable::Grant::kLease);
  const auto begun = look("dir");
  EXPECT_EQ(table.grant(kThird, "dir", Names::kNode), LeaseTable::Grant::kBeingChanged)
      << "nor until it ends";
  answer(begun.pushes.at(0));
  EXPECT_EQ(table.grant(kThird, "dir", Names::kNode), LeaseTable::Grant::kLease);
}

TEST_F(Exclusiveness, GrowsNoMoreWhileItIsTakenBack) {
  EXPECT_EQ(acquire("a"), kFirst);
  const auto begun = look("a");
  EXPECT_EQ(acquire("b"), 0u);
  answer(begun.pushes.at(0));
  EXPECT_EQ(acquire("b"), kFirst + 1);
}

TEST_F(Exclusiveness, WhatOthersAskedForIsGivenToNobodyForAWhile) {
  EXPECT_EQ(acquire("a"), kFirst);
  answer(look("a").pushes.at(0));
  now += 9900ms;
  EXPECT_EQ(acquire("a"), 0u);
  EXPECT_EQ(acquire("a", kOtherOne), 0u);
  now += 100ms;
  EXPECT_EQ(acquire("a"), kFirst + 1);
}

TEST_F(Exclusiveness, OneWithoutAConnectionIsWaitedForUntilItsLeaseIsOver) {
  EXPECT_EQ(acquire("dir"), kFirst);
  table.disconnect(kHolder, now);
  const auto begun = look("dir");
  EXPECT_FALSE(begun.may_go_on);
  now += 10'400ms;
  EXPECT_THAT(table.expire(now).released, IsEmpty());
  now += 100ms;
  EXPECT_THAT(table.expire(now).released, ElementsAre(begun.id));
  EXPECT_FALSE(table.has_exclusive(kHolder));
  (void)table.attach(kHolder, now);
  const auto told = table.unanswered(kHolder);
  ASSERT_THAT(told, SizeIs(1)) << "it hears of it when it is back";
  EXPECT_EQ(told[0].exclusive_over, kFirst);
  EXPECT_EQ(acquire("b"), kFirst + 1);
}

TEST_F(Exclusiveness, OneLongGoneIsNotWaitedFor) {
  EXPECT_EQ(acquire("dir"), kFirst);
  table.disconnect(kHolder, now);
  now += 11s;
  EXPECT_TRUE(look("dir").may_go_on);
}

TEST_F(Exclusiveness, WhoComesBackInTimeKeepsItAndIsAsked) {
  EXPECT_EQ(acquire("dir"), kFirst);
  table.disconnect(kHolder, now);
  const auto begun = look("dir");
  now += 3s;
  (void)table.attach(kHolder, now);
  ASSERT_THAT(table.unanswered(kHolder), SizeIs(1));
  EXPECT_THAT(table.answered(kHolder, begun.pushes.at(0).number), ElementsAre(begun.id));
}

TEST_F(Exclusiveness, WhoIsSilentIsCutAndLosesIt) {
  EXPECT_EQ(acquire("dir"), kFirst);
  const auto begun = look("dir");
  table.note_there(kHolder, begun.pushes[0].number);
  now += 9900ms;
  EXPECT_THAT(table.expire(now).to_cut, IsEmpty());
  now += 100ms;
  EXPECT_THAT(table.expire(now).to_cut, ElementsAre(kHolder));
  table.disconnect(kHolder, now);
  now += 10'500ms;
  EXPECT_THAT(table.expire(now).released, ElementsAre(begun.id));
  EXPECT_FALSE(table.has_exclusive(kHolder));
}

// A mount that died holds others up no longer for what it had to itself than for any other lease.
TEST_F(Exclusiveness, WhoDoesNotEvenSayThatItIsThereIsCutAsForAnyLease) {
  EXPECT_EQ(acquire("dir"), kFirst);
  const auto begun = look("dir");
  table.note_there(kHolder, begun.pushes[0].number + 1);
  table.note_there(kOtherOne, begun.pushes[0].number);
  table.note_log(kHolder, LeaseTable::Log::kCame, now + 1ms);  // on its way when its client died
  now += 3900ms;
  EXPECT_THAT(table.expire(now).to_cut, IsEmpty());
  now += 100ms;
  EXPECT_THAT(table.expire(now).to_cut, ElementsAre(kHolder));
}

TEST_F(Exclusiveness, WhoComesBackMustSayAgainThatItIsThere) {
  EXPECT_EQ(acquire("dir"), kFirst);
  const auto begun = look("dir");
  table.note_there(kHolder, begun.pushes[0].number);
  table.disconnect(kHolder, now);
  (void)table.attach(kHolder, now);
  now += 4s;
  EXPECT_THAT(table.expire(now).to_cut, ElementsAre(kHolder));
}

TEST_F(Exclusiveness, WhoIsCutAndComesAgainHasUntilItsLeaseOfThenIsOver) {
  EXPECT_EQ(acquire("dir"), kFirst);
  const auto begun = look("dir");
  now += 10s;
  EXPECT_THAT(table.expire(now).to_cut, SizeIs(1));
  table.disconnect(kHolder, now);
  (void)table.attach(kHolder, now);
  now += 10'400ms;
  EXPECT_THAT(table.expire(now).released, IsEmpty());
  now += 100ms;
  EXPECT_THAT(table.expire(now).released, ElementsAre(begun.id));
}

TEST_F(Exclusiveness, WhoIsAtItsLogHasAMinute) {
  EXPECT_EQ(acquire("dir"), kFirst);
  table.note_there(kHolder, look("dir").pushes[0].number);
  for (int log = 0; log < 6; ++log) {
    now += 9s;
    EXPECT_THAT(table.expire(now).to_cut, IsEmpty()) << log;
    table.note_log(kHolder, LeaseTable::Log::kCame, now);
  }
  now += 5900ms;
  EXPECT_THAT(table.expire(now).to_cut, IsEmpty());
  now += 100ms;
  EXPECT_THAT(table.expire(now).to_cut, ElementsAre(kHolder));
}

TEST_F(Exclusiveness, ALogThatIsHeldUpByOthersCountsAsBeingAtIt) {
  EXPECT_EQ(acquire("dir"), kFirst);
  table.note_there(kHolder, look("dir").pushes[0].number);
  table.note_log(kHolder, LeaseTable::Log::kBegun, now);
  now += 20s;
  EXPECT_THAT(table.expire(now).to_cut, IsEmpty());
  table.note_log(kHolder, LeaseTable::Log::kDone, now);
  now += 9900ms;
  EXPECT_THAT(table.expire(now).to_cut, IsEmpty());
  now += 100ms;
  EXPECT_THAT(table.expire(now).to_cut, SizeIs(1));
}

TEST_F(Exclusiveness, LocalProgramsEndItAndNobodyWaits) {
  EXPECT_EQ(acquire("dir"), kFirst);
  EXPECT_EQ(table.grant(kHolder, "dir", Names::kNames), LeaseTable::Grant::kLease);
  const auto told = table.changed({{.handle = "dir", .name = "x"}}, now);
  ASSERT_THAT(told.pushes, SizeIs(2));
  EXPECT_EQ(told.pushes[0].exclusive_over, kFirst);
  EXPECT_TRUE(told.pushes[1].changed);
}

TEST_F(Exclusiveness, MissedChangesEndIt) {
  EXPECT_EQ(acquire("dir"), kFirst);
  const auto told = table.anything_changed([](SessionNumber session) { return session == kHolder; }, now);
  EXPECT_THAT(told.pushes, SizeIs(2));
  EXPECT_FALSE(look("dir").may_go_on);
}

TEST_F(Exclusiveness, AnUnmountEndsIt) {
  EXPECT_EQ(acquire("dir"), kFirst);
  const auto begun = look("dir");
  EXPECT_THAT(table.end(kHolder), ElementsAre(begun.id));
  EXPECT_TRUE(look("dir", kThird).may_go_on);
}

// The client of a session that was given up goes on with another one, and knows the number that was over.
TEST_F(Exclusiveness, NoNumberComesTwice) {
  EXPECT_EQ(acquire("dir"), kFirst);
  (void)table.end(kHolder);
  (void)table.attach(kHolder, now);
  EXPECT_EQ(acquire("dir"), kFirst + 1);
}

// A client that is told to forget what it knew under older leases ends its exclusiveness as well.
TEST(OldLeases, TakeTheExclusivenessAlong) {
  const TimePoint now{1h};
  LeaseTable table({.interests_per_session = 2}, kFirst - 1);
  (void)table.attach(kHolder, now);
  const std::string_view directory = "dir";
  EXPECT_EQ(table.grant_exclusive(kHolder, std::span(&directory, 1), now), kFirst);
  for (const char* const node : {"a", "b", "c"}) (void)table.grant(kHolder, node, Names::kNode);
  const auto overdue = table.expire(now);
  ASSERT_THAT(overdue.pushes, SizeIs(2));
  EXPECT_NE(overdue.pushes[0].floor, 0u);
  EXPECT_EQ(overdue.pushes[1].exclusive_over, kFirst);
  for (const LeaseTable::Push& push : overdue.pushes) (void)table.answered(kHolder, push.number);
  EXPECT_EQ(table.grant_exclusive(kHolder, std::span(&directory, 1), now), kFirst + 1);
}

TEST(ExclusiveTable, IsBounded) {
  ExclusiveTable table(10s, 0);
  for (std::uint64_t key = 0; key < ExclusiveTable::kDirectoriesMax; ++key) ASSERT_TRUE(table.grant(1, key));
  EXPECT_FALSE(table.grant(1, ExclusiveTable::kDirectoriesMax));
  TimePoint now{1h};
  for (std::uint64_t key = 0; key <= ExclusiveTable::kContestedMax; ++key) table.contest(key, now);
  EXPECT_FALSE(table.contested(0, now)) << "forgotten for the newest";
  EXPECT_TRUE(table.contested(1, now));
}

}  // namespace
}  // namespace tusk::server
