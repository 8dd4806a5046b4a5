// Trains of full-size packets on a line at rest, soon after the connection began. What their dispersion tells
// lets the first bulk transfer start at the line's speed: without it, its own first packets would have to
// find that out, a round trip and a half long. One train first; again if nothing came of it, since its
// packets left or arrived together in other numbers than one could tell anything from. A fast line brings it
// within less than a receiver's timing noise: there a longer one follows a round trip later, and two more if
// that tells the same.
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
  // First trains at most.
  static constexpr int kFirstMax = 2;

  // After a round trip and a quarter: the search for the path's packet size has its answers then, and a
  // program that waited for the mount has not asked for bulk data yet.
  CapacityProbe(TimePoint start, Duration rtt)
      : wait_(std::max(kAfterMin, rtt + rtt / 4)), at_(start + wait_) {}

  // Whether a packet of it should leave now. `first`: bytes of the first train; `wanted`: of one that would
  // tell more than is known, 0: none would; `under_way`: bytes that have been neither acknowledged nor lost.
  [[nodiscard]] bool due(TimePoint now, ByteCount first, ByteCount wanted, ByteCount under_way) {
    if (now < at_) return false;
    if (left_ > 0) return true;
    // On a slow line, or among many that probe it at once, the answer is not here yet, and another train
    // would stand in the queue behind the first.
    if (step_ == 1 && under_way > first / 4) {
      abandon();
      return false;
    }
    const ByteCount train = std::min(wanted, kTrainMax);
    const bool again = step_ == 1 && wanted > 0 && train <= first && firsts_ < kFirstMax;
    const bool longer = train > first && train >= last_ / 4 * 3;
    if (step_ == 0 || again) {
      left_ = first;
      step_ = 1;
      ++firsts_;
    } else if (longer) {
      left_ = last_ = train;
      ++step_;
    } else {
      abandon();
      return false;
    }
    return true;
  }
  [[nodiscard]] TimePoint next_timeout() const { return at_; }
  void handle_sent(TimePoint now, ByteCount size) {
    left_ -= std::min(left_, size);
    if (left_ > 0) return;
    // The last but one needs no answer for the last to follow, only a queue that is empty again.
    at_ = step_ == kSteps ? kNever : step_ == kSteps - 1 ? now + kAfterMin : now + wait_;
  }
  // Something small is on its way, and would stand between the train's packets.
  void postpone(TimePoint now) {
    if (at_ != kNever) at_ = std::max(at_, now + kAfterMin);
  }
  // Bulk data is on its way, and is a train itself.
  void abandon() {
    at_ = kNever;
    left_ = 0;
  }

 private:
  static constexpr int kSteps = 4;

  Duration wait_;
  TimePoint at_;
  int step_ = 0;  // begun
  int firsts_ = 0;
  ByteCount left_ = 0;
  ByteCount last_ = 0;  // the longer train before
};

}  // namespace tusk::transport
