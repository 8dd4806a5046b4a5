// What the dispersion of several packet trains says of the bottleneck's capacity. See train_estimator.h
// for a single one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>

#include "proto/base/strong_int.h"
#include "proto/base/time.h"
#include "proto/transport/congestion.h"

namespace tusk::transport {

class TrainCapacity {
 public:
  // Long enough to tell the capacity from a receiver's timing noise, and enough packets for TrainEstimator.
  [[nodiscard]] static constexpr ByteCount bytes_min(ByteCount datagram_size) {
    return std::max<ByteCount>(64 * kUsualPacket, 24 * datagram_size);
  }
  static constexpr std::size_t kSeveral = 4;
  static constexpr std::size_t kSeveralSlow = 3;  // where packets arrive one by one

  void add(const PacketTrain& train) {
    if (!trains_.empty() && trains_.back().id == train.id) trains_.pop_back();
    trains_.push_back(train);
    if (trains_.size() > kRemembered) trains_.pop_front();
  }
  void clear() { trains_.clear(); }
  // Of enough trains to rely on.
  [[nodiscard]] bool several() const {
    return trains_.size() >= kSeveral ||
           (trains_.size() >= kSeveralSlow && std::ranges::all_of(trains_, &PacketTrain::one_by_one));
  }

  // Bytes/s that may be sent on the strength of it; 0: unknown. A single train is believed less.
  [[nodiscard]] double safe_rate() const { return (several() ? 0.95 : 0.8) * capacity(); }

  // With nothing taken off for the receiver's noise.
  [[nodiscard]] double dispersion() const {
    ByteCount bytes = 0;
    Duration spread{};
    for (const PacketTrain& train : trains_) {
      bytes += train.bytes;
      spread += train.spread;
    }
    return bytes == 0 ? 0 : static_cast<double>(bytes) / to_seconds(std::max<Duration>(spread, 1us));
  }

  // Of the train that others disturbed least.
  [[nodiscard]] double best() const {
    double best = 0;
    for (const PacketTrain& train : trains_)
      best = std::max(best, static_cast<double>(train.bytes) / to_seconds(train.spread + kTimingNoise));
    return best;
  }

  // Bytes/s; 0: unknown.
  [[nodiscard]] double capacity() const {
    if (trains_.empty()) return 0;
    ByteCount bytes = 0;
    Duration spread{};
    for (const PacketTrain& train : trains_) {
      bytes += train.bytes;
      spread += train.spread;
    }
    // The receiver's times are those at which its program saw the packets; the noise of several trains
    // averages out, and of many long ones hardly any is left.
    const double noise = to_seconds(kTimingNoise) * std::sqrt(static_cast<double>(trains_.size()));
    if (trains_.size() >= kMany && to_seconds(spread) > kNoiseNegligible * noise) return dispersion();
    return static_cast<double>(bytes) / (to_seconds(spread) + noise);
  }

 private:
  static constexpr std::size_t kRemembered = 32;
  static constexpr std::size_t kMany = 16;
  static constexpr double kNoiseNegligible = 8;
  static constexpr Duration kTimingNoise = 200us;

  std::deque<PacketTrain> trains_;  // the newest still grows
};

}  // namespace tusk::transport
