// Spreads packets over time: a token bucket in nanoseconds of sending time.
//
// A burst of packets goes out in one go (GSO needs runs of packets). A sender that waited for the pacer and
// for nothing else, and woke late, catches up with what it should have sent, as far as the controller lets
// it: a busy machine costs no throughput. One that had nothing to send, no window, or a full socket, and one
// that was asleep together with its machine, begins with no more than kRest.
#pragma once

#include <algorithm>

#include "proto/base/strong_int.h"
#include "proto/base/time.h"

namespace tusk::transport {

class Pacer {
 public:
  static constexpr Duration kRest = 2ms;
  static constexpr Duration kCatchUpMax = 12ms;
  static constexpr Duration kAsleep = 100ms;
  static constexpr Duration kLongWait = 500ms;

  // May a packet go now?
  [[nodiscard]] bool ready(TimePoint now) const { return now >= next_; }
  // When the next one may.
  [[nodiscard]] TimePoint next() const { return next_; }

  // Before each packet: is there something to send, and a window for it?
  void note_wish(TimePoint now, bool wishes) {
    if (!wishes || !ready(now)) waits_ = wishes;
    if (waits_ && now - next_ > kAsleep) waits_ = false;
  }
  // What was sent at a lower rate is paid for sooner: a burst that left at the least rate there is would keep
  // the sender silent for seconds, however fast the line was found to be meanwhile. Shorter waits are soon
  // over.
  void note_rate(TimePoint now, double rate) {
    if (next_ - now <= kLongWait || rate <= burst_rate_) return;
    const auto sooner = [&](TimePoint then) {
      return now + from_seconds(to_seconds(then - now) * burst_rate_ / rate);
    };
    paid_until_ = sooner(paid_until_);
    next_ = sooner(next_);
    burst_rate_ = rate;
  }
  // Something else than the pacer held the sender back.
  void rest() { waits_ = false; }

  // `rate` in bytes/s, `burst` in bytes; `catch_up`: of what should have been sent, within kRest and
  // kCatchUpMax.
  void on_sent(TimePoint now, ByteCount bytes, double rate, ByteCount burst_bytes,
               Duration catch_up = kRest) {
    // What was missed was due at the rate of then.
    if (waits_ && rate > rate_ && paid_until_ < now)
      paid_until_ = now - from_seconds(to_seconds(now - paid_until_) * rate_ / rate);
    rate_ = rate;
    const Duration forgiven = waits_ ? std::clamp(catch_up, kRest, kCatchUpMax) : kRest;
    paid_until_ = std::max(paid_until_, now - forgiven) + from_seconds(static_cast<double>(bytes) / rate);
    const Duration burst = from_seconds(static_cast<double>(burst_bytes) / rate);
    // Past the burst: wait until all of it is paid for, so that the next one is whole again.
    if (ready(now)) burst_rate_ = rate;
    next_ = paid_until_ > now + burst ? paid_until_ : now;
  }

 private:
  TimePoint paid_until_{};
  TimePoint next_{};
  double rate_ = 0;        // of the packet before
  double burst_rate_ = 0;  // of the burst that has to be paid for until next_
  bool waits_ = false;
};

}  // namespace tusk::transport
