// A line that became narrow under what was sent for a wide one, as far as it is known: until which round what
// was sent before passes, what came of the queue that stood then (that is what the line carries), and whether
// the round trip becomes shorter while that queue is drained. model_controller_overrun.cc says what is done
// about it.
//
// Pure state; not thread-safe. A fresh one: there was none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "proto/base/strong_int.h"
#include "proto/base/time.h"

namespace tusk::transport {

class Overrun {
 public:
  Overrun() = default;
  // Noticed now. `last_round`, > 0: of what was sent before. `delivered`: bytes, ever. `queue`: that stands.
  Overrun(std::uint64_t last_round, ByteCount delivered, Duration queue)
      : last_round_(last_round), delivered_(delivered), queue_(queue) {}

  [[nodiscard]] bool happened() const { return last_round_ > 0; }
  [[nodiscard]] std::uint64_t last_round() const { return last_round_; }
  [[nodiscard]] Duration queue() const { return queue_; }
  // What is in flight was sent before it was noticed.
  [[nodiscard]] bool passes(std::uint64_t round) const { return happened() && round <= last_round_; }

  // ---- What the line carries: what comes between the first acknowledgement after it was noticed and the
  // newest.

  // `delivered`: bytes, ever, with what was acknowledged now.
  void acknowledge(TimePoint now, ByteCount delivered) {
    if (delivered <= delivered_) return;
    // What comes after a longer pause came after the line was gone.
    if (now - newest_at_ > std::max(kPauseMin, queue_)) {
      first_at_ = now;
      delivered_ = delivered;
    }
    newest_at_ = now;
  }
  // Half of what stood in the queue would have come.
  [[nodiscard]] bool heard_enough() const { return newest_at_ - first_at_ >= queue_ / 2; }
  // Bytes/s that came; nullopt: over too short a time to be believed.
  [[nodiscard]] std::optional<double> carried(ByteCount delivered) const {
    const Duration time = newest_at_ - first_at_;
    if (time < queue_ / kMeasuredLeast) return std::nullopt;
    return static_cast<double>(delivered - delivered_) / to_seconds(std::max<Duration>(time, 1us));
  }
  void set_measured() { measured_ = true; }
  [[nodiscard]] bool measured() const { return measured_; }

  // ---- Whether it is the line that became narrow.

  void set_judged() { judged_ = true; }
  [[nodiscard]] bool judged() const { return judged_; }

  // ---- While its queue is drained.

  void drain() { draining_ = Duration::max(); }
  void end_draining() { draining_ = {}; }
  [[nodiscard]] bool drains() const { return draining_ > Duration(0); }
  // At the end of a round. True: the round trip has become shorter than in the round before.
  [[nodiscard]] bool shortens(Duration round_trip) {
    return clearly_shorter(round_trip, std::exchange(draining_, round_trip));
  }
  [[nodiscard]] static bool clearly_shorter(Duration a, Duration b) {
    return to_seconds(a) < kDrained * to_seconds(b);
  }

 private:
  static constexpr Duration kPauseMin = 60ms;
  static constexpr int kMeasuredLeast = 8;  // th of the queue that stood then, if nothing more comes
  static constexpr double kDrained = 0.95;  // of the round trip before

  std::uint64_t last_round_ = 0;
  ByteCount delivered_ = 0;  // until the first acknowledgement, and before that when it was noticed
  Duration queue_{};
  TimePoint first_at_{};  // acknowledgement after it was noticed, or after a pause
  TimePoint newest_at_{};
  bool measured_ = false;
  bool judged_ = false;
  Duration draining_{};  // round trip of the round before, while it is drained; 0: it is not
};

}  // namespace tusk::transport
