// When acknowledgements are due, and what they say.
#include "proto/transport/ack_tracker.h"

#include <gtest/gtest.h>

#include <set>

#include "proto/base/random.h"
#include "tests/golden/samples/wire_text.h"
#include "tests/unit/transport/virtual_time.h"

namespace tusk::transport {
namespace {

using wire::PacketNumber;

constexpr std::size_t kPlenty = 1200;  // bytes of room for a frame

// ---------------------------------------------------------------- vocabulary

class AckTrackerTest : public testing::Test {
 protected:
  void wait(Duration duration) { now_ += duration; }

  void receive(std::uint64_t number) { acks_.record(now_, PacketNumber(number), true, false); }
  void receive_bare(std::uint64_t number) { acks_.record(now_, PacketNumber(number), false, false); }
  void receive_marked(std::uint64_t number) { acks_.record(now_, PacketNumber(number), true, true); }
  // Packets 0 to `count` - 1 came and were acknowledged: the connection is not young any more.
  void grow_up(std::uint64_t count = AckTracker::kYoungPackets) {
    for (std::uint64_t n = 0; n < count; ++n) receive(n);
    (void)acks_.take_frame(now_, kPlenty);
  }

  [[nodiscard]] bool due_now() const { return acks_.due_at() <= now_; }
  std::string take(std::size_t room = kPlenty) {
    const auto frame = acks_.take_frame(now_, room);
    return frame ? golden::describe(wire::Frame(*frame)) : "nothing";
  }
  std::string ranges(std::size_t room = kPlenty) {
    const std::string text = take(room);
    return text.substr(text.find("ranges=") + 7);
  }

