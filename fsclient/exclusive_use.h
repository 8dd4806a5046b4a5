// While a mount uses what it has for itself (exclusiveness), the server hears from it more often: a client
// may use it only for AttachReply.exclusive_ms after the newest packet that it knows to have arrived
// (docs/PROTOCOL.md, "Exclusiveness"). An idle mount is silent, and asks once when it goes on.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <utility>

#include "fsclient/scheduler.h"
#include "proto/base/time.h"

namespace tusk::client {

class ExclusiveUse {
 public:
  // After the last use, the server hears from the mount as often for so long.
  static constexpr Duration kLasts = std::chrono::seconds(30);
  // Makes the connection speak often, or no more often than leases need. Must not block.
  using SpeakOften = std::function<void(bool)>;

  // Empty `speak_often`: nothing happens. The scheduler must outlive it, and be stopped before its end.
  ExclusiveUse(Scheduler& scheduler, SpeakOften speak_often)
      : scheduler_(scheduler), speak_often_(std::move(speak_often)) {}

  void note() {
    if (!speak_often_) return;
    used_at_.store(scheduler_.now(), std::memory_order_relaxed);
    if (often_.load(std::memory_order_relaxed) || often_.exchange(true)) return;
    speak_often_(true);
    watch();
  }

 private:
  void watch() {
    scheduler_.post_after(kLasts, [this] {
      if (scheduler_.now() - used_at_.load() < kLasts) return watch();
      often_ = false;
      speak_often_(false);
    });
  }

  Scheduler& scheduler_;
  const SpeakOften speak_often_;
  std::atomic<TimePoint> used_at_{TimePoint::min()};
  std::atomic<bool> often_{false};
};

}  // namespace tusk::client
