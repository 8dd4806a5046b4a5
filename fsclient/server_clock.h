// The server's wall clock, as this mount reckons it: times that programs are shown before the server has made
// a change are those that it will keep.
//
// Always a little behind it: what the server does later must never show an earlier time. It is behind by the
// answer's time on the way and by a tick, since file systems take their times from a clock that moves with
// the timer. Between answers it goes on with this machine's time since boot, which nobody sets. The ctime in
// each answer to a change of this mount's own tells where the server's clock is: the reckoning follows it,
// also when the server's clock is set. Thread-safe.
#pragma once

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <utility>

#include "proto/base/time.h"

namespace tusk::client {

class ServerClock {
 public:
  // Nanoseconds of a clock that is never set and does not stand still in suspend.
  using SteadyClock = std::int64_t (*)();
  ServerClock() : ServerClock(&since_boot) {}
  explicit ServerClock(SteadyClock steady) : steady_(steady) {}

  // When something is changed that was last changed at `before`: not earlier than that, nor than any change
  // so far. Within one of the server's ticks times are the same, as on a local file system: one that is a
  // little later would be later than what the server itself changes next.
  [[nodiscard]] timespec after(const timespec& before) {
    saw(before);
    const std::int64_t at = estimate();
    std::int64_t last = last_ns_.load(std::memory_order_relaxed);
    std::int64_t next = 0;
    do {
      next = std::max(at, last);
    } while (!last_ns_.compare_exchange_weak(last, next, std::memory_order_relaxed));
    return {static_cast<time_t>(next / kSecond), static_cast<long>(next % kSecond)};
  }
  // The ctime of a file that is changed now and that was last shown with the ctime `before`: a program that
  // looks again sees the change, however soon, as on a local file system (multigrain timestamps, Linux 6.13).
  // No other time moves with it: it may be ahead of the server's by nanoseconds.
  [[nodiscard]] timespec past(const timespec& before) {
    const timespec at = after({});
    if (std::pair(at.tv_sec, at.tv_nsec) > std::pair(before.tv_sec, before.tv_nsec)) return at;
    timespec next = before;
    if (next.tv_nsec < kSecond - 1) {
      ++next.tv_nsec;
    } else if (next.tv_sec < std::numeric_limits<time_t>::max()) {
      next = {next.tv_sec + 1, 0};
    }
    return next;
  }
  // The server changed something at that time: what is changed here from now on is not earlier. (A time that
  // cannot be is left aside: its clock was wrong once.)
  void saw(const timespec& ctime) {
    const std::int64_t seen = to_ns(ctime);
    std::int64_t last = last_ns_.load(std::memory_order_relaxed);
    if (seen <= last || seen > estimate() + kSecond) return;
    while (seen > last && !last_ns_.compare_exchange_weak(last, seen, std::memory_order_relaxed)) {
    }
  }
  // The server said so in an answer that has just come. 0: it did not say.
  void set(std::uint64_t unix_time_ns) {
    constexpr auto kLatest = static_cast<std::uint64_t>(kTimeMax);
    if (unix_time_ns != 0) move_to(static_cast<std::int64_t>(std::min(unix_time_ns, kLatest)) - kTick);
  }
  // The server made a change of this mount's own at `ctime`; the answer has just come, `waited` after the
  // question. So its clock stands between `ctime` and `ctime + waited` now, a tick more at most.
  void answered(const timespec& ctime, std::chrono::nanoseconds waited) {
    const std::int64_t made = to_ns(ctime);
    if (made == 0) return;
    const std::int64_t now = estimate();
    if (now < made - kTick) move_to(made - kTick);  // the server's next change may still show `ctime`
    if (now > made + waited.count() + kTick) move_to(made + waited.count());
    saw(ctime);
  }

 private:
  static constexpr std::int64_t kSecond = 1'000'000'000;
  static constexpr std::int64_t kTick = 10'000'000;  // of a kernel with 100 Hz
  // Reckoning holds for 146 years either side of 1970, and nothing overflows, whatever a server says.
  static constexpr std::int64_t kTimeMax = std::int64_t{1} << 62;

  [[nodiscard]] static std::int64_t since_boot() {
    timespec now{};
    ::clock_gettime(CLOCK_BOOTTIME, &now);
    return to_ns(now);
  }
  [[nodiscard]] static std::int64_t to_ns(const timespec& time) {
    constexpr std::int64_t kSecondsMax = kTimeMax / kSecond - 1;
    const auto seconds = std::clamp<std::int64_t>(time.tv_sec, -kSecondsMax, kSecondsMax);
    return seconds * kSecond + std::clamp<std::int64_t>(time.tv_nsec, 0, kSecond - 1);
  }

  [[nodiscard]] std::int64_t estimate() const {
    return steady_() + ahead_ns_.load(std::memory_order_relaxed);
  }

  // Times that were reckoned or seen far ahead of it are of a clock that has been set back since.
  void move_to(std::int64_t server_ns) {
    ahead_ns_ = server_ns - steady_();
    std::int64_t last = last_ns_.load(std::memory_order_relaxed);
    while (last > server_ns + kSecond &&
           !last_ns_.compare_exchange_weak(last, server_ns, std::memory_order_relaxed)) {
    }
  }

  const SteadyClock steady_;
  std::atomic<std::int64_t> ahead_ns_{0};
  std::atomic<std::int64_t> last_ns_{0};
};

[[nodiscard]] inline std::uint64_t to_unix_ns(const timespec& time) {
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace tusk::client
