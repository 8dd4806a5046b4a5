// The pacer keeps its rate to a percent, whatever the timers do, and never bursts past its bound.
#include "proto/transport/pacer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "proto/base/random.h"
#include "tests/unit/transport/virtual_time.h"

namespace tusk::transport {
namespace {

constexpr ByteCount kPacket = 1472;
constexpr double kLine = 125e6;  // bytes/s

constexpr Duration kBurst = 250us;
constexpr ByteCount kBurstBytesMin = 4 * kPacket;

// ---------------------------------------------------------------- vocabulary

ByteCount bytes_at(double rate, Duration time) { return static_cast<ByteCount>(rate * to_seconds(time)); }

ByteCount burst_of(double rate) { return std::max(kBurstBytesMin, bytes_at(rate, kBurst)); }

struct Sent {
  ByteCount bytes = 0;
  ByteCount burst_max = 0;  // most that went at one moment
};

// Sends all that the pacer allows until `end`, in bursts of 250 us but at least four packets, waking late
// by what `lateness` says.
template <class Lateness>
Sent send_until(Pacer& pacer, TimePoint start, TimePoint end, double rate, Lateness lateness) {
  Sent sent;
  for (TimePoint now = start; now < end;) {
    ByteCount burst = 0;
    while (pacer.ready(now)) {
      pacer.on_sent(now, kPacket, rate, burst_of(rate));
      burst += kPacket;
    }
    sent.bytes += burst;
    sent.burst_max = std::max(sent.burst_max, burst);
    now = std::max(pacer.next(), now) + lateness();
  }
  return sent;
}

Duration on_time() { return 0ns; }

// ---------------------------------------------------------------- rate

TEST(Pacer, KeepsTheRateToAPercentAtAnySpeed) {
  for (const double rate : {1e4, 1e5, 1e6, 12.5e6, kLine, 1.25e9}) {
    Pacer pacer;
    const Duration time = rate < 1e6 ? 100s : 2s;
    const Sent sent = send_until(pacer, at(1s), at(1s + time), rate, on_time);
    const double expected = rate * to_seconds(time);
    // The last burst may be paid for beyond the end.
    EXPECT_NEAR(static_cast<double>(sent.bytes), expected, 0.01 * expected + 5 * kPacket) << rate;
  }
}

TEST(Pacer, KeepsTheRateWhenTimersAreLate) {
  Random random(4);
  for (const Duration late : {Duration(50us), Duration(500us), Duration(1500us)}) {
    Pacer pacer;
    const Sent sent = send_until(pacer, at(1s), at(3s), kLine, [&] {
      return Duration(random.below(static_cast<std::uint64_t>(late.count())));
    });
    EXPECT_NEAR(static_cast<double>(sent.bytes), 2 * kLine, 0.02 * kLine) << late.count();
  }
}

TEST(Pacer, FollowsAChangeOfRate) {
  Pacer pacer;
  (void)send_until(pacer, at(1s), at(2s), kLine, on_time);
  const Sent slower = send_until(pacer, at(2s), at(3s), kLine / 10, on_time);
  EXPECT_NEAR(static_cast<double>(slower.bytes), kLine / 10, 0.01 * kLine / 10);
}

// ---------------------------------------------------------------- bounds

TEST(Pacer, ABurstIsNoLongerThanItsBound) {
  Pacer pacer;
  const Sent sent = send_until(pacer, at(10s), at(11s), kLine, on_time);
  // The first may catch up; all in all no burst exceeds both bounds together.
  EXPECT_LE(sent.burst_max, bytes_at(kLine, kBurst + Pacer::kRest) + kPacket);
  const Sent steady = send_until(pacer, at(11s), at(12s), kLine, on_time);
  EXPECT_LE(steady.burst_max, bytes_at(kLine, kBurst) + kPacket);
  EXPECT_GE(steady.burst_max, bytes_at(kLine, kBurst) / 2) << "a run long enough to be worth it";
}

TEST(Pacer, ASlowSenderStillGetsAFewPacketsTogether) {
  Pacer pacer;
  const Sent sent = send_until(pacer, at(10s), at(60s), 1e5, on_time);
  EXPECT_GE(sent.burst_max, kBurstBytesMin);
  EXPECT_LE(sent.burst_max, kBurstBytesMin + 2 * kPacket);
}

// All that goes at one moment.
ByteCount burst_at(Pacer& pacer, TimePoint now, double rate = kLine) {
  ByteCount burst = 0;
  for (;;) {
    pacer.note_wish(now, true);
    if (!pacer.ready(now)) return burst;
    pacer.on_sent(now, kPacket, rate, burst_of(rate), Pacer::kCatchUpMax);
    burst += kPacket;
  }
}

void expect_caught_up(ByteCount burst, Duration time) {
  EXPECT_LE(burst, bytes_at(kLine, time + kBurst) + kPacket);
  EXPECT_GE(burst, bytes_at(kLine, time));
}

TEST(Pacer, AfterARestItCatchesUpOnlySoMuch) {
  Pacer pacer;
  (void)send_until(pacer, at(1s), at(2s), kLine, on_time);
  pacer.note_wish(at(2s), false);
  expect_caught_up(burst_at(pacer, at(10s)), Pacer::kRest);
}

// A busy machine woke it too late: what it waited for was the pacer.
TEST(Pacer, WhoWokeLateCatchesUpMore) {
  for (const auto& [late, caught_up] : {std::pair<Duration, Duration>{1ms, 1ms}, {6ms, 6ms}, {20ms, 12ms}}) {
    Pacer pacer;
    (void)burst_at(pacer, at(2s));
    expect_caught_up(burst_at(pacer, pacer.next() + late), caught_up);
  }
}

TEST(Pacer, WhoWakesLateEachTimeKeepsTheRate) {
  Pacer pacer;
  ByteCount sent = 0;
  TimePoint now = at(1s);
  for (; now < at(3s); now = std::max(pacer.next(), now) + 7ms) sent += burst_at(pacer, now);
  EXPECT_NEAR(static_cast<double>(sent), kLine * to_seconds(now - at(1s)), 0.01 * kLine);
}

// A window that opens is no late waking, even if the pacer was waited for before it closed; nor is a socket
// that was full, or a machine that was asleep.
TEST(Pacer, WhoWasHeldBackByOthersBeginsLikeAfterARest) {
  Pacer closed;
  (void)burst_at(closed, at(2s));
  closed.note_wish(closed.next(), false);
  expect_caught_up(burst_at(closed, closed.next() + 20ms), Pacer::kRest);
  Pacer full;
  (void)burst_at(full, at(2s));
  full.rest();
  expect_caught_up(burst_at(full, full.next() + 20ms), Pacer::kRest);
  Pacer asleep;
  (void)burst_at(asleep, at(2s));
  expect_caught_up(burst_at(asleep, at(10s)), Pacer::kRest);
}

// What was missed was due at the rate of then.
TEST(Pacer, ARateThatRoseMeanwhileIsNotOwed) {
  Pacer pacer;
  (void)burst_at(pacer, at(2s), kLine / 10);
  expect_caught_up(burst_at(pacer, pacer.next() + 5ms), 500us);
}

TEST(Pacer, ARateThatRoseShortensTheWait) {
  Pacer pacer;
  for (int i = 0; i < 64; ++i) pacer.on_sent(at(1s), kPacket, 10 * kPacket, 64 * kPacket);
  pacer.on_sent(at(1s), kPacket, 10 * kPacket, 64 * kPacket);
  EXPECT_GT(pacer.next(), at(7s));
  pacer.note_rate(at(2s), 1000 * kPacket);
  EXPECT_LT(pacer.next(), at(2s) + 70ms);
  EXPECT_GT(pacer.next(), at(2s) + 40ms);
  // A lower one is for what comes.
  pacer.note_rate(at(2s), kPacket);
  EXPECT_LT(pacer.next(), at(2s) + 70ms);
}

TEST(Pacer, IsReadyAtTheStart) {
  const Pacer pacer;
  EXPECT_TRUE(pacer.ready(at(0s)));
}

}  // namespace
}  // namespace tusk::transport
