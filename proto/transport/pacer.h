// Spreads packets over time: a token bucket in nanoseconds of sending time.
//
// A burst of packets goes out in one go (GSO needs runs of packets). A sender that waited for the pacer and
// for nothing else, and woke late, catches up with what it should have sent: a busy machine costs no
// throughput. One that had nothing to send, or no window, begins with no more than kRest.
#pragma once

#include <algorithm>

#include "proto/base/strong_int.h"
#include "proto/base/time.h"

namespace tusk::transport {

class Pacer {
 public:
  static constexpr Duration kCatchUp = 8ms;
  static constexpr Duration kRest = 2ms;

  // May a packet go now?
  [[nodiscard]] bool ready(TimePoint now) const { return now >= next_; }
  // When the next one may.
  [[nodiscard]] TimePoint next() const { return next_; }

  // Before each packet: is there something to send, and a window for it?
  void note_wish(TimePoint now, bool wishes) {
    if (!wishes || !ready(now)) waits_ = wishes;
  }

  // `rate` in bytes/s, `burst` in bytes.
  void on_sent(TimePoint now, ByteCount bytes, double rate, ByteCount burst_bytes) {
    const Duration forgiven = waits_ ? kCatchUp : kRest;
    paid_until_ = std::max(paid_until_, now - forgiven) + from_seconds(static_cast<double>(bytes) / rate);
    const Duration burst = from_seconds(static_cast<double>(burst_bytes) / rate);
    // Past the burst: wait until all of it is paid for, so that the next one is whole again.
    next_ = paid_until_ > now + burst ? paid_until_ : now;
  }

 private:
  TimePoint paid_until_{};
  TimePoint next_{};
  bool waits_ = false;
};

}  // namespace tusk::transport
