#include "proto/transport/buffer_room.h"

#include <gtest/gtest.h>

namespace tusk::transport {
namespace {

struct BufferRoomTest : testing::Test {
  void round(double lost, Duration queue, double packets = 1000, double own = 0) {
    now_ += 100ms;
    room_.end_round({.now = now_,
                     .acked = packets * (1 - lost),
                     .lost = packets * lost,
                     .own = own,
                     .queue = queue,
                     .longest = queue + 100us,
                     .kept = std::min<Duration>(5ms, room_.room())});
  }
  void learn() {
    for (int i = 0; i < BufferRoom::kOverruns; ++i) round(0.1, 1900us);
  }

  TimePoint now_{1h};
  BufferRoom room_;
};

TEST_F(BufferRoomTest, IsUnlimitedUntilLossesShowOtherwise) {
  for (int i = 0; i < 100; ++i) round(0.0005, 5ms);
  EXPECT_FALSE(room_.limited());
}

TEST_F(BufferRoomTest, IsThreeQuartersOfTheQueueMetWhereItOverflows) {
  learn();
  EXPECT_EQ(room_.room(), Duration(2ms) * 3 / 4);
}

TEST_F(BufferRoomTest, IsNotLearntFromABurstOfLosses) {
  for (int i = 0; i < 100; ++i) round(i % 3 == 2 ? 0 : 0.1, 5ms);
  EXPECT_FALSE(room_.limited());
}

TEST_F(BufferRoomTest, IsNotLearntFromAPolicerWhichHasNoQueue) {
  for (int i = 0; i < 100; ++i) round(0.3, 100us);
  EXPECT_FALSE(room_.limited());
}

TEST_F(BufferRoomTest, IsNotLearntFromWhatThePathLosesByItself) {
  for (int i = 0; i < 100; ++i) round(0.05, 5ms, 1000, 0.05);
  EXPECT_FALSE(room_.limited());
}

TEST_F(BufferRoomTest, IsLearntFromRoundsOfFewPacketsToo) {
  for (int i = 0; i < 10 * BufferRoom::kOverruns; ++i) round(0.3, 1900us, 12);
  EXPECT_TRUE(room_.limited());
}

TEST_F(BufferRoomTest, IsLearntFromTheRoundsBetweenTests) {
  for (int i = 0; i < BufferRoom::kOverruns; ++i) {
    round(0.1, 1900us);
    round(0.1, 1900us, 50);
    room_.interrupt();
  }
  EXPECT_TRUE(room_.limited());
}

TEST_F(BufferRoomTest, IsDoubtedAfterAWhileWithoutLosses) {
  learn();
  const Duration before = room_.room();
  for (int i = 0; i < 50; ++i) round(0, 1ms);
  EXPECT_GT(room_.room(), before);
}

TEST_F(BufferRoomTest, IsNeverLessThanTheLeast) {
  for (int i = 0; i < 100; ++i) round(0.3, BufferRoom::kLeast + 1us);
  EXPECT_GE(room_.room(), BufferRoom::kLeast);
}

}  // namespace
}  // namespace tusk::transport
