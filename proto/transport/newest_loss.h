// Share of what was told newly that was lost: of the newest eighth of what the path holds, before the end of
// a round, which may have begun on another line.
//
// Pure state; not thread-safe.
#pragma once

#include <algorithm>
#include <cmath>

#include "proto/base/strong_int.h"
#include "proto/transport/congestion.h"

namespace tusk::transport {

class NewestLoss {
 public:
  struct News {
    ByteCount acked = 0;
    ByteCount lost = 0;
    double bandwidth = 0;   // bytes/s: with
    double round_trip = 0;  // s, what the path holds
  };

  void add(const News& news) {
    const auto told = static_cast<double>(news.acked + news.lost);
    if (told <= 0) return;
    const double some = std::max(kNewestBytes, kNewestHeld * news.bandwidth * news.round_trip);
    share_ += (static_cast<double>(news.lost) / told - share_) * -std::expm1(-told / some);
  }

  [[nodiscard]] double share() const { return share_; }  // 0..1

 private:
  // More than a burst, and so much of what the path holds.
  static constexpr double kNewestBytes = 500.0 * kUsualPacket;
  static constexpr double kNewestHeld = 0.125;

  double share_ = 0;
};

}  // namespace tusk::transport
