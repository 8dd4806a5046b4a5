// Sends what is small and urgent twice where packets get lost, and what was lost twice, so that who waits for
// it does not wait a round trip longer for every hundredth packet ("Proactive" of Flach et al., "Reducing Web
// Latency: the Virtue of Gentle Aggression", SIGCOMM 2013). The copy goes a little later, since losses come
// in bursts.
//
// Decides which frames get a copy and when; the copy itself is an ordinary repair. Pure state.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>

#include "proto/base/time.h"
#include "proto/transport/sent_packets.h"

namespace tusk::transport {

class ProactiveCopies {
 public:
  // Header and body of a message that counts as small: what a few packets carry.
  static constexpr ByteCount kMessageMax = 16 * 1024;
  // A larger one: what the line carries within this time, and an eighth of the round trip that a loss costs.
  // The head of a file that is opened is hundreds of packets: where one in a hundred gets lost, some always
  // are.
  static constexpr Duration kMessageTimeMax = 12ms;
  // What a copy costs: a packet's time at 1 Gbit/s and some of both ends' processors. What it saves is a
  // round trip, as often as packets get lost: at 100 ms it is worth its price from one loss in 5000 on.
  static constexpr Duration kCost = 20us;

  // A piece of an urgent message of `size` bytes went out for the first time, at `rate` (bytes/s).
  void handle_sent(TimePoint now, const SentFrame& frame, ByteCount size, Duration rtt, double rate) {
    if (copies(size, rtt, rate)) waiting_.push_back({frame, now + std::min(rtt / 16, kApartMax)});
  }
  // Does all of an urgent message of `size` bytes go out twice?
  [[nodiscard]] bool copies(ByteCount size, Duration rtt, double rate) const {
    const Duration line_time = std::min(rtt / 8, kMessageTimeMax);
    const auto quick = static_cast<ByteCount>(rate * to_seconds(line_time));
    const bool small = size <= kMessageMax;
    const bool clean = lost_ == 0 && settled_ > kFirstSteps;
    if (!small && (size > quick || clean || loss() > kOwnLossMax)) return false;
    return loss() * to_seconds(std::min(rtt, kRttMax)) > to_seconds(kCost);
  }
  // A piece was lost. For the second time: its message waits for two round trips already, and who reads in
  // order for that; on a path that loses one packet in a hundred one in ten thousand gets here. Or `ending`:
  // all else will be sent before a second loss would be noticed, as at the end of a file, and somebody waits
  // for just this then. Where much more is lost, a queue overflows, and copies would only fill it.
  void handle_lost(TimePoint now, const SentFrame& frame, bool ending, Duration rtt) {
    if ((!frame.repair && !ending) || loss() > kOwnLossMax) return;
    waiting_.push_back({frame, now + std::min(rtt / 16, kApartMax)});
  }
  // What the path does to packets; and how many bytes went out, of which copies may be a small part.
  void handle_settled(std::uint64_t acked, std::uint64_t lost) {
    settled_ += static_cast<double>(acked + lost);
    lost_ += static_cast<double>(lost);
    if (settled_ < kMemoryPackets) return;
    settled_ /= 2;
    lost_ /= 2;
  }
  void handle_bytes_sent(ByteCount size) {
    allowance_ = std::min(allowance_ + size / kShareOfBusyLine, kAllowanceMax);
  }

  // The share of packets that gets lost; 0 where none has been seen to be.
  [[nodiscard]] double seen_loss() const { return lost_ > 0 ? loss() : 0; }

  [[nodiscard]] TimePoint next_timeout() const { return waiting_.empty() ? kNever : waiting_.front().due; }

  // The next frame to be sent again now, if any. A line that is at most half used has room for all of them.
  [[nodiscard]] std::optional<SentFrame> take_due(TimePoint now, ByteCount in_flight, ByteCount window) {
    while (!waiting_.empty() && waiting_.front().due <= now) {
      const SentFrame frame = waiting_.front().frame;
      waiting_.pop_front();
      if (2 * in_flight <= window) return frame;
      if (allowance_ < frame.length) continue;
      allowance_ -= frame.length;
      return frame;
    }
    return std::nullopt;
  }

 private:
  struct Waiting {
    SentFrame frame;
    TimePoint due;
  };

  static constexpr double kOwnLossMax = 0.03;
  static constexpr Duration kApartMax = 5ms;
  static constexpr ByteCount kShareOfBusyLine = 16;
  static constexpr ByteCount kAllowanceMax = 64 * 1024;
  static constexpr double kMemoryPackets = 40'000;
  // One longer than this is taken for this one: a path on which nothing gets lost needs no copies.
  static constexpr Duration kRttMax = 300ms;
  // Packets. What is not small goes out twice, too, on a path that has not shown yet that it loses none: the
  // head of a first file.
  static constexpr double kFirstSteps = 1000;
  // A new path is taken for one that loses packets: a mount's first steps are the ones that people watch,
  // from 20 ms on.
  static constexpr double kSettledBefore = 1000;
  static constexpr double kLostBefore = 1;

  [[nodiscard]] double loss() const { return (kLostBefore + lost_) / (kSettledBefore + settled_); }

  std::deque<Waiting> waiting_;
  ByteCount allowance_ = kAllowanceMax;
  double settled_ = 0;
  double lost_ = 0;
};

}  // namespace tusk::transport
