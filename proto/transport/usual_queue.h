// The queue that one flow of ours keeps when it is alone: an eighth of the round trip. Where the path itself
// holds next to nothing the queue is all that lasts while a program is kept from running: more there.
#pragma once

#include <algorithm>

#include "proto/base/time.h"

namespace tusk::transport {

constexpr Duration kOwnQueueMin = 5ms;
constexpr Duration kOwnQueueHere = 12ms;
constexpr Duration kOwnQueueNear = 8ms;
constexpr Duration kOwnQueueMax = 10ms;

// `base`: the round trip without queues. The d of the law in docs/CONGESTION.md.
[[nodiscard]] constexpr Duration usual_queue_of(Duration base) {
  const Duration least = std::max({kOwnQueueMin, kOwnQueueNear - base / 16, kOwnQueueHere - base});
  return std::clamp(base / 8, least, std::max(least, kOwnQueueMax));
}

}  // namespace tusk::transport
