// What the controller measures: of a round trip, of the rate samples of several, of what is delivered on
// average, and of what a line near by carries for long.
#include <gtest/gtest.h>

#include "proto/transport/carried_rate.h"
#include "proto/transport/delivery_rate.h"
#include "proto/transport/goodput.h"
#include "proto/transport/round_tally.h"
#include "tests/unit/transport/virtual_time.h"

namespace tusk::transport {
namespace {

// ---------------------------------------------------------------- a round trip

TEST(RoundTally, TellsWhatIsLostAndHowManyPacketsThatIsOf) {
  const RoundTally tally{.acked = 90'000, .lost = 10'000};
  EXPECT_EQ(tally.told(), 100'000u);
  EXPECT_DOUBLE_EQ(tally.loss(), 0.1);
  EXPECT_DOUBLE_EQ(tally.packets(1000), 100);
}

TEST(RoundTally, WithoutNewsNothingIsLost) {
  const RoundTally tally;
  EXPECT_EQ(tally.loss(), 0);
  EXPECT_TRUE(tally.app_limited);
}

TEST(RoundTally, GoodputCountsPauses) {
  const RoundTally tally{.began = at(1s), .acked = 100'000};
  EXPECT_DOUBLE_EQ(tally.goodput(at(1100ms)), 1e6);
  EXPECT_DOUBLE_EQ(tally.goodput(at(2s)), 1e5);
}

TEST(RoundTally, ARoundOfNoTimeIsNotInfinitelyFast) {
  const RoundTally tally{.began = at(1s), .acked = 100};
  EXPECT_DOUBLE_EQ(tally.goodput(at(1s)), 100 / 50e-6);
}

// ---------------------------------------------------------------- rate samples

TEST(DeliveryRate, AtFirstThereIsNone) {
  const DeliveryRate rate;
  EXPECT_EQ(rate.newest(), 0);
  EXPECT_EQ(rate.newest_full(), 0);
  EXPECT_EQ(rate.best(), 0);
}

TEST(DeliveryRate, BestIsTheMostOfTwelveRounds) {
  DeliveryRate rate;
  rate.add(1, {.rate = 5e6});
  for (std::uint64_t round = 2; round <= 20; ++round) {
    rate.add(round, {.rate = 3e6});
    rate.end_round(round);
    EXPECT_EQ(rate.newest(), 3e6);
    EXPECT_EQ(rate.best(), round <= 13 ? 5e6 : 3e6) << round;
  }
}

TEST(DeliveryRate, WhatIsFasterCountsAtOnce) {
  DeliveryRate rate;
  for (const double sample : {3e6, 2e6, 1e6, 4e6}) rate.add(1, {.rate = sample});
  EXPECT_EQ(rate.best(), 4e6);
  rate.add(2, {.rate = 2e6});
  rate.end_round(14);
  EXPECT_EQ(rate.best(), 2e6) << "of the second round";
}

TEST(DeliveryRate, SilenceProvesNothing) {
  DeliveryRate rate;
  rate.add(1, {.rate = 5e6});
  rate.end_round(1000);
  EXPECT_EQ(rate.best(), 5e6);
}

TEST(DeliveryRate, AWindowThatWasNotFilledWouldHaveBroughtMore) {
  DeliveryRate rate;
  rate.add(1, {.rate = 3e6, .filled = 0.75, .flight = 150'000});
  EXPECT_EQ(rate.newest(), 3e6);
  EXPECT_DOUBLE_EQ(rate.newest_full(), 4e6);
  EXPECT_EQ(rate.flight(), 150'000u);
}

TEST(DeliveryRate, AfterARestartNothingFasterIsKnown) {
  DeliveryRate rate;
  rate.add(1, {.rate = 8e6, .filled = 0.5});
  rate.restart(2, 2e6);
  EXPECT_EQ(rate.newest(), 2e6);
  EXPECT_EQ(rate.best(), 2e6);
  EXPECT_EQ(rate.filled(), 0.5);
  rate.restart(3, 0);
  rate.add(3, {.rate = 1e6});
  EXPECT_EQ(rate.best(), 1e6);
}

// ---------------------------------------------------------------- on average

TEST(Goodput, TheFirstRoundIsTheMeanAndEachLaterOneAQuarterOfIt) {
  Goodput goodput;
  goodput.end_round(8e6);
  EXPECT_DOUBLE_EQ(goodput.mean(), 8e6);
  goodput.end_round(4e6);
  EXPECT_DOUBLE_EQ(goodput.mean(), 7e6);
  EXPECT_DOUBLE_EQ(goodput.newest(), 4e6);
}

TEST(Goodput, IsRaisedAndNeverLowered) {
  Goodput goodput;
  goodput.end_round(4e6);
  goodput.raise(3e6);
  EXPECT_DOUBLE_EQ(goodput.mean(), 4e6);
  goodput.raise(5e6);
  EXPECT_DOUBLE_EQ(goodput.mean(), 5e6);
  EXPECT_DOUBLE_EQ(goodput.newest(), 4e6);
}

// ---------------------------------------------------------------- near by

TEST(CarriedRate, IsOfAWholeTenthOfASecondWithItsPauses) {
  CarriedRate carried;
  EXPECT_FALSE(carried.end_round(at(1s), 50'000)) << "when that began is not known";
  for (int i = 1; i < 10; ++i) EXPECT_FALSE(carried.end_round(at(1s + i * 10ms), 10'000));
  EXPECT_EQ(carried.rate(), 0);
  EXPECT_TRUE(carried.end_round(at(1200ms), 10'000));
  EXPECT_DOUBLE_EQ(carried.rate(), 100'000 / 0.2);
}

TEST(CarriedRate, TheNextOneBeginsWhereThatEnded) {
  CarriedRate carried;
  EXPECT_FALSE(carried.end_round(at(1s), 1));
  EXPECT_TRUE(carried.end_round(at(1100ms), 10'000));
  EXPECT_FALSE(carried.end_round(at(1150ms), 10'000));
  EXPECT_DOUBLE_EQ(carried.rate(), 100'000) << "until then it stays";
  EXPECT_TRUE(carried.end_round(at(1200ms), 10'000));
  EXPECT_DOUBLE_EQ(carried.rate(), 200'000);
}

TEST(CarriedRate, OfAnotherLineNothingIsKnown) {
  CarriedRate carried;
  EXPECT_FALSE(carried.end_round(at(1s), 1));
  EXPECT_TRUE(carried.end_round(at(1100ms), 10'000));
  carried = {};
  EXPECT_EQ(carried.rate(), 0);
  EXPECT_FALSE(carried.end_round(at(1300ms), 10'000));
}

}  // namespace
}  // namespace tusk::transport
