// Tells a path that became longer from a queue: to a flow both are round trips above the base, but its queue
// goes with what it has in flight. Less in flight makes any queue of the bottleneck shorter by what that
// takes to pass, and if it does not within some rounds, it was none. Two queues stay all the same, and are
// told by something else: a full buffer, which loses packets, and one that others fill up at once, beside
// whom nobody has most of the line.
//
// Pure state; not thread-safe.
#pragma once

#include <algorithm>

#include "proto/base/strong_int.h"
#include "proto/base/time.h"

namespace tusk::transport {

class LongerPath {
 public:
  struct Round {
    ByteCount flight = 0;   // in flight when its newest acknowledged packet left
    double rate = 0;        // delivered, bytes/s
    double capacity = 0;    // of the bottleneck, bytes/s, > 0
    Duration queue{};       // that packets of the round met at least
    Duration wander{};      // more than that, on average
    bool lossless = false;  // no more was lost than the path loses by itself
  };

  // At the end of each round trip. True once, when what looks like a queue has proved to be none.
  [[nodiscard]] bool end_round(const Round& round) {
    if (!round.lossless || round.wander > kWanderMax || round.queue < kQueueMin) {
      forget();
      return false;
    }
    const Duration change = round.queue > queue_ ? round.queue - queue_ : queue_ - round.queue;
    if (rounds_ == 0 || round.flight >= flight_) return begin(round);
    const Duration passing = from_seconds(static_cast<double>(flight_ - round.flight) / round.capacity);
    const Duration expected = std::min(queue_, passing);
    if (change > std::max(kChangeMax, expected / 4)) return begin(round);
    if (++rounds_ < kRounds || expected < kExpectedMin || change > expected / 4) return false;
    forget();
    return true;
  }
  void forget() { rounds_ = 0; }

 private:
  static constexpr Duration kWanderMax = 2500us;
  static constexpr Duration kQueueMin = 3ms;
  static constexpr Duration kChangeMax = 1500us;  // a burst more or less
  static constexpr Duration kExpectedMin = 4ms;
  static constexpr int kRounds = 3;
  static constexpr double kShareMin = 0.7;

  bool begin(const Round& round) {
    queue_ = round.queue;
    flight_ = round.flight;
    rounds_ = round.rate < kShareMin * round.capacity ? 0 : 1;
    return false;
  }

  int rounds_ = 0;        // in which the queue was that of the first
  Duration queue_{};      // in the first of them
  ByteCount flight_ = 0;  // likewise
};

}  // namespace tusk::transport
