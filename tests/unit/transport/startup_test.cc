#include "proto/transport/startup.h"

#include <gtest/gtest.h>

#include "tests/unit/transport/virtual_time.h"

namespace tusk::transport {
namespace {

constexpr ByteCount kFirstTrain = 100'000;
constexpr double kMuchMore = 1e9;  // than is delivered, is sent

// So many trains of 1 MB each, that arrive at 10 MB/s.
TrainCapacity trains(int count) {
  TrainCapacity trains;
  for (int i = 0; i < count; ++i)
    trains.add({.id = static_cast<std::uint64_t>(i), .bytes = 1'000'000, .spread = 100ms});
  return trains;
}

TEST(Startup, ThreeRoundsThatHardlyGrowAreAPlateau) {
  Startup startup;
  EXPECT_FALSE(startup.reaches_plateau(1e6, kMuchMore));
  EXPECT_FALSE(startup.reaches_plateau(1.3e6, kMuchMore));
  EXPECT_FALSE(startup.reaches_plateau(1.4e6, kMuchMore));
  EXPECT_FALSE(startup.reaches_plateau(1.5e6, kMuchMore));
  EXPECT_TRUE(startup.reaches_plateau(1.6e6, kMuchMore)) << "less than a quarter more than 1.3 in all";
}

TEST(Startup, GrowthBeginsTheCountAnew) {
  Startup startup;
  for (const double bandwidth : {1e6, 1e6, 1e6, 2e6, 2e6, 2e6, 2.6e6, 2.6e6})
    EXPECT_FALSE(startup.reaches_plateau(bandwidth, kMuchMore));
}

// What trains tell is sent, and the next ones may tell more.
TEST(Startup, WhereNoMoreWasSentThanIsDeliveredThreeRoundsAreNoPlateau) {
  Startup startup;
  for (int i = 0; i < 7; ++i) EXPECT_FALSE(startup.reaches_plateau(1e6, 1.05e6));
  EXPECT_FALSE(startup.reaches_plateau(1e6, 2e6)) << "more is sent from now on";
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(startup.reaches_plateau(1e6, 2e6));
  EXPECT_TRUE(startup.reaches_plateau(1e6, 2e6));
}

TEST(Startup, EveryOneEnds) {
  Startup startup;
  int rounds = 1;
  while (!startup.reaches_plateau(1e6, 1.15e6) && rounds < 100) ++rounds;
  EXPECT_EQ(rounds, 9) << "the first is growth";
}

TEST(Startup, AQueueThatALateProgramMadeIsGoneWithWhatComesNext) {
  constexpr double kFast = 100e6;
  Startup startup;
  TimePoint now{1h};
  for (int i = 0; i < 20; ++i, now += 9ms) {
    EXPECT_FALSE(startup.sees_queue(now, true, kFast));
    EXPECT_FALSE(startup.sees_queue(now + 8ms, true, kFast));
    EXPECT_FALSE(startup.sees_queue(now + 8ms, false, kFast));
  }
  EXPECT_FALSE(startup.sees_queue(now, true, kFast));
  EXPECT_FALSE(startup.sees_queue(now + 5ms, true, kFast));
  EXPECT_TRUE(startup.sees_queue(now + 10ms, true, kFast));
}

TEST(Startup, ASlowLineIsBelievedAtOnce) {
  Startup startup;
  EXPECT_FALSE(startup.sees_queue(TimePoint{1h}, false, 1e6));
  EXPECT_TRUE(startup.sees_queue(TimePoint{1h}, true, 1e6));
}

TEST(Startup, AnewOnlyMoreThanWhatIsLeftIsGrowth) {
  Startup startup;
  startup.begin(4e6);
  for (int i = 0; i < 3; ++i)
    EXPECT_FALSE(startup.reaches_plateau(4e6, kMuchMore)) << "the first is of before";
  EXPECT_TRUE(startup.reaches_plateau(4e6, kMuchMore));
}

TEST(Startup, ARoundIsNoMoreThan512TimesOneBefore) {
  Startup startup;
  EXPECT_DOUBLE_EQ(startup.cap(kFirstTrain, 0.1), 512 * 1e6) << "of a first train, at first";
  startup.carry({.acked = 150'000, .lost = 50'000, .app_limited = false}, kFirstTrain, 0.1);
  EXPECT_DOUBLE_EQ(startup.cap(kFirstTrain, 0.1), 512 * 2e6);
  startup.carry({.acked = 1000, .app_limited = false}, kFirstTrain, 0.1);
  EXPECT_DOUBLE_EQ(startup.cap(kFirstTrain, 0.1), 512 * 2e6) << "it does not fall";
  startup.begin(0);
  EXPECT_DOUBLE_EQ(startup.cap(kFirstTrain, 0.1), 512 * 1e6);
}

TEST(Startup, OfAProbeCountsWhatAPolicerWouldNotLetPassForLong) {
  Startup startup;
  startup.carry({.acked = 10'000'000, .app_limited = true}, kFirstTrain, 0.1);
  EXPECT_DOUBLE_EQ(startup.cap(kFirstTrain, 0.1), 512 * 524288 / 0.1);
}

TEST(Startup, BelievesTrainsToAPart) {
  EXPECT_EQ(Startup().believed(trains(0)), 0);
  EXPECT_DOUBLE_EQ(Startup().believed(trains(1)), trains(1).safe_rate());
  EXPECT_LT(Startup().believed(trains(1)), 8e6);
}

TEST(Startup, WhatThePathCarriedBeforeIsBelievedIfTrainsAgree) {
  Startup startup;
  startup.remember(9e6);
  EXPECT_DOUBLE_EQ(startup.believed(trains(1)), 0.97 * 9e6);
  startup.remember(12e6);
  EXPECT_DOUBLE_EQ(startup.believed(trains(1)), 10e6) << "no more than their bare spread";
  startup.remember(20e6);
  EXPECT_DOUBLE_EQ(startup.believed(trains(1)), trains(1).safe_rate()) << "less than 0.6 of it";
  startup.remember(3e6);
  EXPECT_DOUBLE_EQ(startup.believed(trains(1)), trains(1).safe_rate()) << "they say more";
}

TEST(Startup, ARememberedRateIsOfTheFirstStartOnly) {
  Startup startup;
  startup.remember(9e6);
  startup.end();
  EXPECT_DOUBLE_EQ(startup.believed(trains(1)), trains(1).safe_rate());
  startup.remember(9e6);
  EXPECT_DOUBLE_EQ(startup.believed(trains(1)), trains(1).safe_rate());
}

}  // namespace
}  // namespace tusk::transport
