// An emptying of the queue: for a round trip less is sent than the line carries, so that all that share the
// queue see the bare path. This has what was so when it began, how long it lasts and how much it leaves out,
// and when the next one is due. It is done
//   - now and then, since nobody knows otherwise that the base round trip has changed;
//   - because a queue may be none (base_doubt.h);
//   - because the capacity may be less than is believed (contention.h): trains that leave meanwhile tell;
//   - because what is lost may be our own doing (path_loss.h). What is lost of it is known a round later, and
//     until then no more is sent than was delivered before it: the window is kept for that time.
//
// Pure state; not thread-safe.
#pragma once

#include <utility>

#include "proto/base/strong_int.h"
#include "proto/base/time.h"

namespace tusk::transport {

class Emptying {
 public:
  // What is so when it begins.
  struct Before {
    bool together = false;  // flows of ours to the same host fill the line, and all do it at the same time
    double goodput = 0;     // bytes/s, of the last rounds
    double delivered = 0;   // bytes/s, in the round before
  };
  // The path as it seems while it lasts.
  struct Path {
    double round_trip = 0;       // s, without a queue
    double rate = 0;             // bytes/s, the newest sample
    double best_rate = 0;        // bytes/s, of the last rounds
    double extra = 0;            // bytes that each flow has on top of its window
    double noise = 0;            // s: the path's jitter, and how long that takes to pass
    ByteCount packet = 0;        // bytes of a full one
    bool shared = false;         // others have a part of the line
    bool tests_base = false;     // it is done because a queue may be none
    bool base_doubtful = false;  // the round trip may be less
    bool tests_loss = false;     // it is done because of losses
  };

  void begin(const Before& before) { before_ = before; }
  // Flows to the same host that all do it are told when it `began`; it lasts no less than `until`.
  void announce(TimePoint began, TimePoint until) {
    announced_ = began;
    until_ = until;
  }
  [[nodiscard]] bool may_end(TimePoint now) const { return now >= until_; }
  // It has ended, or the next one is as far away as if it had.
  void count_from(TimePoint now) { counted_from_ = now; }

  // The window (bytes) before a test of the path's loss, for when it is known what came of that.
  void keep(double window) { kept_window_ = window; }
  // That, once; 0: no test is open.
  [[nodiscard]] double take_kept() { return std::exchange(kept_window_, 0); }
  void forget_kept() { kept_window_ = 0; }

  [[nodiscard]] const Before& before() const { return before_; }
  // When one of all flows to this host last began to, which all then did.
  [[nodiscard]] TimePoint announced() const { return announced_; }
  [[nodiscard]] TimePoint counted_from() const { return counted_from_; }
  // Bytes that may be in flight while it lasts.
  [[nodiscard]] double window(const Path& path) const;
  // From one to the next: `often` where others share the line, or the base is in doubt.
  [[nodiscard]] static Duration every(bool often, Duration round_trip);

 private:
  Before before_;
  TimePoint announced_{};
  TimePoint until_{};
  TimePoint counted_from_{};
  double kept_window_ = 0;
};

}  // namespace tusk::transport
