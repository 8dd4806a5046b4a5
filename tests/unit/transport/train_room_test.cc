#include "proto/transport/train_room.h"

#include <gtest/gtest.h>

namespace tusk::transport {
namespace {

// Rounds until it is open again.
int rounds_closed(TrainRoom& room) {
  int rounds = 0;
  for (; !room.open(); ++rounds) room.end_round(false, 0);
  return rounds;
}

TEST(TrainRoom, IsOpenUntilItLosesPackets) {
  TrainRoom room;
  for (int round = 0; round < 100; ++round) {
    EXPECT_TRUE(room.open());
    room.end_round(true, 0.04);
  }
  room.end_round(true, 0.06);
  EXPECT_FALSE(room.open());
}

TEST(TrainRoom, WhatWasLostLaterWasAnothersDoing) {
  TrainRoom room;
  room.end_round(true, 0);
  for (int round = 0; round < 2; ++round) room.end_round(false, 0);
  room.end_round(false, 0.5);
  EXPECT_TRUE(room.open());
}

TEST(TrainRoom, WhatIsLostOfItMayBeToldTwoRoundsLater) {
  TrainRoom room;
  room.end_round(true, 0);
  room.end_round(false, 0);
  room.end_round(false, 0.5);
  EXPECT_FALSE(room.open());
}

TEST(TrainRoom, IsClosedForLongerEachTimeUntilTheLineIsAnotherOne) {
  TrainRoom room;
  for (const int expected : {16, 32, 64, 128, 256, 512, 512}) {
    room.end_round(true, 0.5);
    EXPECT_EQ(rounds_closed(room), expected);
  }
  room.reset();
  room.end_round(true, 0.5);
  EXPECT_EQ(rounds_closed(room), 16);
}

}  // namespace
}  // namespace tusk::transport
