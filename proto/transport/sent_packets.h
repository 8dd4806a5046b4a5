// What is in flight: finds out which packets arrived and which are lost (docs/PROTOCOL.md, "Recovery").
//
// Loss is told by time, not by counting (RACK, RFC 8985): a packet is lost when one sent after it has
// been acknowledged and a round trip plus the reordering window has passed since it was sent. The
// window starts small, grows when a packet thought lost is acknowledged after all, and shrinks again when
// none was for a while. When nothing follows to reveal a loss, a probe timeout sends a packet that must be
// acknowledged (RFC 9002 §6.2).
//
// Now and then a number is left out: who acknowledges it acknowledges what it has not got, to be sent more
// than the path carries (RFC 9000 §21.4).
//
// Packet numbers never repeat; what was lost is sent again as content, in a new packet.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "proto/base/interval_set.h"
#include "proto/base/time.h"
#include "proto/transport/congestion.h"
#include "proto/transport/rtt_estimator.h"
#include "proto/transport/train_estimator.h"
#include "proto/wire/frame.h"

namespace tusk::transport {

// What a packet carried that matters when it is acknowledged or lost.
struct SentFrame {
  enum class Kind : std::uint8_t {
    kBody,
    kHeader,
    kParity,
    kCancel,
    kCredit,
    kSettings,
    kPing,
    kMtuProbe,
    kPathResponse,
    kAddressToken,
    kResetToken
  };
  Kind kind = Kind::kPing;
  wire::ExchangeId exchange;  // kBody, kHeader, kCancel
  std::uint32_t offset = 0;   // kBody, kHeader; kMtuProbe: the size probed
  std::uint32_t length = 0;
  bool repair = false;  // kBody, kHeader: goes out again
};

struct SentPacket {
  enum class State : std::uint8_t { kUntracked, kSkipped, kOutstanding, kAcked, kLost };
  TimePoint sent_at{};
  std::uint32_t size = 0;  // bytes of the datagram
  State state = State::kUntracked;
  bool app_limited = false;
  bool mtu_probe = false;  // its loss says nothing of congestion
  // For the delivery rate (draft-cheng-iccrg-delivery-rate-estimation §3.1): the state at sending.
  ByteCount delivered = 0;
  ByteCount flight = 0;  // bytes in flight, with this packet
  TimePoint delivered_at{};
  TimePoint first_sent_at{};
  std::uint64_t delivered_received_us = 0;  // receiver's clock
  TimePoint lost_at{};
  SentFrame frame;  // nearly every packet has just one
  std::vector<SentFrame> more;
};

class SentPackets {
 public:
  static constexpr Duration kProbeBackoffMax = 2s;
  // A queue that stood for many seconds and is gone has left a round trip behind that nothing takes any more:
  // who waited as long for an answer that was lost would be given up by the peer.
  static constexpr Duration kProbeTimeoutMax = 3s;
  static constexpr int kOutageProbes = 3;
  // Lost packets are remembered this many smoothed round trips, to notice that they were only late.
  static constexpr int kRememberLostRtts = 3;
  // Rounds with losses of which none was only late, after which the reordering window is halved (as in
  // RFC 8985 §6.2).
  static constexpr int kInOrderRounds = 16;

  // Outcomes of handle_ack and handle_timeout, in order.
  struct Outcome {
    std::vector<SentFrame> acked;
    std::vector<SentFrame> lost;
    AckEvent event;  // for the congestion controller
    // Of the largest packet that is acknowledged, if it is news: when it left, and arrived by the receiver's
    // clock.
    struct Arrival {
      TimePoint sent_at;
      Duration at;
    };
    std::optional<Arrival> arrival;
    bool any_acked = false;
    bool full_size_acked = false;  // a packet of the size being watched, or larger
    // Likewise lost, and none of that size sent after it has arrived: what loses at random does not
    // stay so for long, what swallows large packets does. Said once of all that was sent before it is
    // said: of one burst, however many timers give it up.
    bool full_size_swallowed = false;
  };

  [[nodiscard]] wire::PacketNumber next_number() const { return wire::PacketNumber(base_ + packets_.size()); }
  // The largest number the peer acknowledged.
  [[nodiscard]] std::optional<wire::PacketNumber> largest_acked() const {
    return ack_next_ == 0 ? std::nullopt : std::optional(wire::PacketNumber(ack_next_ - 1));
  }
  // The receiver may forget everything below.
  [[nodiscard]] wire::PacketNumber floor() const { return wire::PacketNumber(base_); }

  // Records the packet next_number(). `frames` empty: it is not tracked, only the number is used up: it asks
  // for nothing, or nobody waits for it.
  void record(TimePoint now, std::uint32_t size, std::vector<SentFrame>& frames, bool app_limited);

