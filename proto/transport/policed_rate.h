// What a policer lets pass, from the first test that showed that loss is our own doing (path_loss.h) until it
// is known that there is none; and the window of a flow that goes by that.
//
// A round delivers a little less than its window, by what delays acknowledgements, and much less where a
// machine stood still. Where nothing is lost, and no queue is there, that is no reason to send less the next
// time. Who was stopped, and so sent a burst that was cut, comes back to what passed before.
//
// Pure state; not thread-safe.
#pragma once

#include <algorithm>

namespace tusk::transport {

class PolicedRate {
 public:
  // Bytes and bytes/s.
  struct Round {
    double window = 0;      // of this round
    double lawful = 0;      // that the law asks for, by what was delivered
    double delivered = 0;   // by the last rounds
    double round_trip = 0;  // s, with the path's jitter
    double lost = 0;        // share, beyond what the path loses by itself
    bool queue = false;     // there is one
    bool content = false;   // with what passes, as path_loss.h asks for; else it tries whether more does
  };

  // So much was delivered before a test, and more was lost.
  void learn(double delivered) { rate_ = std::max(rate_, delivered); }
  // There is no policer, or it is not known of any more.
  void forget() { rate_ = 0; }

  // The next window.
  [[nodiscard]] double end_round(const Round& round) {
    if (rate_ <= 0) return round.lawful;
    // What does not pass is lost, for the three rounds until it shows.
    const double next = round.content ? round.lawful : std::min(round.lawful, kGrowthBeyond * round.window);
    if (round.lost > kMuch) {
      if (round.content) rate_ = std::min(rate_, round.delivered);
      return next;
    }
    if (round.queue) return next;
    const double passed = round.content && round.lost > kLittle ? 1 - round.lost : 1;
    rate_ *= passed;
    const double back = std::min(kGrowthBack * round.window, rate_ * round.round_trip);
    return std::max(round.content ? passed * round.window : next, back);
  }
  // Only such a round tells that there is no policer: more passes, or as much, and waits in a `queue`.
  [[nodiscard]] bool speaks_against(double delivered, bool queue) const {
    return delivered > kMore * rate_ || (queue && delivered > rate_ / kMore);
  }

 private:
  static constexpr double kMuch = 0.01;
  static constexpr double kLittle = 0.002;
  static constexpr double kGrowthBack = 1.08;
  static constexpr double kGrowthBeyond = 1.03;
  static constexpr double kMore = 1.05;

  double rate_ = 0;  // bytes/s; 0: nothing is known
};

}  // namespace tusk::transport
