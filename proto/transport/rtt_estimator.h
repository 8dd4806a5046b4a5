// Round-trip times of one path: smoothed and its variation (RFC 9002 §5), the minimum over a window
// (the path without queues), and the "standing" minimum of the last half round trip (the queue that
// does not go away; after Copa, NSDI 2018 §2.1), on short paths of the last 10 ms: there a thread that
// woke up late looks like a queue.
#pragma once

#include <algorithm>
#include <deque>

#include "proto/base/time.h"

namespace tusk::transport {

// Minimum of the samples of a sliding time window. Amortised O(1).
class WindowedMin {
 public:
  void add(TimePoint now, Duration sample, Duration window) {
    while (!samples_.empty() && samples_.back().value >= sample) samples_.pop_back();
    samples_.push_back({now, sample});
    while (samples_.front().at + window < now) samples_.pop_front();
  }
  [[nodiscard]] bool empty() const { return samples_.empty(); }
  [[nodiscard]] Duration min() const { return samples_.front().value; }
  [[nodiscard]] TimePoint min_at() const { return samples_.front().at; }
  void clear() { samples_.clear(); }

 private:
  struct Sample {
    TimePoint at;
    Duration value;
  };
  std::deque<Sample> samples_;  // ascending in time and value
};

class RttEstimator {
 public:
  // RFC 9002 §6.2.2's initial guess.
  static constexpr Duration kInitial = 333ms;
  static constexpr Duration kGranularity = 1ms;
  static constexpr Duration kMinWindow = 10s;
  static constexpr Duration kStandingWindowMin = 10ms;

  // `sample`: from sending to acknowledgement, less the delay that the peer says it added.
  void add(TimePoint now, Duration sample) {
    sample = std::max(sample, Duration(1us));
    latest_ = sample;
    if (!has_sample_) {
      smoothed_ = sample;
      variation_ = sample / 2;
      has_sample_ = true;
    } else {
      const Duration off = sample > smoothed_ ? sample - smoothed_ : smoothed_ - sample;
      variation_ = (3 * variation_ + off) / 4;
      smoothed_ = (7 * smoothed_ + sample) / 8;
    }
    minimum_.add(now, sample, kMinWindow);
    standing_.add(now, sample, std::max(smoothed_ / 2, kStandingWindowMin));
  }

  // The path changed its length: what was the minimum is not any more.
  void forget_minimum(TimePoint now) {
    minimum_.clear();
    minimum_.add(now, standing_.empty() ? latest_ : standing_.min(), kMinWindow);
  }

  [[nodiscard]] bool has_sample() const { return has_sample_; }
  [[nodiscard]] Duration latest() const { return latest_; }
  [[nodiscard]] Duration smoothed() const { return smoothed_; }
  [[nodiscard]] Duration variation() const { return variation_; }
  [[nodiscard]] Duration minimum() const { return minimum_.empty() ? kInitial : minimum_.min(); }
  [[nodiscard]] TimePoint minimum_at() const { return minimum_.empty() ? TimePoint() : minimum_.min_at(); }
  [[nodiscard]] Duration standing() const { return standing_.empty() ? kInitial : standing_.min(); }
  // What a packet waits in queues beyond the bare path.
  [[nodiscard]] Duration queueing() const { return std::max(Duration(0), standing() - minimum()); }
  // How long to wait for an acknowledgement before probing (RFC 9002 §6.2.1), without back-off.
  [[nodiscard]] Duration probe_timeout(Duration peer_ack_delay_max) const {
    return smoothed_ + std::max(4 * variation_, kGranularity) + peer_ack_delay_max;
  }

 private:
  bool has_sample_ = false;
  Duration latest_ = kInitial;
  Duration smoothed_ = kInitial;
  Duration variation_ = kInitial / 2;
  WindowedMin minimum_;
  WindowedMin standing_;
};

}  // namespace tusk::transport
