#include "fsclient/server_clock.h"

#include <gtest/gtest.h>

namespace tusk::client {
namespace {

std::uint64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return to_unix_ns(now);
}

timespec time_of(std::uint64_t ns) {
  return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

constexpr std::uint64_t kHour = 3'600'000'000'000;
constexpr std::uint64_t kTenthOfASecond = 100'000'000;

TEST(ServerClock, IsNeverAheadOfTheServersOwn) {
  ServerClock clock;
  clock.set(now_ns() + kHour);
  const std::uint64_t at = to_unix_ns(clock.after({}));
  EXPECT_LT(at, now_ns() + kHour);
  EXPECT_GT(at, now_ns() + kHour - 10 * kTenthOfASecond);
}

// Or the server's next change, in the same tick, would be earlier than ours before it.
TEST(ServerClock, StaysAtAChangeOfTheServersUntilItsOwnTimeHasCome) {
  ServerClock clock;
  clock.set(now_ns());
  const std::uint64_t seen = now_ns() + 5 * kTenthOfASecond;
  clock.saw(time_of(seen));
  EXPECT_EQ(to_unix_ns(clock.after({})), seen);
  EXPECT_EQ(to_unix_ns(clock.after({})), seen);
}

// A program that looks, changes and looks again within a tick sees the change; no other file's times move
// with it.
TEST(ServerClock, MovesPastAChangeThatWasShown) {
  ServerClock clock;
  clock.set(now_ns());
  const std::uint64_t seen = now_ns() + 5 * kTenthOfASecond;
  clock.saw(time_of(seen));
  EXPECT_EQ(to_unix_ns(clock.past(time_of(seen))), seen + 1);
  EXPECT_EQ(to_unix_ns(clock.past(time_of(seen + 1))), seen + 2);
  EXPECT_EQ(to_unix_ns(clock.after({})), seen);
}

TEST(ServerClock, NothingIsChangedBeforeItsLastChange) {
  ServerClock clock;
  clock.set(now_ns());
  const std::uint64_t before = now_ns() + 5 * kTenthOfASecond;
  EXPECT_EQ(to_unix_ns(clock.after(time_of(before))), before);
}

TEST(ServerClock, ATimeFarAheadIsAClockThatWasWrongOnce) {
  ServerClock clock;
  clock.set(now_ns());
  EXPECT_LT(to_unix_ns(clock.after(time_of(now_ns() + kHour))), now_ns());
}

// ---------------------------------------------------------------- clocks that are set

using std::chrono::milliseconds;

std::int64_t steady_ns = 0;
std::int64_t steady() { return steady_ns; }

constexpr std::uint64_t kServerStart = 1'700'000'000'000'000'000;
constexpr std::int64_t kMillisecond = 1'000'000;

class ServerClockOnSteadyTime : public testing::Test {
 protected:
  ServerClockOnSteadyTime() {
    steady_ns = 5000 * kMillisecond;
    clock.set(kServerStart);
  }
  [[nodiscard]] std::int64_t shown() {
    return static_cast<std::int64_t>(to_unix_ns(clock.after({})) - kServerStart);
  }

  ServerClock clock{&steady};
};

// The clock knows nothing of this machine's time of day.
TEST_F(ServerClockOnSteadyTime, OwnTimesGoOnWithTimeSinceBoot) {
  const std::int64_t before = shown();
  steady_ns += 2000 * kMillisecond;
  EXPECT_EQ(shown() - before, 2000 * kMillisecond);
}

TEST_F(ServerClockOnSteadyTime, AnAnswerMovesTheReckoningForwardWhenTheServersClockIsSetForward) {
  steady_ns += 100 * kMillisecond;
  clock.answered(time_of(kServerStart + 2 * kHour), milliseconds(50));
  EXPECT_EQ(shown(), static_cast<std::int64_t>(2 * kHour));
}

TEST_F(ServerClockOnSteadyTime, AnAnswerMovesTheReckoningBackWhenTheServersClockIsSetBack) {
  (void)shown();
  steady_ns += 100 * kMillisecond;
  clock.answered(time_of(kServerStart - 2 * kHour), milliseconds(50));
  EXPECT_EQ(shown(), -static_cast<std::int64_t>(2 * kHour) + 50 * kMillisecond);
  steady_ns += 30 * kMillisecond;
  EXPECT_EQ(shown(), -static_cast<std::int64_t>(2 * kHour) + 80 * kMillisecond);
}

TEST_F(ServerClockOnSteadyTime, AnAnswerThatFitsMovesNothing) {
  steady_ns += 100 * kMillisecond;
  const std::int64_t before = shown();
  clock.answered(time_of(kServerStart + 60 * kMillisecond), milliseconds(50));
  EXPECT_EQ(shown(), before);
}

// This machine's oscillator is 100 parts in a million too fast: a day is 8.6 s.
TEST_F(ServerClockOnSteadyTime, AnswersHoldTheDriftOfADayBelowARoundTrip) {
  std::int64_t server = static_cast<std::int64_t>(kServerStart);
  for (int minute = 0; minute < 24 * 60; ++minute) {
    server += 60'000 * kMillisecond;
    steady_ns += 60'006 * kMillisecond;
    clock.answered(time_of(static_cast<std::uint64_t>(server - 25 * kMillisecond)), milliseconds(50));
  }
  EXPECT_NEAR(static_cast<double>(shown()),
              static_cast<double>(server - static_cast<std::int64_t>(kServerStart)), 60.0 * kMillisecond);
}

// A server says what it likes. (The sanitizers look for overflows.)
TEST_F(ServerClockOnSteadyTime, TimesBeyondReckoningOverflowNothing) {
  constexpr auto kMost = std::numeric_limits<time_t>::max();
  constexpr auto kLeast = std::numeric_limits<time_t>::min();
  for (const timespec& said : {timespec{kMost, 999'999'999}, timespec{kLeast, 0}, timespec{kMost, -1}}) {
    clock.saw(said);
    clock.answered(said, milliseconds(50));
    clock.set(static_cast<std::uint64_t>(said.tv_sec));
    const timespec at = clock.past(said);
    EXPECT_GE(std::pair(at.tv_sec, at.tv_nsec), std::pair(said.tv_sec, said.tv_nsec));
  }
  clock.set(kServerStart);
  EXPECT_LE(std::abs(shown()), static_cast<std::int64_t>(kHour)) << "and the next that is right counts";
}

}  // namespace
}  // namespace tusk::client
