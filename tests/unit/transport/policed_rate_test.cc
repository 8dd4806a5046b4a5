#include "proto/transport/policed_rate.h"

#include <gtest/gtest.h>

namespace tusk::transport {
namespace {

constexpr double kTrip = 0.1;  // s

// 5 MB/s passed before a test: half a megabyte a round trip.
class PolicedRateTest : public testing::Test {
 protected:
  PolicedRateTest() { rate_.learn(5e6); }

  // A round of that window after which the law would have `lawful`.
  static PolicedRate::Round round(double window, double lawful, bool content) {
    return {.window = window,
            .lawful = lawful,
            .delivered = window / kTrip,
            .round_trip = kTrip,
            .content = content};
  }

  PolicedRate rate_;
};

TEST_F(PolicedRateTest, WhereNothingIsKnownTheLawHolds) {
  PolicedRate unknown;
  EXPECT_DOUBLE_EQ(unknown.end_round(round(1e6, 3e6, false)), 3e6);
  EXPECT_TRUE(unknown.speaks_against(1, false));
  rate_.forget();
  EXPECT_DOUBLE_EQ(rate_.end_round(round(1e6, 3e6, false)), 3e6);
}

TEST_F(PolicedRateTest, WhatArrivesLateIsNoReasonToSendLess) {
  EXPECT_DOUBLE_EQ(rate_.end_round(round(5e5, 4.9e5, true)), 5e5);
}

TEST_F(PolicedRateTest, WhoIsContentDoesNotTryMore) {
  EXPECT_DOUBLE_EQ(rate_.end_round(round(5e5, 6e5, true)), 5e5);
}

TEST_F(PolicedRateTest, ComesBackToWhatPassedBefore) {
  double window = 2.5e5;
  int rounds = 0;
  for (; window < 5e5; ++rounds) window = rate_.end_round(round(window, 0.99 * window, true));
  EXPECT_DOUBLE_EQ(window, 5e5);
  EXPECT_EQ(rounds, 10);
}

TEST_F(PolicedRateTest, WhatALittleLossTellsIsTooMuch) {
  PolicedRate::Round lossy = round(5.5e5, 5.5e5, true);
  lossy.lost = 0.009;
  EXPECT_DOUBLE_EQ(rate_.end_round(lossy), 0.991 * 5.5e5);
  // And does not come back to it.
  EXPECT_NEAR(rate_.end_round(round(4.9e5, 4.8e5, true)), 0.991 * 5e5, 1);
}

TEST_F(PolicedRateTest, WhatIsLostByChanceIsNone) {
  PolicedRate::Round lossy = round(5e5, 5e5, true);
  lossy.lost = 0.001;
  EXPECT_DOUBLE_EQ(rate_.end_round(lossy), 5e5);
}

TEST_F(PolicedRateTest, APolicerThatBecameSlowerIsBelieved) {
  PolicedRate::Round lossy = round(5e5, 4e5, true);
  lossy.lost = 0.5;
  lossy.delivered = 2.5e6;
  EXPECT_DOUBLE_EQ(rate_.end_round(lossy), 4e5);
  EXPECT_DOUBLE_EQ(rate_.end_round(round(2.5e5, 2.4e5, true)), 2.5e5);
}

TEST_F(PolicedRateTest, AQueueIsDrained) {
  PolicedRate::Round queued = round(5e5, 4.5e5, true);
  queued.queue = true;
  EXPECT_DOUBLE_EQ(rate_.end_round(queued), 4.5e5);
}

TEST_F(PolicedRateTest, TriesMoreByLittle) {
  EXPECT_DOUBLE_EQ(rate_.end_round(round(5e5, 6e5, false)), 1.03 * 5e5);
  // But what passed before at once.
  EXPECT_DOUBLE_EQ(rate_.end_round(round(2e5, 2.1e5, false)), 1.08 * 2e5);
}

TEST_F(PolicedRateTest, ARoundOfNoMoreTellsNothing) {
  EXPECT_FALSE(rate_.speaks_against(5.1e6, false));
  EXPECT_TRUE(rate_.speaks_against(5.3e6, false));
}

// It drops: what waits is in the buffer of a line that carries just as much.
TEST_F(PolicedRateTest, WhereAsMuchPassesAndWaitsThereIsNoPolicer) {
  EXPECT_TRUE(rate_.speaks_against(5e6, true));
  EXPECT_FALSE(rate_.speaks_against(4e6, true)) << "a queue of somebody else's, elsewhere";
}

}  // namespace
}  // namespace tusk::transport