  AckTracker acks_;
  TimePoint now_ = at(1s);
};

// ---------------------------------------------------------------- when

TEST_F(AckTrackerTest, NothingIsDueBeforeAPacketCame) {
  EXPECT_EQ(acks_.due_at(), kNever);
  EXPECT_FALSE(acks_.pending());
  EXPECT_EQ(take(), "nothing");
}

TEST_F(AckTrackerTest, OnePacketIsAcknowledgedAfterTheDelay) {
  acks_.adapt_delay(80ms);
  receive(0);
  EXPECT_EQ(acks_.due_at(), now_ + 10ms);
  EXPECT_TRUE(acks_.pending());
  wait(5ms);
  receive(1);
  EXPECT_EQ(acks_.due_at(), now_ + 5ms) << "the first packet's time counts";
}

TEST_F(AckTrackerTest, TheDelayIsAnEighthOfTheRoundTripWithinItsBounds) {
  const auto delay = [&](Duration rtt) {
    AckTracker acks;
    acks.adapt_delay(rtt);
    acks.record(now_, PacketNumber(0), true, false);
    return acks.due_at() - now_;
  };
  EXPECT_EQ(delay(40ms), 5ms);
  EXPECT_EQ(delay(100us), AckTracker::kDelayMin);
  EXPECT_EQ(delay(10s), AckTracker::kDelayMax);
}

TEST_F(AckTrackerTest, AYoungConnectionAcknowledgesMoreOften) {
  constexpr std::uint64_t kFew = AckTracker::kPacketsPerAckYoung;
  ASSERT_LT(kFew, std::uint64_t{AckTracker::kPacketsPerAck});
  for (std::uint64_t n = 0; n < kFew - 1; ++n) receive(n);
  EXPECT_FALSE(due_now());
  receive(kFew - 1);
  EXPECT_TRUE(due_now());
}

TEST_F(AckTrackerTest, AGrownUpOneThinsThemOut) {
  grow_up();
  std::uint64_t n = AckTracker::kYoungPackets;
  for (int i = 0; i < AckTracker::kPacketsPerAck - 1; ++i) receive(n++);
  EXPECT_FALSE(due_now());
  receive(n++);
  EXPECT_TRUE(due_now());
  take();
  EXPECT_EQ(acks_.due_at(), kNever);
  receive(n++);
  EXPECT_FALSE(due_now()) << "the count starts again";
}

TEST_F(AckTrackerTest, PacketsThatAskForNothingAreNotAnswered) {
  for (std::uint64_t n = 0; n < 1000; ++n) receive_bare(n);
  EXPECT_FALSE(acks_.pending());
  receive(1000);
  EXPECT_TRUE(acks_.pending());
  EXPECT_EQ(ranges(), "0-1000") << "but they ride along";
}

// ---------------------------------------------------------------- what

TEST_F(AckTrackerTest, TheFrameTellsWhenTheLargestCameAndHowLongAgo) {
  receive(0);
  receive(2);
  wait(3ms);
  receive(1);
  wait(1500us);
  EXPECT_EQ(take(), "ACK delay_us=4500 received_at_us=1000000 congestion_marks=0 ranges=0-2");
}

TEST_F(AckTrackerTest, RangesDescendFromTheNewest) {
  for (const std::uint64_t n : {9, 1, 2, 5, 4, 0}) receive(n);
  EXPECT_EQ(ranges(), "9-9,4-5,0-2");
}

TEST_F(AckTrackerTest, EveryFrameRepeatsWhatCameBefore) {
  receive(0);
  receive(2);
  EXPECT_EQ(ranges(), "2-2,0-0");
  receive(5);
  EXPECT_EQ(ranges(), "5-5,2-2,0-0");
}

TEST_F(AckTrackerTest, CongestionMarksAreCounted) {
  receive(0);
  receive_marked(1);
  receive_marked(2);
  EXPECT_EQ(take(), "ACK delay_us=0 received_at_us=1000000 congestion_marks=2 ranges=0-2");
}

TEST_F(AckTrackerTest, AFrameHasAtMostTheAgreedRangesTheNewestOnes) {
  for (std::uint64_t n = 0; n < 200; ++n) receive(2 * n);
  const auto frame = acks_.take_frame(now_, 10'000);
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->ranges.size(), wire::kAckRangesMax);
  EXPECT_EQ(frame->ranges.front().last, PacketNumber(398));
}

TEST_F(AckTrackerTest, OldRangesAreSaidAgainNowAndThenOrWhenOneGrew) {
  const auto said = [this] { return acks_.take_frame(now_, kPlenty)->ranges.size(); };
  for (std::uint64_t n = 0; n < 40; ++n) receive(2 * n);
  EXPECT_EQ(said(), 40u) << "all, at first";
  EXPECT_EQ(said(), 40u) << "and once more, since the first one may be lost";
  for (int acks = 2; acks < AckTracker::kAcksPerFull; ++acks) EXPECT_EQ(said(), AckTracker::kNewestRanges);
  EXPECT_EQ(said(), 40u);
  receive(77);
  EXPECT_EQ(said(), AckTracker::kNewestRanges) << "which tell of it";
  receive(11);
  EXPECT_EQ(said(), 33u) << "down to what came late, else it is taken for lost";
}

TEST_F(AckTrackerTest, WhatALostFrameSaidTheNextOneSaysToo) {
  receive(0);
  (void)take();
  (void)take();
  for (std::uint64_t n = 1; n <= 24; ++n) receive(2 * n);
  EXPECT_EQ(acks_.take_frame(now_, kPlenty)->ranges.size(), 24u);
  for (std::uint64_t n = 25; n <= 48; ++n) receive(2 * n);
  EXPECT_EQ(acks_.take_frame(now_, kPlenty)->ranges.size(), 48u);
}

TEST_F(AckTrackerTest, WhatCameSinceTheLastFrameIsSaid) {
  receive(0);
  (void)take();
  (void)take();
  for (std::uint64_t n = 1; n <= 40; ++n) receive(2 * n);
  const auto frame = acks_.take_frame(now_, kPlenty);
  EXPECT_EQ(frame->ranges.size(), 40u);
  EXPECT_EQ(frame->ranges.back().first, PacketNumber(2));
}

TEST_F(AckTrackerTest, ItFitsTheRoomOrWaits) {
  for (std::uint64_t n = 0; n < 200; ++n) receive(2 * n);
  const auto frame = acks_.take_frame(now_, 40);
  ASSERT_TRUE(frame);
  EXPECT_LE(wire::ack_frame_size(*frame), 40u);
  EXPECT_GT(frame->ranges.size(), 10u);
  EXPECT_EQ(acks_.take_frame(now_, kPlenty)->ranges.size(), wire::kAckRangesMax) << "what was left out";

  for (std::uint64_t n = 1000; n < 1010; ++n) receive(n);
  EXPECT_EQ(take(3), "nothing");
  EXPECT_TRUE(acks_.pending()) << "still to be sent";
}

// ---------------------------------------------------------------- repeats, the floor, bounds

TEST_F(AckTrackerTest, APacketIsNewOnce) {
  EXPECT_TRUE(acks_.is_new(PacketNumber(3)));
  receive(3);
  EXPECT_FALSE(acks_.is_new(PacketNumber(3)));
  EXPECT_TRUE(acks_.is_new(PacketNumber(2)));
  EXPECT_EQ(acks_.next_expected(), PacketNumber(4));
}

TEST_F(AckTrackerTest, BelowTheFloorNothingIsNewAndNothingRepeated) {
  for (const std::uint64_t n : {0, 1, 5, 8}) receive(n);
  acks_.raise_floor(PacketNumber(5));
  EXPECT_FALSE(acks_.is_new(PacketNumber(3))) << "the peer said it does not ask about it";
  EXPECT_TRUE(acks_.is_new(PacketNumber(6)));
  EXPECT_EQ(ranges(), "8-8,5-5");
  acks_.raise_floor(PacketNumber(2));
  EXPECT_FALSE(acks_.is_new(PacketNumber(3))) << "a floor never sinks";
}

TEST_F(AckTrackerTest, WhatWasNotSaidIsSaidAboveTheFloorOnly) {
  for (std::uint64_t n = 0; n < 50; ++n) receive(2 * n);
  (void)acks_.take_frame(now_, 40);
  acks_.raise_floor(PacketNumber(20));
  const auto frame = acks_.take_frame(now_, kPlenty);
  EXPECT_EQ(frame->ranges.size(), 40u);
  EXPECT_EQ(frame->ranges.back().first, PacketNumber(20));
}

TEST_F(AckTrackerTest, AFloorAboveAllThatCameDoesNotShutOutTheNext) {
  receive(0);
  acks_.raise_floor(PacketNumber(kVarintMax));
  EXPECT_FALSE(acks_.is_new(PacketNumber(0)));
  EXPECT_TRUE(acks_.is_new(PacketNumber(1)));
  receive(1);
  EXPECT_EQ(ranges(), "1-1");
}

TEST_F(AckTrackerTest, APeerThatLeavesOnlyHolesCostsBoundedMemory) {
  const std::uint64_t count = 3 * AckTracker::kRangesMax;
  for (std::uint64_t n = 0; n < count; ++n) receive(2 * n);
  // Old packets count as seen: what is forgotten must not be processed twice.
  const std::uint64_t kept_most = 2 * AckTracker::kRangesMax;
  const std::uint64_t kept_least = kept_most - kept_most / AckTracker::kForgottenPart;
  EXPECT_FALSE(acks_.is_new(PacketNumber(1)));
  EXPECT_FALSE(acks_.is_new(PacketNumber(2 * count - kept_most - 1)));
  EXPECT_TRUE(acks_.is_new(PacketNumber(2 * count - kept_least + 1)));
}

TEST_F(AckTrackerTest, NoPacketIsEverProcessedTwice) {
  Random random(1);
  std::set<std::uint64_t> processed;
  for (int i = 0; i < 50'000; ++i) {
    const std::uint64_t newest = static_cast<std::uint64_t>(i) / 2;
    const std::uint64_t number = newest - std::min(newest, random.below(100));
    if (acks_.is_new(PacketNumber(number))) {
      ASSERT_TRUE(processed.insert(number).second) << number;
      receive(number);
    }
    if (random.chance(0.01)) acks_.raise_floor(PacketNumber(newest - std::min(newest, random.below(80))));
  }
  EXPECT_GT(processed.size(), 15'000u);
}

}  // namespace
}  // namespace tusk::transport
