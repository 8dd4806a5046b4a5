#include "proto/transport/capacity_probe.h"

#include <gtest/gtest.h>

namespace tusk::transport {
namespace {

constexpr Duration kRtt = 100ms;
constexpr ByteCount kFirst = 94'208;
constexpr ByteCount kSize = 1472;

struct CapacityProbeTest : testing::Test {
  // Sends what is due, at the time that the probe names; the result is its bytes.
  ByteCount send(ByteCount wanted, ByteCount under_way = 0) {
    return send_at(probe_.next_timeout(), wanted, under_way);
  }
  ByteCount send_at(TimePoint now, ByteCount wanted, ByteCount under_way = 0) {
    ByteCount sent = 0;
    for (; sent < 100'000'000 && now != kNever && probe_.due(now, kFirst, wanted, under_way); sent += kSize)
      probe_.handle_sent(now, kSize);
    return sent;
  }

  const TimePoint start_{1h};
  CapacityProbe probe_{start_, kRtt};
};

TEST_F(CapacityProbeTest, BeginsWhenTheHandshakeIsOver) {
  EXPECT_EQ(send_at(start_ + kRtt, 0), 0u);
  EXPECT_EQ(probe_.next_timeout(), start_ + kRtt * 5 / 4);
  EXPECT_EQ(send(0), kFirst);
}

TEST_F(CapacityProbeTest, IsContentWithOneTrainOnASlowLine) {
  send(0);
  EXPECT_EQ(send(0), 0u);
  EXPECT_EQ(probe_.next_timeout(), kNever);
}

TEST_F(CapacityProbeTest, AFirstTrainThatToldNothingIsSentAgainAndNotForEver) {
  for (int i = 0; i < CapacityProbe::kFirstMax; ++i) {
    EXPECT_EQ(send(kFirst), kFirst) << i;
    if (i + 1 < CapacityProbe::kFirstMax) {
      EXPECT_NE(probe_.next_timeout(), kNever) << i;
    }
  }
  EXPECT_EQ(send(kFirst), 0u);
  EXPECT_EQ(probe_.next_timeout(), kNever);
}

TEST_F(CapacityProbeTest, IsGivenUpWhereTheAnswerIsNotThereInTime) {
  send(0);
  EXPECT_EQ(send(kFirst, kFirst / 2), 0u);
  EXPECT_EQ(probe_.next_timeout(), kNever);
}

TEST_F(CapacityProbeTest, GoesOnAfterAFirstTrainWasSentAgain) {
  send(0);
  EXPECT_EQ(send(kFirst), kFirst);
  EXPECT_GE(send(3 * kFirst), 3 * kFirst);
}

TEST_F(CapacityProbeTest, GoesOnWithALongerTrainOnAFastLineAndTwoMoreIfThatTellsTheSame) {
  send(0);
  const TimePoint answered = probe_.next_timeout();
  EXPECT_GE(answered, start_ + 2 * kRtt) << "not before the answer";
  const TimePoint told = probe_.next_timeout();
  EXPECT_GE(send(3 * kFirst), 3 * kFirst);
  EXPECT_GE(probe_.next_timeout(), told + kRtt);
  EXPECT_GE(send(3 * kFirst), 3 * kFirst);
  EXPECT_GE(send(3 * kFirst), 3 * kFirst);
  EXPECT_EQ(probe_.next_timeout(), kNever);
}

TEST_F(CapacityProbeTest, EndsWhenTheLongerTrainTellsOfASlowerLine) {
  send(0);
  send(4 * kFirst);
  EXPECT_EQ(send(2 * kFirst), 0u);
  EXPECT_EQ(probe_.next_timeout(), kNever);
}

TEST_F(CapacityProbeTest, SendsNoLongerTrainThanItsMost) {
  send(0);
  const ByteCount sent = send(1 << 30);
  EXPECT_GE(sent, CapacityProbe::kTrainMax);
  EXPECT_LT(sent, CapacityProbe::kTrainMax + kSize);
}

TEST_F(CapacityProbeTest, WaitsForWhatIsSmall) {
  const TimePoint due = probe_.next_timeout();
  probe_.postpone(due - 1ms);
  EXPECT_EQ(send_at(due, 0), 0u);
  EXPECT_EQ(probe_.next_timeout(), due - 1ms + CapacityProbe::kAfterMin);
  EXPECT_GE(send(0), kFirst);
  probe_.abandon();
  probe_.postpone(due);
  EXPECT_EQ(probe_.next_timeout(), kNever);
}

TEST_F(CapacityProbeTest, IsGivenUpForRealData) {
  send(0);
  probe_.abandon();
  EXPECT_EQ(send_at(start_ + 1h, 4 * kFirst), 0u);
  EXPECT_EQ(probe_.next_timeout(), kNever);
}

}  // namespace
}  // namespace tusk::transport
