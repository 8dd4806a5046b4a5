// Bytes/s delivered over the last rounds, with their pauses: what a flow gets, where a rate sample says how
// fast the line was while something came.
//
// Pure state; not thread-safe.
#pragma once

#include <algorithm>

namespace tusk::transport {

class Goodput {
 public:
  // `rate`: bytes/s of the round.
  void end_round(double rate) {
    newest_ = rate;
    mean_ += (mean_ > 0 ? kGoodputWeight : 1) * (newest_ - mean_);
  }
  // Where the last rounds are known to have been less than usual.
  void raise(double mean) { mean_ = std::max(mean_, mean); }

  [[nodiscard]] double mean() const { return mean_; }      // of the last rounds; 0: none
  [[nodiscard]] double newest() const { return newest_; }  // of the last one

 private:
  static constexpr double kGoodputWeight = 1.0 / 4;

  double mean_ = 0;
  double newest_ = 0;
};

}  // namespace tusk::transport
