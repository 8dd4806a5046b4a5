#include "proto/transport/proactive_copies.h"

#include <gtest/gtest.h>

namespace tusk::transport {
namespace {

constexpr Duration kRtt = 100ms;
constexpr ByteCount kWindow = 1 << 20;

SentFrame frame(std::uint64_t exchange, std::uint32_t length = 100) {
  return {SentFrame::Kind::kBody, wire::ExchangeId(exchange), 0, length};
}

SentFrame repair_of(SentFrame frame) {
  frame.repair = true;
  return frame;
}

struct ProactiveCopiesTest : testing::Test {
  ProactiveCopies copies_;
  TimePoint now_{1h};
};

TEST_F(ProactiveCopiesTest, ComeALittleLaterAndOnce) {
  copies_.handle_sent(now_, frame(7), kRtt);
  EXPECT_FALSE(copies_.take_due(now_, 0, kWindow));
  const TimePoint due = copies_.next_timeout();
  EXPECT_GT(due, now_);
  EXPECT_LE(due, now_ + kRtt / 16);
  const auto copy = copies_.take_due(due, 0, kWindow);
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->exchange, wire::ExchangeId(7));
  EXPECT_FALSE(copies_.take_due(due, 0, kWindow));
  EXPECT_EQ(copies_.next_timeout(), kNever);
}

TEST_F(ProactiveCopiesTest, EndOnAPathThatLosesNothingAndBeginAgainWhenItDoes) {
  copies_.handle_settled(4100, 0);
  copies_.handle_sent(now_, frame(1), kRtt);
  EXPECT_EQ(copies_.next_timeout(), kNever);
  copies_.handle_settled(300, 1);
  copies_.handle_sent(now_, frame(2), kRtt);
  EXPECT_NE(copies_.next_timeout(), kNever);
}

// A path that loses one packet in a thousand has lost none or few of the last thousands now and then.
TEST_F(ProactiveCopiesTest, GoOnThroughALuckyTime) {
  copies_.handle_settled(40'000, 40);
  copies_.handle_settled(10'000, 0);
  copies_.handle_sent(now_, frame(1), kRtt);
  EXPECT_NE(copies_.next_timeout(), kNever);
}

TEST_F(ProactiveCopiesTest, AreNotForPathsWhereALossCostsLess) {
  copies_.handle_sent(now_, frame(1), 10ms);
  EXPECT_EQ(copies_.next_timeout(), kNever);
  copies_.handle_settled(10'000, 100);
  copies_.handle_sent(now_, frame(2), 10ms);
  EXPECT_NE(copies_.next_timeout(), kNever);
}

TEST_F(ProactiveCopiesTest, LossOfLongAgoIsForgotten) {
  copies_.handle_settled(10'000, 100);
  for (int i = 0; i < 50; ++i) copies_.handle_settled(5'000, 0);
  copies_.handle_sent(now_, frame(1), kRtt);
  EXPECT_EQ(copies_.next_timeout(), kNever);
}

TEST_F(ProactiveCopiesTest, AreForWhatWasLostTwiceWhereFewAre) {
  copies_.handle_settled(30'000, 600);
  copies_.handle_lost(now_, repair_of(frame(1)), false, kRtt);
  ASSERT_NE(copies_.next_timeout(), kNever);
  EXPECT_TRUE(copies_.take_due(copies_.next_timeout(), kWindow, kWindow)) << "also beside others";
  copies_.handle_settled(30'000, 6'000);  // a queue that overflows
  copies_.handle_lost(now_, repair_of(frame(2)), false, kRtt);
  EXPECT_EQ(copies_.next_timeout(), kNever);
}

TEST_F(ProactiveCopiesTest, AreForWhatWasLostOnceWhereThereIsNothingElseToSend) {
  copies_.handle_lost(now_, frame(1), false, kRtt);
  EXPECT_EQ(copies_.next_timeout(), kNever);
  copies_.handle_lost(now_, frame(2), true, kRtt);
  const auto copy = copies_.take_due(copies_.next_timeout(), 0, kWindow);
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->exchange, wire::ExchangeId(2));
}

TEST_F(ProactiveCopiesTest, AreASmallPartOfAFullLine) {
  ByteCount copied = 0;
  constexpr ByteCount kSent = 64ull << 20;
  for (ByteCount sent = 0; sent < kSent; sent += 1400) {
    copies_.handle_bytes_sent(1400);
    copies_.handle_sent(now_, frame(sent, 1400), kRtt);
    if (const auto copy = copies_.take_due(now_ + 1s, kWindow, kWindow)) copied += copy->length;
  }
  EXPECT_GT(copied, kSent / 20);
  EXPECT_LT(copied, kSent / 14);
}

}  // namespace
}  // namespace tusk::transport
