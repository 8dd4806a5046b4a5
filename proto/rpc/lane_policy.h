// Whether a mount should have one more connection: when one of those that it has is at its limit, a core or
// what one queue of a network card carries. Pure state; not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "proto/base/strong_int.h"
#include "proto/base/time.h"

namespace tusk::rpc {

class LanePolicy {
 public:
  struct Limits {
    double busy = 0.7;                            // of its time, that a network thread computes
    double bytes_per_second = 3e9 / 8;            // of a connection, both ways
    int samples = 3;                              // in a row that are above one of these
    Duration interval = std::chrono::seconds(1);  // between two, at least
  };

  // What a connection has done so far.
  struct Load {
    std::uint64_t connection = 0;  // never another one's
    Duration cpu{};                // of its network thread
    ByteCount bytes = 0;           // both ways
  };

  explicit LanePolicy(const Limits& limits) : limits_(limits) {}

  // True: one more. Then all are looked at anew.
  [[nodiscard]] bool note(TimePoint now, std::span<const Load> loads) {
    if (now - at_ < limits_.interval) return false;
    const bool limited =
        std::ranges::any_of(loads, [&](const Load& load) { return at_limit(load, now - at_); });
    before_.assign(loads.begin(), loads.end());
    at_ = now;
    limited_ = limited ? limited_ + 1 : 0;
    if (limited_ < limits_.samples) return false;
    limited_ = 0;
    return true;
  }

 private:
  [[nodiscard]] bool at_limit(const Load& load, Duration since) const {
    const auto before = std::ranges::find(before_, load.connection, &Load::connection);
    if (before == before_.end()) return false;
    const double seconds = to_seconds(since);
    if (to_seconds(load.cpu - before->cpu) > limits_.busy * seconds) return true;
    // Less than before: it was connected anew and counts from 0, so nobody knows how many there were.
    return load.bytes >= before->bytes &&
           static_cast<double>(load.bytes - before->bytes) > limits_.bytes_per_second * seconds;
  }

  const Limits limits_;
  std::vector<Load> before_;
  TimePoint at_{};
  int limited_ = 0;  // samples in a row
};

}  // namespace tusk::rpc
