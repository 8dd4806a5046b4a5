// How long a queue of ours the bottleneck's buffer has room for. A buffer that is shorter than the queue that
// we mean to keep would be overrun for ever.
//
// Losses beyond the path's own in three judgements running, with a queue, show such a buffer: losses
// that come in bursts are gone by then, a policer has no queue. A judgement takes 100 packets, if need be of
// several rounds. What was learnt so is doubted after a while without losses: the path may be another one.
//
// Pure state; not thread-safe.
#pragma once

#include <algorithm>
#include <cmath>

#include "proto/base/time.h"

namespace tusk::transport {

class BufferRoom {
 public:
  static constexpr Duration kLeast = 250us;
  static constexpr Duration kBelieved = 4s;
  static constexpr int kOverruns = 3;
  static constexpr double kPacketsMin = 100;

  struct Round {
    TimePoint now;
    double acked = 0;    // packets
    double lost = 0;     // packets
    double own = 0;      // share that the path loses by itself
    Duration queue{};    // that packets of the round met on average
    Duration longest{};  // that one met
    Duration kept{};     // that we meant to keep, with room() for it
  };

  void end_round(const Round& round) {
    acked_ += round.acked;
    lost_ += round.lost;
    longest_ = std::max(longest_, round.longest);
    const double packets = acked_ + lost_;
    if (packets < kPacketsMin) return;
    const double chance = kDeviations * std::sqrt(std::max(round.own, kOwnLeast) / packets);
    const bool overrun = round.queue > kLeast && lost_ / packets - round.own > std::max(kExcess, chance);
    overruns_ = overrun ? overruns_ + 1 : 0;
    if (overruns_ >= kOverruns) {
      room_ = std::max(kLeast, std::min(round.kept, longest_) * 3 / 4);
      learnt_at_ = round.now;
      overruns_ = 0;
    } else if (!overrun && room_ < kUnlimited && round.now - learnt_at_ > kBelieved) {
      room_ = std::min(room_ * 5 / 4, kUnlimited);
      learnt_at_ = round.now;
    }
    acked_ = lost_ = 0;
    longest_ = {};
  }
  // Rounds in which losses say nothing of a queue of ours: they are not judged.
  void interrupt() {
    acked_ = lost_ = 0;
    longest_ = {};
  }

  [[nodiscard]] Duration room() const { return room_; }
  [[nodiscard]] bool limited() const { return room_ < kUnlimited; }

 private:
  static constexpr Duration kUnlimited = 1s;
  static constexpr double kExcess = 0.01;
  static constexpr double kDeviations = 3;
  static constexpr double kOwnLeast = 1e-4;

  Duration room_ = kUnlimited;
  TimePoint learnt_at_{};
  int overruns_ = 0;  // in a row
  double acked_ = 0;
  double lost_ = 0;
  Duration longest_{};
};

}  // namespace tusk::transport
