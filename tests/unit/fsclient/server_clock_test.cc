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

}  // namespace
}  // namespace tusk::client
