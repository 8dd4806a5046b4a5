// The only clock in proto/: everything below the endpoint is told the time as an argument.
#pragma once

#include <time.h>

#include <cstdint>

#include "proto/base/time.h"

namespace tusk::io {

// CLOCK_BOOTTIME: never jumps, and goes on while the machine sleeps, as leases do. Any thread, about 25 ns.
[[nodiscard]] inline TimePoint now() {
  timespec at{};
  ::clock_gettime(CLOCK_BOOTTIME, &at);
  return TimePoint(std::chrono::seconds(at.tv_sec) + std::chrono::nanoseconds(at.tv_nsec));
}

// What the calling thread has computed since it began.
[[nodiscard]] inline Duration cpu_time_of_this_thread() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

// Seconds since 1970 by the wall clock, which people and NTP set: for lifetimes of tokens and
// certificates, never for measuring. Any thread.
[[nodiscard]] inline std::int64_t unix_seconds() {
  timespec at{};
  ::clock_gettime(CLOCK_REALTIME, &at);
  return at.tv_sec;
}

// The same in nanoseconds, as file systems stamp files.
[[nodiscard]] inline std::uint64_t unix_nanoseconds() {
  timespec at{};
  ::clock_gettime(CLOCK_REALTIME, &at);
  return static_cast<std::uint64_t>(at.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(at.tv_nsec);
}

}  // namespace tusk::io
