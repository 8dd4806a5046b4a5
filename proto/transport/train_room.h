// Whether the path has room for a train of the usual length, so that a window that is too small for one
// beside what else is in flight may be made larger by it. Where trains lose packets the buffer does not hold
// them: then none is sent for a while, but short ones, and longer each time.
//
// Pure state; not thread-safe.
#pragma once

#include <algorithm>

namespace tusk::transport {

class TrainRoom {
 public:
  [[nodiscard]] bool open() const { return rounds_left_ == 0; }

  // At the end of a round trip. `used`: trains left in it; `lost`: share of packets, beyond the path's own.
  void end_round(bool used, double lost) {
    if (rounds_left_ > 0) --rounds_left_;
    telling_ = used ? kTelling : std::max(0, telling_ - 1);
    if (telling_ == 0 || lost < kLost) return;
    telling_ = 0;
    rounds_left_ = rounds_next_;
    rounds_next_ = std::min(2 * rounds_next_, kRoundsMax);
  }
  // The line is known to be wider than it was.
  void reset() { *this = {}; }

 private:
  static constexpr double kLost = 0.05;
  static constexpr int kTelling = 3;  // rounds until it is known what was lost, with the one in which it left
  static constexpr int kRoundsMin = 16;
  static constexpr int kRoundsMax = 512;

  int telling_ = 0;      // rounds left in which losses may be of that
  int rounds_left_ = 0;  // until it is tried again
  int rounds_next_ = kRoundsMin;
};

}  // namespace tusk::transport