  // Forgets the oldest packets, as far as nothing more is to be learnt of them. An acknowledgement does so,
  // too.
  void forget_settled(TimePoint now, const RttEstimator& rtt);

  // Leaves the number next_number() out.
  void skip() { packets_.emplace_back().state = State::kSkipped; }

  // False: the peer acknowledges what was never sent; it is broken.
  [[nodiscard]] bool handle_ack(TimePoint now, const wire::AckFrame& ack, RttEstimator& rtt,
                                Outcome& outcome);
  // Time-based loss detection; true when a probe must be sent.
  [[nodiscard]] bool handle_timeout(TimePoint now, const RttEstimator& rtt, Outcome& outcome);
  [[nodiscard]] TimePoint next_timeout(const RttEstimator& rtt) const;

  // Packets of this size or more are "full-size" in outcomes; what arrived of another size is forgotten.
  void watch_size(std::uint32_t size) {
    if (size == watched_size_) return;
    watched_size_ = size;
    watched_acked_next_ = 0;
  }

  // The content of the oldest outstanding packet, to be sent again in a probe.
  [[nodiscard]] std::vector<SentFrame> oldest_outstanding() const;

  // When the newest packet was sent that the peer is known to have.
  [[nodiscard]] std::optional<TimePoint> newest_confirmed() const { return newest_confirmed_; }

  [[nodiscard]] ByteCount in_flight() const { return in_flight_; }
  // Memory that is held for packets that are not tracked, behind one that is. A peer that acknowledges
  // nothing else decides how long.
  [[nodiscard]] ByteCount bare_bytes() const { return bare_ * sizeof(SentPacket); }
  [[nodiscard]] ByteCount delivered() const { return delivered_; }
  [[nodiscard]] int probes_unanswered() const { return probe_count_; }
  [[nodiscard]] std::uint64_t lost_total() const { return lost_total_; }
  [[nodiscard]] std::uint64_t spurious_total() const { return spurious_total_; }
  [[nodiscard]] Duration reordering_window(const RttEstimator& rtt) const;

 private:
  using State = SentPacket::State;

  SentPacket& at(std::uint64_t number) { return packets_[number - base_]; }
  [[nodiscard]] const SentPacket& at(std::uint64_t number) const { return packets_[number - base_]; }
  void acknowledge(TimePoint now, std::uint64_t number, const RttEstimator& rtt, Outcome& outcome);
  void sample_rate(TimePoint now, const SentPacket& newest, const wire::AckFrame& ack, Duration rtt_min,
                   Outcome& outcome);
  void note_gaps(std::uint64_t old_next, std::uint64_t next);
  void end_round();
  void detect_losses(TimePoint now, const RttEstimator& rtt, Outcome& outcome);
  void lose(TimePoint now, std::uint64_t number, Outcome& outcome);
  void pop_oldest();
  [[nodiscard]] Duration loss_delay(const RttEstimator& rtt) const;

  std::deque<SentPacket> packets_;  // by number, from base_
  std::size_t bare_ = 0;            // of them, that are not tracked
  std::uint64_t base_ = 0;
  IntervalSet acked_;               // who asks, asks from base_ up: what lies below is removed now and then
  std::uint64_t ack_next_ = 0;      // one past the largest acknowledged
  std::deque<std::uint64_t> gaps_;  // numbers below ack_next_ not acknowledged yet, by sending time
  TimePoint loss_due_at_ = kNever;

  ByteCount in_flight_ = 0;
  std::uint64_t outstanding_ = 0;
  TimePoint last_eliciting_sent_at_{};
  std::optional<TimePoint> newest_confirmed_;
  int probe_count_ = 0;

  ByteCount delivered_ = 0;
  TimePoint delivered_at_{};
  TimePoint first_sent_at_{};
  std::uint64_t delivered_received_us_ = 0;
  ByteCount round_end_delivered_ = 0;

  std::uint64_t congestion_marks_ = 0;
  std::uint64_t lost_total_ = 0;
  std::uint64_t spurious_total_ = 0;
  Duration reordering_extra_{};
  bool late_in_round_ = false;
  bool lost_in_round_ = false;
  int in_order_rounds_ = 0;  // with losses, since one was only late or the window was halved
  TrainEstimator train_;

  std::uint32_t watched_size_ = 0;
  std::uint64_t watched_acked_next_ = 0;  // one past the largest full-size packet acknowledged
  // From this number on a loss tells anew: those of one burst are one reason for doubt.
  std::uint64_t swallowed_next_ = 0;
};

}  // namespace tusk::transport
