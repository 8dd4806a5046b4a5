// What one round trip brought: counted acknowledgement by acknowledgement, and begun anew with each round.
//
// A value; see round_queue.h for the round trips that its packets met.
#pragma once

#include <algorithm>

#include "proto/base/strong_int.h"
#include "proto/base/time.h"

namespace tusk::transport {

struct RoundTally {
  TimePoint began{};
  ByteCount acked = 0;
  ByteCount lost = 0;
  double best_rate = 0;     // bytes/s, of its rate samples
  bool app_limited = true;  // all of these were: it put nothing to the test

  [[nodiscard]] ByteCount told() const { return acked + lost; }
  // Share of what it tells of, 0..1.
  [[nodiscard]] double loss() const {
    return told() == 0 ? 0 : static_cast<double>(lost) / static_cast<double>(told());
  }
  // How many of `packet` bytes that is.
  [[nodiscard]] double packets(ByteCount packet) const {
    return static_cast<double>(told()) / static_cast<double>(packet);
  }
  // Bytes/s until `now`, with its pauses.
  [[nodiscard]] double goodput(TimePoint now) const {
    return static_cast<double>(acked) / to_seconds(std::max(now - began, Duration(50us)));
  }
};

}  // namespace tusk::transport
