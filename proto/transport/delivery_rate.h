// How fast the path delivers, by the rate samples of acknowledgements (sent_packets.h): the newest one, and
// the best of the last rounds, which is the bandwidth.
//
// Pure state; not thread-safe.
#pragma once

#include <cstdint>
#include <deque>

#include "proto/base/strong_int.h"

namespace tusk::transport {

class DeliveryRate {
 public:
  struct Sample {
    double rate = 0;       // bytes/s
    double filled = 1;     // share of the window that was in flight for it, above 0
    ByteCount flight = 0;  // that
  };

  void add(std::uint64_t round, const Sample& sample) {
    newest_ = sample;
    while (!best_.empty() && best_.back().rate <= sample.rate) best_.pop_back();
    best_.push_back({round, sample.rate});
  }
  // Old samples make way for newer ones; the last one stays whatever its age. `round`: the one that begins.
  void end_round(std::uint64_t round) {
    while (best_.size() > 1 && best_.front().round + kBandwidthRounds < round) best_.pop_front();
  }
  // What was sampled before was of another line, or of none: this counts from now on. What was in flight for
  // the newest sample stays known.
  void restart(std::uint64_t round, double rate) {
    newest_.rate = rate;
    best_ = {{round, rate}};
  }

  // Bytes/s, of the newest sample; 0: none.
  [[nodiscard]] double newest() const { return newest_.rate; }
  // What a full window would have brought: a machine that was kept from running did not fill it.
  [[nodiscard]] double newest_full() const { return newest_.rate / newest_.filled; }
  [[nodiscard]] double filled() const { return newest_.filled; }
  [[nodiscard]] ByteCount flight() const { return newest_.flight; }
  // Bytes/s, the most of the last rounds; 0: no sample.
  [[nodiscard]] double best() const { return best_.empty() ? 0 : best_.front().rate; }

 private:
  // The maximum of so many rounds is the bandwidth.
  static constexpr std::uint64_t kBandwidthRounds = 12;

  struct RoundSample {
    std::uint64_t round;
    double rate;
  };

  Sample newest_;
  std::deque<RoundSample> best_;  // rates descending, so that the maximum is in front
};

}  // namespace tusk::transport
