// What the path to the server carries, for sizing windows: asked for often, so remembered for a while.
#pragma once

#include <algorithm>
#include <functional>
#include <mutex>
#include <utility>

#include "fsclient/interrupt.h"
#include "fsclient/scheduler.h"
#include "proto/rpc/path_stats.h"

namespace tusk::client {

// What the path holds on its way at `bandwidth`, bytes. A queue, which may be somebody else's, counts for a
// quarter of the round trip at most.
inline ByteCount path_holds(const rpc::PathStats& path, double bandwidth) {
  const bool known = path.rtt_min > Duration::zero();
  const Duration round_trip = known ? std::min(path.rtt_smoothed, path.rtt_min * 5 / 4) : path.rtt_smoothed;
  return static_cast<ByteCount>(bandwidth * to_seconds(round_trip));
}

// Where operations wait for the server: for so long a mount may answer in its place.
constexpr Duration kSilenceMax = std::chrono::seconds(5);
// From then on a server that owes an answer counts as silent, or after some of its round trips: a lost packet
// is made good before.
constexpr Duration kSilentMin = std::chrono::seconds(2);
inline bool is_silent(const rpc::PathStats& path, Duration after = kSilentMin) {
  constexpr int kRoundTrips = 3;
  return path.silent >= std::max(after, kRoundTrips * path.rtt_smoothed);
}

// Thread-safe.
class PathEstimate {
 public:
  static constexpr Duration kAgeMax = std::chrono::milliseconds(50);

  // `silence_max`: see silent().
  PathEstimate(std::function<rpc::PathStats()> source, Scheduler& scheduler,
               Duration silence_max = kSilenceMax)
      : source_(std::move(source)), scheduler_(scheduler), silence_max_(silence_max) {}

  // On a slow line packing costs less time than it saves. What we send tells best what the line carries: what
  // we receive depends on what was asked for. But who only reads sends little, and a few small packets on a
  // busy machine may seem slow: what has come lately is carried, too.
  static constexpr double kSlowMax = 12.5e6;  // bytes/s
  [[nodiscard]] bool sends_slowly() const { return sends_slowly(recent()); }
  [[nodiscard]] bool receives_slowly() const {
    const rpc::PathStats path = recent();
    return sends_slowly(path) && path.receive_bandwidth < kSlowMax;
  }

  // A server that is known to be gone will not answer within the grace.
  [[nodiscard]] Duration interrupt_grace() const {
    return recent().connected ? kInterruptGrace : Duration::zero();
  }

  // The server has owed an answer for so long that programs are not told anything more in its place.
  [[nodiscard]] bool silent() const {
    const rpc::PathStats path = recent();
    return !path.connected || is_silent(path, silence_max_);
  }

  [[nodiscard]] rpc::PathStats recent() const {
    const std::lock_guard lock(mutex_);
    const TimePoint now = scheduler_.now();
    if (learnt_ == TimePoint::min() || now - learnt_ > kAgeMax) {
      stats_ = source_();
      learnt_ = now;
    }
    return stats_;
  }

 private:
  static bool sends_slowly(const rpc::PathStats& path) {
    return path.send_bandwidth > 0 && path.send_bandwidth < kSlowMax;
  }

  const std::function<rpc::PathStats()> source_;
  Scheduler& scheduler_;
  const Duration silence_max_;
  mutable std::mutex mutex_;
  mutable TimePoint learnt_ = TimePoint::min();
  mutable rpc::PathStats stats_;
};

}  // namespace tusk::client
