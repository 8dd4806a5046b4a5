// One train of full-size packets on a line at rest, soon after the connection began. What its dispersion
// tells lets the first bulk transfer start at the line's speed: without it, its own first packets would
// have to find that out, a round trip and a half long.
//
// Pure state.
#pragma once

#include <algorithm>

#include "proto/base/time.h"

namespace tusk::transport {

class CapacityProbe {
 public:
  static constexpr int kPackets = 64;
  static constexpr Duration kAfterMin = 20ms;

  // After a round trip and a quarter: the search for the path's packet size has its answers then, and a
  // program that waited for the mount has not asked for bulk data yet.
  CapacityProbe(TimePoint start, Duration rtt) : at_(start + std::max(kAfterMin, rtt + rtt / 4)) {}

  [[nodiscard]] bool due(TimePoint now) const { return left_ > 0 && now >= at_; }
  [[nodiscard]] TimePoint next_timeout() const { return left_ > 0 ? at_ : kNever; }
  void handle_sent() { --left_; }
  // Bulk data is on its way, and is a train itself.
  void abandon() { left_ = 0; }

 private:
  int left_ = kPackets;
  TimePoint at_;
};

}  // namespace tusk::transport
