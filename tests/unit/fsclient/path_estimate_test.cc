#include "fsclient/path_estimate.h"

#include <gtest/gtest.h>

#include "manual_scheduler.h"

namespace tusk::client {
namespace {

constexpr double kFast = 2 * PathEstimate::kSlowMax;
constexpr double kSmall = PathEstimate::kSlowMax / 2;

struct Estimate {
  ManualScheduler scheduler;
  rpc::PathStats stats;
  PathEstimate path{[this] { return stats; }, scheduler};
};

TEST(PathEstimate, AnUnknownLineIsNotSlow) {
  Estimate unknown;
  EXPECT_FALSE(unknown.path.sends_slowly());
  EXPECT_FALSE(unknown.path.receives_slowly());
}

TEST(PathEstimate, WhatWeSendTellsOfBothWays) {
  Estimate slow;
  slow.stats.send_bandwidth = kSmall;
  slow.stats.receive_bandwidth = 1;
  EXPECT_TRUE(slow.path.sends_slowly());
  EXPECT_TRUE(slow.path.receives_slowly());
  Estimate fast;
  fast.stats.send_bandwidth = kFast;
  fast.stats.receive_bandwidth = 1;
  EXPECT_FALSE(fast.path.sends_slowly());
  EXPECT_FALSE(fast.path.receives_slowly());
}

TEST(PathEstimate, WhatHasComeIsCarriedWhateverLittleWeSent) {
  Estimate reader;
  reader.stats.send_bandwidth = kSmall;
  reader.stats.receive_bandwidth = kFast;
  EXPECT_TRUE(reader.path.sends_slowly());
  EXPECT_FALSE(reader.path.receives_slowly());
  // The line has become another one.
  reader.stats.receive_bandwidth = kSmall;
  reader.scheduler.advance(2 * PathEstimate::kAgeMax);
  EXPECT_TRUE(reader.path.receives_slowly());
}

}  // namespace
}  // namespace tusk::client
