// Times in tests of the transport: durations since the start, never a clock.
#pragma once

#include "proto/base/time.h"

namespace tusk::transport {

[[nodiscard]] constexpr TimePoint at(Duration since_start) { return TimePoint() + since_start; }

}  // namespace tusk::transport
