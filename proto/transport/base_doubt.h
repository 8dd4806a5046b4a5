// Whether the base round trip is true. A path that became longer looks like a queue that does not change:
// longer than flows of ours would keep, round after round the same. So such a queue is put to the test: the
// controller empties it, and if it is as long afterwards it was none. What is then taken for the base has
// been seen from behind other queues, and is in doubt until an emptying finds it again.
//
// See longer_path.h for what is told of it by less in flight, without a test.
//
// Pure state; not thread-safe.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include "proto/base/time.h"

namespace tusk::transport {

class BaseDoubt {
 public:
  struct Round {
    Duration queue{};        // that its packets met at least
    Duration usual_queue{};  // that one flow of ours keeps when it is alone
    double share = 1;        // of the capacity that we have
    bool explained = false;  // flows of ours to the same host fill the line
  };

  // At the end of each steady round. True: its queue is to be put to the test, by emptying it.
  [[nodiscard]] bool end_round(const Round& round) {
    const bool steady = about_equal(round.queue, steady_queue_) && !round.explained;
    if (!steady || !crowded(round)) {
      if (steady) patience_ = kPatienceRounds;
      steady_queue_ = round.queue;
      steady_rounds_ = 0;
      return false;
    }
    if (++steady_rounds_ < patience_) return false;
    steady_rounds_ = 0;
    patience_ = std::min(2 * patience_, kPatienceRoundsMax);
    tested_queue_ = round.queue;
    return true;
  }
  // At the end of the round after an emptying, whatever it was for: with the queue that packets met then, and
  // the least round trip. After a round in which a good part of the line was left free, a queue has become
  // less. True: nothing has changed, so that it is none, and the path has become longer.
  [[nodiscard]] bool judge(Duration queue, Duration base) {
    const Duration tested = std::exchange(tested_queue_, Duration(0));
    if (tested > Duration(0)) return about_equal(queue, tested);
    doubtful_ = doubtful_ && !about_equal(base, base_);
    base_ = base;
    return false;
  }

  // The path is taken for longer, with this base.
  void lengthen(Duration base) {
    doubtful_ = true;
    base_ = base;
  }
  // The line is another one: a path that changed once may be longer, too.
  void expect_change() { patience_ = kPatienceRounds / 2; }
  // The emptying for it has not been what it should be.
  void abandon_test() { tested_queue_ = {}; }
  void trust() {
    abandon_test();
    doubtful_ = false;
  }

  // It was found behind what was taken for a longer path.
  [[nodiscard]] bool doubtful() const { return doubtful_; }
  // The queue is being emptied to see whether it is one.
  [[nodiscard]] bool tests() const { return tested_queue_ > Duration(0); }

 private:
  static constexpr int kPatienceRounds = 4;
  static constexpr int kPatienceRoundsMax = 64;
  static constexpr double kCrowdedQueues = 1.5;
  static constexpr double kShareLeast = 0.05;
  static constexpr double kSteadyQueue = 0.05;
  static constexpr double kSteadyQueueMin = 0.5e-3;  // s
  static constexpr double kSteadyQueueMax = 3e-3;

  [[nodiscard]] static bool about_equal(Duration a, Duration b) {
    return std::abs(to_seconds(a - b)) <
           std::clamp(kSteadyQueue * to_seconds(a), kSteadyQueueMin, kSteadyQueueMax);
  }
  // Longer than flows of ours would keep.
  [[nodiscard]] static bool crowded(const Round& round) {
    const double share = std::clamp(round.share, kShareLeast, 1.0);
    return to_seconds(round.queue) > kCrowdedQueues * to_seconds(round.usual_queue) / std::sqrt(share);
  }

  Duration steady_queue_{};  // that has not changed for so many rounds
  int steady_rounds_ = 0;
  int patience_ = kPatienceRounds;
  Duration tested_queue_{};  // for which the queue is being emptied; 0: none
  bool doubtful_ = false;
  Duration base_{};  // before the queue was emptied
};

}  // namespace tusk::transport
