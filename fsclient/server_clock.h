// The server's wall clock, as this mount reckons it: times that programs are shown before the server has made
// a change are those that it will keep.
//
// Always a little behind it: what the server does later must never show an earlier time. It is behind by the
// answer's time on the way and by a tick, since file systems take their times from a clock that moves with
// the timer; where this machine's clock is set meanwhile it is wrong until the next attach. Thread-safe.
#pragma once

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "proto/base/time.h"

namespace tusk::client {

class ServerClock {
 public:
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
  // The server changed something at that time: what is changed here from now on is not earlier. (A time that
  // cannot be is left aside: its clock was wrong once.)
  void saw(const timespec& ctime) {
    const std::int64_t seen = static_cast<std::int64_t>(ctime.tv_sec) * kSecond + ctime.tv_nsec;
    std::int64_t last = last_ns_.load(std::memory_order_relaxed);
    if (seen <= last || seen > estimate() + kSecond) return;
    while (seen > last && !last_ns_.compare_exchange_weak(last, seen, std::memory_order_relaxed)) {
    }
  }
  // The server said so in an answer that has just come. 0: it did not say.
  void set(std::uint64_t unix_time_ns) {
    if (unix_time_ns != 0) ahead_ns_ = static_cast<std::int64_t>(unix_time_ns) - own_now() - kTick;
  }

 private:
  static constexpr std::int64_t kSecond = 1'000'000'000;
  static constexpr std::int64_t kTick = 10'000'000;  // of a kernel with 100 Hz

  [[nodiscard]] static std::int64_t own_now() {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * kSecond + now.tv_nsec;
  }

  [[nodiscard]] std::int64_t estimate() const {
    return own_now() + ahead_ns_.load(std::memory_order_relaxed);
  }

  std::atomic<std::int64_t> ahead_ns_{0};
  std::atomic<std::int64_t> last_ns_{0};
};

[[nodiscard]] inline std::uint64_t to_unix_ns(const timespec& time) {
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace tusk::client
