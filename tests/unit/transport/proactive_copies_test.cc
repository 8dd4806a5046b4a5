#include "proto/transport/proactive_copies.h"

#include <gtest/gtest.h>

namespace tusk::transport {
namespace {

constexpr Duration kRtt = 100ms;
constexpr ByteCount kWindow = 1 << 20;
constexpr ByteCount kSmall = 100;
constexpr double kRate = 125e6;  // bytes/s

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
  copies_.handle_sent(now_, frame(7), kSmall, kRtt, kRate);
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

// The head of a file comes with its OPEN: 512 KiB are 4 ms at 1 Gbit/s, and 40 at 100 Mbit/s.
TEST_F(ProactiveCopiesTest, AreForWhatTakesTheLineLittleTime) {
  constexpr ByteCount kHead = 512 * 1024;
  copies_.handle_settled(1100, 0);
  copies_.handle_sent(now_, frame(1), kHead, kRtt, kRate);
  EXPECT_EQ(copies_.next_timeout(), kNever) << "nothing gets lost, it seems";
  copies_.handle_settled(300, 1);
  copies_.handle_sent(now_, frame(1), kHead, kRtt, kRate / 10);
  EXPECT_EQ(copies_.next_timeout(), kNever);
  copies_.handle_sent(now_, frame(2), 4 * kHead, kRtt, kRate);
  EXPECT_EQ(copies_.next_timeout(), kNever);
  copies_.handle_sent(now_, frame(3), kHead, kRtt / 4, kRate);
  EXPECT_EQ(copies_.next_timeout(), kNever) << "a loss costs less there";
  copies_.handle_sent(now_, frame(4), kHead, kRtt, kRate);
  EXPECT_NE(copies_.next_timeout(), kNever);
  (void)copies_.take_due(now_ + 1s, 0, kWindow);
  copies_.handle_settled(1000, 1000);
  copies_.handle_sent(now_, frame(5), kHead, kRtt, kRate);
  EXPECT_EQ(copies_.next_timeout(), kNever) << "a queue overflows, perhaps";
}

TEST_F(ProactiveCopiesTest, EndOnAPathThatLosesNothingAndBeginAgainWhenItDoes) {
  copies_.handle_settled(4100, 0);
  copies_.handle_sent(now_, frame(1), kSmall, kRtt, kRate);
  EXPECT_EQ(copies_.next_timeout(), kNever);
  copies_.handle_settled(300, 1);
  copies_.handle_sent(now_, frame(2), kSmall, kRtt, kRate);
  EXPECT_NE(copies_.next_timeout(), kNever);
}

// A path that loses one packet in a thousand has lost none or few of the last thousands now and then.
TEST_F(ProactiveCopiesTest, GoOnThroughALuckyTime) {
  copies_.handle_settled(40'000, 40);
  copies_.handle_settled(10'000, 0);
  copies_.handle_sent(now_, frame(1), kSmall, kRtt, kRate);
  EXPECT_NE(copies_.next_timeout(), kNever);
}

TEST_F(ProactiveCopiesTest, AreNotForPathsWhereALossCostsLess) {
  copies_.handle_sent(now_, frame(1), kSmall, 10ms, kRate);
  EXPECT_EQ(copies_.next_timeout(), kNever);
  copies_.handle_settled(10'000, 100);
  copies_.handle_sent(now_, frame(2), kSmall, 10ms, kRate);
  EXPECT_NE(copies_.next_timeout(), kNever);
}

TEST_F(ProactiveCopiesTest, LossOfLongAgoIsForgotten) {
  copies_.handle_settled(10'000, 100);
  for (int i = 0; i < 50; ++i) copies_.handle_settled(5'000, 0);
  copies_.handle_sent(now_, frame(1), kSmall, kRtt, kRate);
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
    copies_.handle_sent(now_, frame(sent, 1400), kSmall, kRtt, kRate);
    if (const auto copy = copies_.take_due(now_ + 1s, kWindow, kWindow)) copied += copy->length;
  }
  EXPECT_GT(copied, kSent / 20);
  EXPECT_LT(copied, kSent / 14);
}

}  // namespace
}  // namespace tusk::transport
