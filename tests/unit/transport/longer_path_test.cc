#include "proto/transport/longer_path.h"

#include <gtest/gtest.h>

namespace tusk::transport {
namespace {

constexpr double kCapacity = 12.5e6;  // bytes/s: 12.5 KB pass in a millisecond
constexpr ByteCount kFlight = 1'150'000;

LongerPath::Round round_of(ByteCount flight, Duration queue) {
  return {.flight = flight,
          .rate = 0.9 * kCapacity,
          .capacity = kCapacity,
          .queue = queue,
          .wander = 500us,
          .lossless = true};
}

TEST(LongerPath, AQueueThatStaysWithLessInFlightIsNone) {
  LongerPath path;
  EXPECT_FALSE(path.end_round(round_of(kFlight, 18ms)));
  EXPECT_FALSE(path.end_round(round_of(kFlight - 40'000, 18ms)));
  EXPECT_TRUE(path.end_round(round_of(kFlight - 80'000, 18ms))) << "6.4 ms would be gone";
  EXPECT_FALSE(path.end_round(round_of(kFlight - 80'000, 18ms))) << "it says so once";
}

TEST(LongerPath, ABurstMoreOrLessChangesNothing) {
  LongerPath path;
  EXPECT_FALSE(path.end_round(round_of(kFlight, 18ms)));
  EXPECT_FALSE(path.end_round(round_of(kFlight - 40'000, 19'300us)));
  EXPECT_TRUE(path.end_round(round_of(kFlight - 80'000, 19'300us)));
}

TEST(LongerPath, AQueueGoesWithWhatIsInFlight) {
  LongerPath path;
  for (int round = 0; round < 10; ++round)
    EXPECT_FALSE(
        path.end_round(round_of(kFlight - 25'000 * static_cast<ByteCount>(round), 28ms - 2ms * round)));
}

TEST(LongerPath, LittleLessInFlightTellsNothing) {
  LongerPath path;
  for (int round = 0; round < 10; ++round)
    EXPECT_FALSE(path.end_round(round_of(kFlight - 4'000 * static_cast<ByteCount>(round), 18ms)));
}

TEST(LongerPath, AFullBufferLoses) {
  LongerPath path;
  for (int round = 0; round < 10; ++round) {
    auto full = round_of(kFlight - 40'000 * static_cast<ByteCount>(round), 18ms);
    full.lossless = false;
    EXPECT_FALSE(path.end_round(full));
  }
}

TEST(LongerPath, BesideOthersNothingIsConcluded) {
  LongerPath path;
  for (int round = 0; round < 10; ++round) {
    auto part = round_of(kFlight - 40'000 * static_cast<ByteCount>(round), 18ms);
    part.rate = 0.5 * kCapacity;
    EXPECT_FALSE(path.end_round(part));
  }
}

TEST(LongerPath, JitterTellsNothing) {
  LongerPath path;
  for (int round = 0; round < 10; ++round) {
    auto rough = round_of(kFlight - 40'000 * static_cast<ByteCount>(round), 18ms);
    rough.wander = 5ms;
    EXPECT_FALSE(path.end_round(rough));
  }
}

TEST(LongerPath, WhatWasForgottenIsNotCounted) {
  LongerPath path;
  EXPECT_FALSE(path.end_round(round_of(kFlight, 18ms)));
  EXPECT_FALSE(path.end_round(round_of(kFlight - 40'000, 18ms)));
  path.forget();
  EXPECT_FALSE(path.end_round(round_of(kFlight - 80'000, 18ms)));
}

}  // namespace
}  // namespace tusk::transport
