#include "proto/transport/capacity_probe.h"

#include <gtest/gtest.h>

namespace tusk::transport {
namespace {

constexpr Duration kRtt = 100ms;
constexpr ByteCount kTrain = 94'208;
constexpr ByteCount kSize = 1472;

struct CapacityProbeTest : testing::Test {
  // Sends what is due now; the result is its bytes.
  ByteCount send(TimePoint now) {
    ByteCount sent = 0;
    for (; probe_.due(now) && sent < 100'000'000; sent += kSize) probe_.handle_sent(kSize, kTrain);
    return sent;
  }

  const TimePoint start_{1h};
  const TimePoint due_ = start_ + kRtt * 5 / 4;
  CapacityProbe probe_{start_, kRtt};
};

TEST_F(CapacityProbeTest, IsOneTrainWhenTheHandshakeIsOver) {
  EXPECT_EQ(send(start_ + kRtt), 0u);
  EXPECT_EQ(probe_.next_timeout(), due_);
  EXPECT_EQ(send(due_), kTrain);
  EXPECT_EQ(send(due_ + 1h), 0u);
  EXPECT_EQ(probe_.next_timeout(), kNever);
}

TEST_F(CapacityProbeTest, GoesOnWithLongerTrainsOnceOnAFastLine) {
  probe_.handle_answer(start_, 4 * kTrain, kTrain);
  EXPECT_EQ(send(start_), 0u) << "before the first train there is no answer to it";
  send(due_);
  probe_.handle_answer(due_ + kRtt, 4 * kTrain, kTrain);
  EXPECT_GE(send(due_ + kRtt), CapacityProbe::kMoreTrains * 4 * kTrain);
  probe_.handle_answer(due_ + 2 * kRtt, 8 * kTrain, kTrain);
  EXPECT_EQ(send(due_ + 2 * kRtt), 0u);
}

TEST_F(CapacityProbeTest, IsContentWithOneTrainOnASlowLine) {
  send(due_);
  probe_.handle_answer(due_ + kRtt, kTrain, kTrain);
  EXPECT_EQ(send(due_ + kRtt), 0u);
}

TEST_F(CapacityProbeTest, SendsNoMoreThanItsMost) {
  send(due_);
  probe_.handle_answer(due_ + kRtt, 1 << 30, kTrain);
  const ByteCount sent = send(due_ + kRtt);
  EXPECT_GE(sent, CapacityProbe::kMoreMax);
  EXPECT_LT(sent, CapacityProbe::kMoreMax + kSize);
}

TEST_F(CapacityProbeTest, IsGivenUpForRealData) {
  probe_.abandon();
  EXPECT_EQ(send(due_), 0u);
  probe_.handle_answer(due_ + kRtt, 4 * kTrain, kTrain);
  EXPECT_EQ(send(due_ + kRtt), 0u);
}

}  // namespace
}  // namespace tusk::transport
