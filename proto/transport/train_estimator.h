// Capacity from the dispersion of packet trains: packets that left together arrive spread out by the
// bottleneck, and how far apart they arrive tells its rate, a round trip after the first burst (after
// Dovrolis, Ramanathan and Moore, "Packet-Dispersion Techniques", 2004; packet trains rather than pairs,
// because receivers take packets in batches). On a slow line few packets are enough: each arrives alone.
//
// Pure state.
#pragma once

#include <algorithm>
#include <optional>

#include "proto/base/strong_int.h"
#include "proto/base/time.h"
#include "proto/transport/congestion.h"
#include "proto/wire/types.h"

namespace tusk::transport {

class TrainEstimator {
 public:
  static constexpr std::uint64_t kPacketsMin = 16;
  // So few where they arrive so far apart, which is one by one.
  static constexpr std::uint64_t kPacketsSlow = 4;
  static constexpr Duration kApart = 1ms;
  // Packets of `size` bytes at `rate` bytes/s do: fewer tell enough.
  [[nodiscard]] static constexpr bool one_by_one(double rate, ByteCount size) {
    return rate * to_seconds(kApart) < static_cast<double>(size);
  }
  // Packets that left within this are one train.
  static constexpr Duration kTogether = 50us;
  // A receiver's clock may say anything; more would overflow a Duration.
  static constexpr std::uint64_t kSpreadMaxUs = 60'000'000;

  // An acknowledgement whose largest packet is new: its number, when it left, its size, when it arrived by
  // the receiver's clock.
  [[nodiscard]] std::optional<PacketTrain> handle_ack(wire::PacketNumber number, TimePoint sent_at,
                                                      std::uint32_t size, std::uint64_t received_us) {
    const bool same = started_ && sent_at >= train_sent_at_ && sent_at - train_sent_at_ <= kTogether;
    if (!same) {
      started_ = true;
      train_sent_at_ = sent_at;
      first_ = number;
      first_received_us_ = received_us;
      ++trains_;
      return std::nullopt;
    }
    const std::uint64_t packets = number - first_;
    if (number <= first_ || packets < kPacketsSlow || received_us < first_received_us_) return std::nullopt;
    const Duration spread =
        std::chrono::microseconds(std::min(received_us - first_received_us_, kSpreadMaxUs));
    const bool one_by_one = spread >= static_cast<Duration::rep>(packets) * kApart;
    if (packets < kPacketsMin && !one_by_one) return std::nullopt;
    return PacketTrain{trains_, packets * size, spread, one_by_one};
  }

  // Of the train that the last acknowledgement was of.
  [[nodiscard]] wire::PacketNumber first() const { return first_; }

 private:
  std::uint64_t trains_ = 0;
  bool started_ = false;
  TimePoint train_sent_at_{};
  wire::PacketNumber first_;
  std::uint64_t first_received_us_ = 0;
};

}  // namespace tusk::transport
