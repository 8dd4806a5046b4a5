// Trains of full-size packets on a line at rest, soon after the connection began. What their dispersion tells
// lets the first bulk transfer start at the line's speed: without it, its own first packets would have to
// find that out, a round trip and a half long. One train first, of which a fast line tells little; there
// some longer ones follow a round trip later.
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
  static constexpr ByteCount kMoreTrains =
      3;  // with the first as many as are relied on (TrainCapacity::kSeveral)
  // Nobody asked for it: 2 ms of 10 Gbit/s, once for each connection.
  static constexpr ByteCount kMoreMax = 2 << 20;

  // After a round trip and a quarter: the search for the path's packet size has its answers then, and a
  // program that waited for the mount has not asked for bulk data yet.
  CapacityProbe(TimePoint start, Duration rtt) : at_(start + std::max(kAfterMin, rtt + rtt / 4)) {}

  [[nodiscard]] bool due(TimePoint now) const { return now >= at_; }
  [[nodiscard]] TimePoint next_timeout() const { return at_; }
  // A packet of it has left; `train`: bytes of the first one.
  void handle_sent(ByteCount size, ByteCount train) {
    if (stage_ == Stage::kFirst) {
      stage_ = Stage::kSending;
      left_ = train;
    }
    left_ -= std::min(left_, size);
    if (left_ > 0) return;
    at_ = kNever;
    stage_ = more_ ? Stage::kDone : Stage::kAnswer;
  }
  // What it told makes trains so long worth while, bytes; `train`: the first one's.
  void handle_answer(TimePoint now, ByteCount longer, ByteCount train) {
    if (stage_ != Stage::kAnswer || longer <= train) return;
    stage_ = Stage::kSending;
    more_ = true;
    left_ = std::min(kMoreTrains * longer, kMoreMax);
    at_ = now;
  }
  // Bulk data is on its way, and is a train itself.
  void abandon() {
    at_ = kNever;
    stage_ = Stage::kDone;
  }

 private:
  enum class Stage : std::uint8_t { kFirst, kSending, kAnswer, kDone };

  Stage stage_ = Stage::kFirst;
  bool more_ = false;
  ByteCount left_ = 0;
  TimePoint at_;
};

}  // namespace tusk::transport
