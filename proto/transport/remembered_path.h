// What a path has carried before, by which the next connection over it may start (careful resume,
// draft-ietf-tsvwg-careful-resume: reconnaissance, then no more than what was seen before, then validation).
//
// It is a hint and no more: nothing is sent on the strength of it before a round trip like the one of then,
// and a packet train of this connection that agrees (ModelController).
#pragma once

#include "proto/base/time.h"

namespace tusk::transport {

constexpr double kBytesPerKbit = 125;  // rates are told to the peer in kbit/s

struct RememberedPath {
  Duration round_trip{};  // without queues
  double sent = 0;        // bytes/s of UDP payload that it was believed to carry at last; 0: unknown
  double received = 0;    // that came over it at best

  bool operator==(const RememberedPath&) const = default;

  // A path of another length is another path.
  [[nodiscard]] bool fits(Duration measured) const {
    constexpr Duration kNoise = std::chrono::milliseconds(2);
    if (measured <= Duration(0) || round_trip <= Duration(0)) return false;
    return measured + kNoise >= round_trip * 3 / 4 && measured <= round_trip * 4 / 3 + kNoise;
  }
};

}  // namespace tusk::transport
