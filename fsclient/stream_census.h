// How many readers in order wait for the line at about the same time: they share what it holds. Those that
// read more slowly than it carries do not wait, and those that stopped do not count for long.
//
// Counted by periods, so that nobody has to tell when it stops. Thread-safe; no clock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>

#include "proto/base/time.h"

namespace tusk::client {

class StreamCensus {
 public:
  static constexpr Duration kPeriod = std::chrono::seconds(1);

  // The period that `now` belongs to; never 0.
  std::uint64_t period(TimePoint now) {
    const auto current = static_cast<std::uint64_t>(now.time_since_epoch() / kPeriod) + 1;
    const std::lock_guard lock(mutex_);
    if (current > period_) {
      before_ = current == period_ + 1 ? counted_ : 0;
      counted_ = 0;
      period_ = current;
    }
    return current;
  }
  // One that waits for the first time in this period.
  void add() {
    const std::lock_guard lock(mutex_);
    ++counted_;
  }
  // In the last full period or in this one, at least 1.
  [[nodiscard]] std::uint64_t count() const {
    const std::lock_guard lock(mutex_);
    return std::max<std::uint64_t>({1, before_, counted_});
  }

 private:
  mutable std::mutex mutex_;
  std::uint64_t period_ = 0;
  std::uint64_t counted_ = 0;
  std::uint64_t before_ = 0;
};

}  // namespace tusk::client
