// What flows to one host tell each other.
#include "proto/transport/siblings.h"

#include <gtest/gtest.h>

namespace tusk::transport {
namespace {

constexpr double kMbit = 125'000;

class SiblingsTest : public testing::Test {
 protected:
  [[nodiscard]] static TimePoint at(Duration since) { return TimePoint() + since; }
  [[nodiscard]] static Siblings::News news(Duration now = 1s) {
    return {.now = at(now), .rate = 100 * kMbit, .capacity = 400 * kMbit, .base = 50ms, .queue = 10ms};
  }
  Siblings::Others tell(int flow, const Siblings::News& news) { return siblings_.tell(&names_[flow], news); }
  double had(int flow, Duration when, ByteCount bytes) {
    auto told = news(when);
    told.delivered = bytes;
    return tell(flow, told).ahead;
  }

  Siblings siblings_;
  int names_[7];
};

TEST_F(SiblingsTest, NobodyIsHisOwnSibling) {
  EXPECT_EQ(tell(0, news()).flows, 0);
  EXPECT_EQ(tell(0, news(1100ms)).flows, 0);
}

TEST_F(SiblingsTest, TheOthersAreSummedUp) {
  tell(0, news());
  auto quarter = news();
  quarter.part = 0.25;
  quarter.rate = 20 * kMbit;
  quarter.capacity = 500 * kMbit;
  tell(1, quarter);
  const auto others = tell(2, news());
  EXPECT_EQ(others.flows, 2);
  EXPECT_DOUBLE_EQ(others.parts, 1.25);
  EXPECT_DOUBLE_EQ(others.rate, 120 * kMbit);
  EXPECT_DOUBLE_EQ(others.capacity, 450 * kMbit);
}

TEST_F(SiblingsTest, WhoFellSilentOrLeftIsNone) {
  tell(0, news());
  EXPECT_EQ(tell(1, news(1240ms)).flows, 1);
  EXPECT_EQ(tell(1, news(1260ms)).flows, 0);
  tell(0, news(1300ms));
  siblings_.leave(&names_[0]);
  EXPECT_EQ(tell(1, news(1300ms)).flows, 0);
}

// Behind one address there may be several hosts on several lines.
TEST_F(SiblingsTest, WhoSeesAnotherPathIsNone) {
  tell(0, news());
  auto farther = news();
  farther.base = 60ms;
  EXPECT_EQ(tell(1, farther).flows, 0);
  siblings_.leave(&names_[1]);
  auto longer = news();
  longer.queue = 20ms;
  EXPECT_EQ(tell(2, longer).flows, 0);
  EXPECT_DOUBLE_EQ(tell(2, longer).rate_of_all, 100 * kMbit);
  auto narrower = news();
  narrower.capacity = 200 * kMbit;
  EXPECT_EQ(tell(3, narrower).flows, 0);
}

// It has met the others' queue only, and its trains went between their packets.
TEST_F(SiblingsTest, WhoStartsNeedsToSeeNoMoreThanTheSameRoundTrip) {
  tell(0, news());
  Siblings::News start{.now = at(1s), .capacity = 30 * kMbit, .base = 59ms};
  EXPECT_EQ(tell(1, start).flows, 1);
  start.base = 200ms;
  EXPECT_EQ(tell(1, start).flows, 0);
}

// Who never saw the queue empty takes a part of it for the path.
TEST_F(SiblingsTest, ABaseThatCreptUpIsStillTheSamePath) {
  tell(0, news());
  auto crept = news();
  crept.base = 58ms;
  crept.queue = 2ms;
  EXPECT_EQ(tell(1, crept).flows, 1);
  // As long, with another queue: that is no reason to be taken for the same where the base says nothing.
  auto other = news();
  other.base = 52ms;
  other.queue = 0ms;
  siblings_.leave(&names_[1]);
  EXPECT_EQ(tell(2, other).flows, 0);
}

// What one flow takes the line for may be wrong by much. The queue of several is not: one by itself keeps
// none that long.
TEST_F(SiblingsTest, ALongQueueIsSharedWhateverOneTakesTheLineFor) {
  auto many = news();
  many.queue = 40ms;
  tell(0, many);
  many.capacity = 20 * kMbit;
  EXPECT_EQ(tell(1, many).flows, 1);
  auto alone = news();
  alone.capacity = 60 * kMbit;
  tell(2, news());
  EXPECT_EQ(tell(3, alone).flows, 0);
}

TEST_F(SiblingsTest, QueuesAreComparedByTheirLongestOfLate) {
  auto filled = news();
  filled.queue = 40ms;
  tell(0, filled);
  auto emptied = news(1100ms);
  emptied.queue = 0ms;
  tell(0, emptied);
  filled.now = at(1100ms);
  EXPECT_EQ(tell(1, filled).flows, 1);
}

TEST_F(SiblingsTest, WhatEachHadIsCounted) {
  had(0, 1s, 0);
  had(1, 1s, 500);  // before they met: nobody is owed that
  EXPECT_DOUBLE_EQ(had(0, 1100ms, 1000), 500);
  EXPECT_DOUBLE_EQ(had(1, 1100ms, 500), -500);
  EXPECT_DOUBLE_EQ(had(1, 1200ms, 1500), 0);
}

TEST_F(SiblingsTest, WhoComesLaterIsOwedItsPartFromThenOn) {
  had(0, 1s, 0);
  had(0, 1500ms, 70'000);
  had(0, 1600ms, 80'000);
  had(1, 1600ms, 0);  // begins with the first one, and is behind
  Duration now = 1600ms;
  while ((now += 200ms) < 4050ms) {
    had(0, now, 80'000);
    had(1, now, 0);
  }
  const double behind = had(1, 4050ms, 0);
  EXPECT_LT(behind, 0);
  EXPECT_DOUBLE_EQ(had(2, 4050ms, 0), 0);
  EXPECT_DOUBLE_EQ(had(1, 4050ms, 0), behind) << "that another one came is not its doing";
  had(0, 4060ms, 80'300);
  EXPECT_DOUBLE_EQ(had(2, 4060ms, 0), -100);
}

TEST_F(SiblingsTest, WhoBeginsALittleLaterIsOwedWhatTheOthersHad) {
  had(0, 1s, 70'000);  // before it began, which nobody is owed
  had(0, 1100ms, 70'600);
  EXPECT_DOUBLE_EQ(had(1, 1100ms, 0), -300);
  EXPECT_DOUBLE_EQ(had(2, 1200ms, 0), -200);
  EXPECT_DOUBLE_EQ(had(0, 1200ms, 70'600), 400);
}

// What went while it had nothing to send is not owed to it, though the others began lately.
TEST_F(SiblingsTest, WhoPausesIsNotOneThatBeginsLater) {
  had(0, 1s, 0);
  had(1, 1s, 0);
  Duration now = 1s;
  while ((now += 200ms) < 3500ms) had(0, now, 900'000);
  EXPECT_DOUBLE_EQ(had(1, 3500ms, 0), 0);
}

TEST_F(SiblingsTest, WhoWasSilentIsOwedNothingAndOwesWhatItOwed) {
  auto told = news();
  tell(0, told);
  tell(1, told);
  told.delivered = 1000;
  EXPECT_DOUBLE_EQ(tell(0, told).ahead, 500);
  told.now = at(2s);
  told.delivered = 100'000;
  EXPECT_DOUBLE_EQ(tell(0, told).ahead, 0) << "alone it owes nobody";
  EXPECT_DOUBLE_EQ(tell(1, news(2s)).ahead, -250) << "half of what the other one owes";
  told.now = at(5s);
  tell(0, told);
  EXPECT_DOUBLE_EQ(tell(1, news(5s)).ahead, 0);
}

// Each was charged what it had beside those that it saw then.
TEST_F(SiblingsTest, ACompanyOfManyIsComparedByAllThatEachHad) {
  auto mistaken = news();
  mistaken.capacity *= 10;
  for (int flow = 0; flow < 5; ++flow) tell(flow, news());
  tell(5, mistaken);
  mistaken.delivered = 600;
  EXPECT_EQ(tell(5, mistaken).flows, 0);
  auto told = news();
  told.delivered = 600;
  EXPECT_DOUBLE_EQ(tell(5, told).ahead, 500);
  EXPECT_DOUBLE_EQ(tell(0, news()).ahead, -100);
}

TEST_F(SiblingsTest, WhoIsSilentInACompanyIsOwedWhatTheOthersHad) {
  for (int flow = 0; flow < 6; ++flow) tell(flow, news());
  auto told = news(9s);
  told.delivered = 600;
  for (int flow = 0; flow < 5; ++flow) tell(flow, told);
  EXPECT_DOUBLE_EQ(tell(5, news(9s)).ahead, -500);
  told.now = at(30s);
  told.delivered = 1200;
  for (int flow = 0; flow < 5; ++flow) {
    auto going_on = told;
    for (Duration now = 9s; now < 30s; now += 200ms) {
      going_on.now = at(now);
      tell(flow, going_on);
    }
  }
  for (int flow = 0; flow < 5; ++flow) tell(flow, told);
  EXPECT_DOUBLE_EQ(tell(5, news(30s)).ahead, 0) << "but not for so long";
}

TEST_F(SiblingsTest, WhatACompanyHadIsForgottenInTime) {
  auto told = news();
  for (int flow = 0; flow < 6; ++flow) tell(flow, told);
  told.delivered = 600;
  EXPECT_DOUBLE_EQ(tell(0, told).ahead, 500);
  auto less = news();
  for (Duration now = 1s; now <= 100s; now += 200ms) {
    told.now = less.now = at(now);
    tell(0, told);
    for (int flow = 1; flow < 6; ++flow) tell(flow, less);
  }
  told.delivered = 1'000'600;
  EXPECT_NEAR(tell(0, told).ahead, 500 + 1'000'000 / 1.2, 1e-3) << "by what each was charged";
}

TEST_F(SiblingsTest, WhoDoesNotWantItsPartIsNotWaitedFor) {
  auto told = news();
  for (int flow = 0; flow < 7; ++flow) tell(flow, told);
  told.delivered = 600;
  auto little = news();
  little.rate /= 4;
  tell(6, little);
  for (int flow = 0; flow < 6; ++flow) tell(flow, told);
  EXPECT_NEAR(tell(0, told).ahead, 0, 1e-6);
}

// Who comes when they have been here for long, with a part of a line.
TEST_F(SiblingsTest, WhoComesLaterIsNoneOfTheCompany) {
  auto told = news();
  for (int flow = 0; flow < 6; ++flow) tell(flow, told);
  for (Duration now = 1s; now <= 20s; now += 200ms) {
    told.now = at(now);
    told.delivered += 1000;
    for (int flow = 0; flow < 6; ++flow) tell(flow, told);
  }
  EXPECT_NEAR(tell(6, news(20s)).ahead, 0, 1e-6);
  EXPECT_NEAR(tell(0, told).ahead, 0, 1e-6);
}

// A mount that opens a second connection has halves from then on.
TEST_F(SiblingsTest, WhatACompanyHadIsNotWorthMoreForASmallerPart) {
  auto told = news();
  for (int flow = 0; flow < 6; ++flow) tell(flow, told);
  told.delivered = 600;
  for (int flow = 0; flow < 6; ++flow) tell(flow, told);
  auto half = told;
  half.part = 0.5;
  EXPECT_DOUBLE_EQ(tell(0, half).ahead, 0);
  EXPECT_DOUBLE_EQ(tell(1, told).ahead, 0);
}

// 16 s of its part, 200 of 400 Mbit/s.
TEST_F(SiblingsTest, OldDebtsAreForgotten) {
  auto told = news();
  tell(1, told);
  tell(0, told);
  told.delivered = 1'000'000'000;
  EXPECT_DOUBLE_EQ(tell(0, told).ahead, 16 * 200 * kMbit);
}

TEST_F(SiblingsTest, AllHearWhenOneEmptiesTheQueue) {
  auto empties = news();
  empties.emptying = at(990ms);
  tell(0, empties);
  EXPECT_EQ(tell(1, news()).emptying, at(990ms));
}

}  // namespace
}  // namespace tusk::transport
