// Spreads packets over time: a token bucket in nanoseconds of sending time.
//
// A burst of packets goes out in one go (GSO needs runs of packets), and a sender that
// woke late may catch up kCatchUp, so a slow timer does not cost throughput.
#pragma once

#include <algorithm>

#include "proto/base/strong_int.h"
#include "proto/base/time.h"

namespace tusk::transport {

class Pacer {
 public:
  static constexpr Duration kCatchUp = 2ms;

  // May a packet go now?
  [[nodiscard]] bool ready(TimePoint now) const { return now >= next_; }
  // When the next one may.
  [[nodiscard]] TimePoint next() const { return next_; }

  // `rate` in bytes/s, `burst` in bytes.
  void on_sent(TimePoint now, ByteCount bytes, double rate, ByteCount burst_bytes) {
    paid_until_ = std::max(paid_until_, now - kCatchUp) + from_seconds(static_cast<double>(bytes) / rate);
    const Duration burst = from_seconds(static_cast<double>(burst_bytes) / rate);
    // Past the burst: wait until all of it is paid for, so that the next one is whole again.
    next_ = paid_until_ > now + burst ? paid_until_ : now;
  }

 private:
  TimePoint paid_until_{};
  TimePoint next_{};
};

}  // namespace tusk::transport
