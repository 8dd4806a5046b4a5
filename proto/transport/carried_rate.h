// What a line near by carries for long, pauses included. A round is soon over there, and its best rate sample
// is that of a machine that was kept from running and is told at once what came meanwhile: who believes that
// takes others to be here.
//
// Pure state; not thread-safe. A fresh one: nothing is known, as of another line.
#pragma once

#include "proto/base/strong_int.h"
#include "proto/base/time.h"

namespace tusk::transport {

class CarriedRate {
 public:
  // `acked`: bytes of the round. True when another kCarriedFor is over: rate() is news then.
  [[nodiscard]] bool end_round(TimePoint now, ByteCount acked) {
    acked_ += acked;
    const bool whole = since_ != TimePoint();
    if (whole) {
      if (now - since_ < kCarriedFor) return false;
      rate_ = static_cast<double>(acked_) / to_seconds(now - since_);
    }
    since_ = now;
    acked_ = 0;
    return whole;
  }
  // Bytes/s over the last whole kCarriedFor; 0: none is known.
  [[nodiscard]] double rate() const { return rate_; }

 private:
  // Longer than a program is often kept from running.
  static constexpr Duration kCarriedFor = 100ms;

  ByteCount acked_ = 0;
  TimePoint since_{};  // the last one began; none: with the next round
  double rate_ = 0;
};

}  // namespace tusk::transport
