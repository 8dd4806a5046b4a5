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

  Siblings siblings_;
  int names_[4];
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

TEST_F(SiblingsTest, AllHearWhenOneEmptiesTheQueue) {
  auto empties = news();
  empties.emptying = at(990ms);
  tell(0, empties);
  EXPECT_EQ(tell(1, news()).emptying, at(990ms));
}

}  // namespace
}  // namespace tusk::transport
