// What acknowledgements tell of a path: the rate of delivery, and trains of packets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "tests/unit/transport/sent_packets_fixture.h"

namespace tusk::transport {
namespace {

using DeliveryRateTest = SentPacketsTest;

constexpr double kEveryMillisecond = kSentSize / 0.001;  // bytes/s of a packet each millisecond

TEST_F(DeliveryRateTest, TheRateIsThatOfTheArrivals) {
  // A packet every 500 us, a bottleneck that passes one every millisecond, 50 ms there and back.
  std::vector<TimePoint> acks;
  for (int i = 0; i < 400; ++i) acks.push_back(at(50ms + i * 1ms));
  std::size_t next = 0;
  for (int i = 0; i < 400; ++i) {
    wait_until(i * 500us);
    while (next < acks.size() && acks[next] <= now_) ASSERT_TRUE(ack(next++));
    send();
  }
  for (; next < acks.size(); ++next) {
    now_ = acks[next];
    ASSERT_TRUE(ack(next));
    if (next > 150) {
      EXPECT_NEAR(outcome_.event.rate, kEveryMillisecond, 0.03 * kEveryMillisecond) << next;
    }
  }
}

TEST_F(DeliveryRateTest, AcknowledgementsThatComeTogetherDoNotFoolTheRate) {
  // The return path holds acknowledgements for 30 ms and lets them go at once; the receiver's clock
  // still tells when the packets came.
  for (int i = 0; i < 300; ++i) {
    wait_until(i * 1ms);
    send();
    if (i >= 50 && i % 30 == 0) {
      for (int n = std::max(0, i - 80); n <= i - 50; ++n) {
        auto frame = ack_frame({{0, static_cast<std::uint64_t>(n)}});
        frame.received_at_us = 1'000'000 + static_cast<std::uint64_t>(n) * 1000;
        ASSERT_TRUE(ack(frame));
        if (n > 100 && outcome_.event.rate > 0) {
          EXPECT_NEAR(outcome_.event.rate, kEveryMillisecond, 0.05 * kEveryMillisecond) << n;
        }
      }
    }
  }
}

TEST_F(DeliveryRateTest, ARateOfASenderThatHadNothingMoreToSendIsMarked) {
  know_round_trip(10ms);
  const auto limited = send(kSentSize, true);
  wait(10ms);
  ASSERT_TRUE(ack(limited));
  EXPECT_GT(outcome_.event.rate, 0.0);
  EXPECT_TRUE(outcome_.event.app_limited);
  const auto full = send(kSentSize, false);
  wait(10ms);
  ASSERT_TRUE(ack(full));
  EXPECT_FALSE(outcome_.event.app_limited);
}

TEST_F(DeliveryRateTest, IdleTimeIsNotPartOfTheRate) {
  know_round_trip(10ms);
  wait(5s);
  const auto number = send();
  wait(10ms);
  ASSERT_TRUE(ack(number));
  EXPECT_NEAR(outcome_.event.rate, kSentSize / 0.010, 1.0);
}

// Of five that leave together the first is acknowledged by itself, then what `rest` says, 24 ms later.
class ATrainOnASlowLine : public SentPacketsTest {
 protected:
  std::optional<PacketTrain> train(wire::AckFrame rest) {
    for (int i = 0; i < 5; ++i) send();
    wait(100ms);
    wire::AckFrame first = ack_frame({{0, 0}});
    first.received_at_us = 1'000'000;
    EXPECT_TRUE(ack(first));
    wait(24ms);
    rest.received_at_us = 1'024'000;
    EXPECT_TRUE(ack(rest));
    return outcome_.event.train;
  }
};

TEST_F(ATrainOnASlowLine, TellsWhenAllOfItArrived) {
  const auto whole = train(ack_frame({{0, 4}}));
  ASSERT_TRUE(whole);
  EXPECT_TRUE(whole->one_by_one);
  EXPECT_EQ(whole->bytes, 4 * kSentSize);
  EXPECT_EQ(whole->spread, 24ms);
}

TEST_F(ATrainOnASlowLine, TellsNothingWhereOneIsMissing) { EXPECT_FALSE(train(ack_frame({{3, 4}, {0, 1}}))); }

TEST_F(DeliveryRateTest, AReceiversClockThatJumpsDoesNoHarm) {
  send();
  send();
  send();
  auto frame = ack_frame({{0, 0}});
  frame.received_at_us = 1;
  wait(10ms);
  ASSERT_TRUE(ack(frame));
  send();
  frame = ack_frame({{0, 3}});
  frame.received_at_us = kVarintMax;
  wait(10ms);
  ASSERT_TRUE(ack(frame));
  EXPECT_GE(outcome_.event.rate, 0.0);
  EXPECT_LT(outcome_.event.rate, 1e9);
}

}  // namespace
}  // namespace tusk::transport
