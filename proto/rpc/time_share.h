// The share of a thread's time that work may take which can wait: it earns time as time passes, and pays for
// what it took. What it has saved is bounded, so that it never holds the thread for longer than that. What it
// owes is bounded, too, so that nobody who makes it pay more than it has keeps it away for long.
//
// Pure. Not thread-safe.
#pragma once

#include <algorithm>

#include "proto/base/time.h"

namespace tusk::rpc {

class TimeShare {
 public:
  explicit TimeShare(Duration saved_max) : saved_max_(saved_max), saved_(saved_max) {}

  // What it has earned since the last call, at so much of each second.
  void earn(TimePoint now, double share) {
    if (last_ != TimePoint{} && now > last_) {
      const auto earned = std::chrono::duration<double>(now - last_) * share;
      saved_ = std::min(saved_max_, saved_ + std::chrono::duration_cast<Duration>(earned));
    }
    last_ = std::max(last_, now);
    share_ = share;
  }
  void pay(Duration took) { saved_ = std::max(saved_ - took, -saved_max_); }
  [[nodiscard]] bool affordable() const { return saved_ > Duration{}; }
  // When it will be, at the share of the last earn().
  [[nodiscard]] TimePoint affordable_at() const {
    if (affordable()) return last_;
    return last_ + std::chrono::duration_cast<Duration>((-saved_ + Duration(1us)) / share_);
  }

 private:
  const Duration saved_max_;
  Duration saved_;
  TimePoint last_{};
  double share_ = 1;
};

}  // namespace tusk::rpc
