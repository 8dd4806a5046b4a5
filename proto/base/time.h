// Time as a value. The pure core is told the time; only proto/io reads a clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace tusk {

// A clock without now(): nothing that only includes this header can read the time.
struct Clock {
  using rep = std::int64_t;
  using period = std::nano;
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<Clock>;
  static constexpr bool is_steady = true;
};

// Nanoseconds since an arbitrary start (CLOCK_BOOTTIME's in a process, zero in a simulation).
using TimePoint = Clock::time_point;
using Duration = Clock::duration;

constexpr TimePoint kNever = TimePoint::max();

using namespace std::chrono_literals;

[[nodiscard]] constexpr double to_seconds(Duration d) { return std::chrono::duration<double>(d).count(); }
[[nodiscard]] constexpr Duration from_seconds(double s) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(s));
}

}  // namespace tusk
