// Trains of full-size packets on a line at rest, soon after the connection began. What their dispersion tells
// lets the first bulk transfer start at the line's speed: without it, its own first packets would have to
// find that out, a round trip and a half long. One train first. A fast line brings it within less than a
// receiver's timing noise: there a longer one follows a round trip later, and two more if that tells the
// same.
//
// Pure state.
#pragma once

#include <algorithm>

#include "proto/base/strong_int.h"
#include "proto/base/time.h"

namespace tusk::transport {

class CapacityProbe {
 public:
  static constexpr Duration kAfterMin = 20ms;
  // Of one train: nobody asked for it.
  static constexpr ByteCount kTrainMax = 512 << 10;

  // After a round trip and a quarter: the search for the path's packet size has its answers then, and a
  // program that waited for the mount has not asked for bulk data yet.
  CapacityProbe(TimePoint start, Duration rtt)
      : wait_(std::max(kAfterMin, rtt + rtt / 4)), at_(start + wait_) {}

  // Whether a packet of it should leave now. `first`: bytes of the first train; `longer`: of one that would
  // tell more, 0: none would.
  [[nodiscard]] bool due(TimePoint now, ByteCount first, ByteCount longer) {
    if (now < at_) return false;
    if (left_ > 0) return true;
    const ByteCount train = std::min(longer, kTrainMax);
    const bool worth = train > first && train >= last_ / 4 * 3;
    if (step_ > 0 && !worth) {
      abandon();
      return false;
    }
    left_ = step_ == 0 ? first : step_ == 1 ? train : 2 * train;
    last_ = step_ == 0 ? 0 : train;
    ++step_;
    return true;
  }
  [[nodiscard]] TimePoint next_timeout() const { return at_; }
  void handle_sent(TimePoint now, ByteCount size) {
    left_ -= std::min(left_, size);
    if (left_ == 0) at_ = step_ == kSteps ? kNever : now + wait_;  // for the answer
  }
  // Bulk data is on its way, and is a train itself.
  void abandon() {
    at_ = kNever;
    left_ = 0;
  }

 private:
  static constexpr int kSteps = 3;

  Duration wait_;
  TimePoint at_;
  int step_ = 0;  // begun
  ByteCount left_ = 0;
  ByteCount last_ = 0;  // the longer train before
};

}  // namespace tusk::transport
