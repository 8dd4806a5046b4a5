// The queue and the jitter that the packets of one round trip met. What the round trip never fell below is a
// queue; by how much it wandered above that is the path's jitter, which a window has to have room for.
//
// Who sends now and then begins on an empty line and overfills it: the queue that grows so is no jitter, and
// room for it would make it longer each time. What was in flight tells one from the other.
//
// Pure state; not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "proto/base/time.h"

namespace tusk::transport {

class RoundQueue {
 public:
  struct Sample {
    Duration rtt{};
    // Of that what our own bytes in flight explain which the path does not hold; 0: nothing, or unknown.
    Duration own_queue{};
    // Within the flight before that packet nothing was to be sent for a moment. Who only was kept from
    // sending is on a busy machine, and that is jitter.
    bool after_pause = false;
  };

  void add(const Sample& sample) {
    const Duration rtt = sample.rtt;
    if (rtt <= Duration(0)) return;
    paused_ |= sample.after_pause;
    own_minimum_ = std::min(own_minimum_, sample.own_queue);
    own_sum_ += sample.own_queue;
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
      const Duration known = std::min(wander_without_pause_, above);
      const Duration grown = own_sum_ / samples_ - own_minimum_;
      const bool filled_anew = paused_ || paused_before_;
      wander_ = std::min(filled_anew ? std::max(known, above - grown) : above, wander_max);
      if (!filled_anew) wander_without_pause_ = wander_;
      average_ = queue_ + above;
    }
    minimum_ = own_minimum_ = Duration::max();
    maximum_ = sum_ = own_sum_ = {};
    samples_ = 0;
    paused_before_ = std::exchange(paused_, false);
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
  Duration own_minimum_ = Duration::max();
  Duration own_sum_{};
  std::int64_t samples_ = 0;
  bool paused_ = false;
  bool paused_before_ = false;  // in the last round
  Duration queue_{};
  Duration average_{};
  Duration longest_{};
  Duration wander_{};
  Duration wander_without_pause_{};  // in the last round in which there was none
};

}  // namespace tusk::transport
