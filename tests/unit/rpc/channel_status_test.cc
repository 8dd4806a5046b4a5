#include "proto/rpc/channel_status.h"

#include <gtest/gtest.h>

#include <thread>

#include "proto/io/clock.h"

namespace tusk::rpc {
namespace {

ChannelOptions patient_for(std::chrono::seconds patience) {
  ChannelOptions options;
  options.host = "server";
  options.port = 4711;
  options.connect_timeout = patience;
  return options;
}

TEST(ChannelStatusTest, WaitingEndsWithTheAttach) {
  ChannelStatus status;
  std::jthread network([&] {
    schema::AttachReply reply;
    reply.set_lease_ms(42);
    status.note_attached(reply);
  });
  EXPECT_TRUE(status.wait_until_attached(patient_for(60s)));
  EXPECT_EQ(status.attached().lease_ms(), 42u);
}

TEST(ChannelStatusTest, WaitingEndsWithAFailure) {
  ChannelStatus status;
  std::jthread network([&] { status.note_failure({ErrorCode::kBadConfig, "no such host"}); });
  const auto result = status.wait_until_attached(patient_for(60s));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kBadConfig);
  EXPECT_EQ(status.failure()->context, "no such host");
  EXPECT_TRUE(status.stats().over);
}

TEST(ChannelStatusTest, WhoWaitedInVainIsToldWhetherAnybodyAnswered) {
  ChannelStatus status;
  EXPECT_EQ(status.wait_until_attached(patient_for(0s)).error().context,
            "no answer from server on UDP port 4711 within 0 s");
  status.note_refused({ErrorCode::kLimitExceeded, "it is full"});
  const Error error = status.wait_until_attached(patient_for(0s)).error();
  EXPECT_EQ(error.code, ErrorCode::kLimitExceeded);
  EXPECT_EQ(error.context, "server did not let us in within 0 s: it is full");
}

TEST(ChannelStatusTest, SilenceGrowsWhileNothingIsPublished) {
  ChannelStatus status;
  EXPECT_EQ(status.stats().silent, Duration(0));
  status.note_silence(io::now() - 5s);
  EXPECT_GE(status.stats().silent, Duration(5s));
  status.note_silence(kNever);
  EXPECT_EQ(status.stats().silent, Duration(0));
}

TEST(ChannelStatusTest, WhatIsConfirmedStaysSo) {
  ChannelStatus status;
  EXPECT_EQ(status.confirmed(), TimePoint::min());
  const TimePoint now = io::now();
  status.note_confirmed(now);
  status.note_confirmed(now - 1s);
  EXPECT_EQ(status.confirmed(), now);
}

}  // namespace
}  // namespace tusk::rpc
