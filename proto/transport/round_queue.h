// The queue and the jitter that the packets of one round trip met. What the round trip never fell below is a
// queue; by how much it wandered above that is the path's jitter, which a window has to have room for.
//
// Pure state; not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

#include "proto/base/time.h"

namespace tusk::transport {

class RoundQueue {
 public:
  void add(Duration rtt) {
    if (rtt <= Duration(0)) return;
    minimum_ = std::min(minimum_, rtt);
    maximum_ = std::max(maximum_, rtt);
    sum_ += rtt;
    ++samples_;
  }

  // `base`: the path without queues. `standing`: the minimum of no less than 10 ms, since on short paths a
  // round is no longer than a thread may be late. Without samples the last round's figures stay.
  void end_round(Duration base, Duration standing) {
    if (samples_ > 0) {
      queue_ = std::max(Duration(0), std::min(minimum_, standing) - base);
      longest_ = std::max(Duration(0), maximum_ - base);
      // More than that is no jitter but our own queue, coming and going.
      const Duration wander_max = base / 4 + kHostNoise;
      const Duration above = std::max(Duration(0), sum_ / samples_ - base - queue_);
      wander_ = std::min(above, wander_max);
      average_ = queue_ + above;
    }
    minimum_ = Duration::max();
    maximum_ = sum_ = {};
    samples_ = 0;
  }

  // Of the last round.
  [[nodiscard]] Duration queue() const { return queue_; }
  [[nodiscard]] Duration average() const { return average_; }  // of what packets met, jitter included
  [[nodiscard]] Duration longest() const { return longest_; }  // queue that a packet met, or a late program
  [[nodiscard]] Duration wander() const { return wander_; }    // mean of the round trips above base and queue

 private:
  static constexpr Duration kHostNoise = 200us;

  Duration minimum_ = Duration::max();
  Duration maximum_{};
  Duration sum_{};
  std::int64_t samples_ = 0;
  Duration queue_{};
  Duration average_{};
  Duration longest_{};
  Duration wander_{};
};

}  // namespace tusk::transport
