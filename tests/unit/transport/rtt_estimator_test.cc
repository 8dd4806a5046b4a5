// Round-trip times: smoothing by the book, and minima over sliding windows.
#include "proto/transport/rtt_estimator.h"

#include <gtest/gtest.h>

#include <vector>

#include "proto/base/random.h"
#include "tests/unit/transport/virtual_time.h"

namespace tusk::transport {
namespace {

// ---------------------------------------------------------------- sliding minimum

TEST(WindowedMin, IsTheSmallestSampleOfTheWindow) {
  WindowedMin minimum;
  EXPECT_TRUE(minimum.empty());
  minimum.add(at(0s), 30ms, 10s);
  minimum.add(at(1s), 20ms, 10s);
  minimum.add(at(2s), 40ms, 10s);
  EXPECT_EQ(minimum.min(), 20ms);
  EXPECT_EQ(minimum.min_at(), at(1s));
  minimum.add(at(11s), 50ms, 10s);
  EXPECT_EQ(minimum.min(), 20ms) << "exactly the window's age still counts";
  minimum.add(at(11s + 1ns), 50ms, 10s);
  EXPECT_EQ(minimum.min(), 40ms);
}

TEST(WindowedMin, AgreesWithTheObviousWay) {
  Random random(2);
  WindowedMin minimum;
  std::vector<std::pair<TimePoint, Duration>> all;
  TimePoint now{};
  for (int i = 0; i < 3000; ++i) {
    now += Duration(random.below(1'000'000));
    const Duration sample(random.below(1000));
    minimum.add(now, sample, 20ms);
    all.emplace_back(now, sample);
    Duration expected = Duration::max();
    for (const auto& [when, value] : all)
      if (when + 20ms >= now) expected = std::min(expected, value);
    ASSERT_EQ(minimum.min(), expected) << i;
  }
}

// ---------------------------------------------------------------- round trips

TEST(RttEstimator, GuessesBeforeTheFirstSample) {
  const RttEstimator rtt;
  EXPECT_FALSE(rtt.has_sample());
  EXPECT_EQ(rtt.smoothed(), 333ms);
  EXPECT_EQ(rtt.minimum(), 333ms);
  EXPECT_EQ(rtt.queueing(), 0ms);
}

TEST(RttEstimator, TakesTheFirstSampleWhole) {
  RttEstimator rtt;
  rtt.add(at(0s), 80ms);
  EXPECT_EQ(rtt.smoothed(), 80ms);
  EXPECT_EQ(rtt.variation(), 40ms);
  EXPECT_EQ(rtt.minimum(), 80ms);
}

TEST(RttEstimator, SmoothsAsRfc9002) {
  RttEstimator rtt;
  rtt.add(at(0s), 80ms);
  rtt.add(at(1s), 160ms);
  EXPECT_EQ(rtt.smoothed(), 90ms);   // 7/8 of 80 and 1/8 of 160
  EXPECT_EQ(rtt.variation(), 50ms);  // 3/4 of 40 and 1/4 of |160 - 80|
  rtt.add(at(2s), 10ms);
  EXPECT_EQ(rtt.smoothed(), 80ms);
  EXPECT_EQ(rtt.variation(), 57500us);
  EXPECT_EQ(rtt.latest(), 10ms);
}

TEST(RttEstimator, ProbesAfterTheSmoothedTimeAndFourVariations) {
  RttEstimator rtt;
  rtt.add(at(0s), 80ms);
  EXPECT_EQ(rtt.probe_timeout(25ms), 80ms + 160ms + 25ms);
  for (int i = 0; i < 200; ++i) rtt.add(at(1s + i * 1s), 80ms);
  EXPECT_NEAR(to_seconds(rtt.probe_timeout(0ms)), 0.081, 1e-5) << "never less than the granularity";
}

TEST(RttEstimator, TakesNoSampleBelowAMicrosecond) {
  RttEstimator rtt;
  rtt.add(at(0s), 0ns);
  EXPECT_EQ(rtt.latest(), 1us);
  rtt.add(at(1s), -5ms);
  EXPECT_EQ(rtt.latest(), 1us);
}

TEST(RttEstimator, TheMinimumLastsTenSeconds) {
  RttEstimator rtt;
  rtt.add(at(0s), 50ms);
  rtt.add(at(9s), 70ms);
  EXPECT_EQ(rtt.minimum(), 50ms);
  EXPECT_EQ(rtt.minimum_at(), at(0s));
  rtt.add(at(10s + 1ms), 70ms);
  EXPECT_EQ(rtt.minimum(), 70ms);
}

TEST(RttEstimator, QueueingIsWhatDoesNotGoAwayForHalfARoundTrip) {
  RttEstimator rtt;
  rtt.add(at(0s), 100ms);
  rtt.add(at(1s), 130ms);
  EXPECT_EQ(rtt.queueing(), 30ms);
  // Jitter comes down now and then: no standing queue.
  rtt.add(at(1s + 10ms), 102ms);
  rtt.add(at(1s + 20ms), 150ms);
  EXPECT_EQ(rtt.queueing(), 2ms);
  rtt.add(at(1s + 200ms), 150ms);
  EXPECT_EQ(rtt.queueing(), 50ms);
}

TEST(RttEstimator, ForgetsTheMinimumWhenThePathChanged) {
  RttEstimator rtt;
  rtt.add(at(0s), 20ms);
  rtt.add(at(1s), 90ms);
  rtt.forget_minimum(at(1s));
  EXPECT_EQ(rtt.minimum(), 90ms);
  EXPECT_EQ(rtt.queueing(), 0ms);
}

TEST(RttEstimator, HasNothingToForgetBeforeTheFirstSample) {
  RttEstimator rtt;
  rtt.forget_minimum(at(1s));
  EXPECT_EQ(rtt.minimum(), RttEstimator::kInitial);
}

}  // namespace
}  // namespace tusk::transport
