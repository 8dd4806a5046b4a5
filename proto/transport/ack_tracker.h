// The receiving side of acknowledgements: which packets came, and when the peer must hear of it.
//
// Acknowledgements thin out: one per kPacketsPerAck packets or per eighth of a round trip, so that a
// slow return channel suffices (RFC 9000 §13.2 allows it; picoquic and mvfst do alike).
#pragma once

#include <optional>

#include "proto/base/interval_set.h"
#include "proto/base/time.h"
#include "proto/wire/frame.h"

namespace tusk::transport {

class AckTracker {
 public:
  static constexpr int kPacketsPerAck = 32;
  // While a connection is young every round trip teaches, so acknowledge more often.
  static constexpr int kYoungPackets = 8192;
  static constexpr int kPacketsPerAckYoung = 8;
  static constexpr Duration kDelayMin = 200us;
  static constexpr Duration kDelayMax = 25ms;
  // Ranges beyond this are forgotten, oldest first: a peer that never raises its floor costs no memory.
  static constexpr std::size_t kRangesMax = 8192;
  static constexpr std::size_t kForgottenPart = 8;  // of them
  // An acknowledgement tells what came since the one before the last (that may be lost) and so many of the
  // newest ranges, all that a frame holds only each so many times: the others have been said before, and thin
  // return channels carry little else.
  static constexpr std::size_t kNewestRanges = 16;
  static constexpr int kAcksPerFull = 4;

  // False: seen before, or too old to know; the packet must not be processed.
  [[nodiscard]] bool is_new(wire::PacketNumber number) const;
  void record(TimePoint now, wire::PacketNumber number, bool ack_eliciting, bool congestion_mark);
  // What is to be acknowledged is due now.
  void hurry(TimePoint now) {
    if (pending()) due_at_ = now;
  }
  // The peer will never ask about packets below `floor`.
  void raise_floor(wire::PacketNumber floor);

  // One past the highest seen: what a truncated number is expanded against.
  [[nodiscard]] wire::PacketNumber next_expected() const { return wire::PacketNumber(next_); }

  void adapt_delay(Duration smoothed_rtt) { delay_ = std::clamp(smoothed_rtt / 8, kDelayMin, kDelayMax); }

  // An acknowledgement is due by this time; kNever: nothing to acknowledge.
  [[nodiscard]] TimePoint due_at() const { return due_at_; }
  // There is something unacknowledged that could ride along with a packet that goes anyway.
  [[nodiscard]] bool pending() const { return due_at_ != kNever; }
  // The frame to send now; its ranges fit in `room` bytes. The acknowledgement then counts as sent.
  [[nodiscard]] std::optional<wire::AckFrame> take_frame(TimePoint now, std::size_t room);

 private:
  IntervalSet received_;
  std::uint64_t next_ = 0;
  std::uint64_t floor_ = 0;
  TimePoint largest_at_{};
  std::uint64_t congestion_marks_ = 0;
  std::uint64_t eliciting_total_ = 0;
  int unacknowledged_ = 0;
  int acks_until_full_ = 0;
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  std::uint64_t oldest_untold_ = kNone;     // that no acknowledgement has said
  std::uint64_t oldest_told_once_ = kNone;  // that only the last one said
  Duration delay_ = kDelayMin;
  TimePoint due_at_ = kNever;
};

}  // namespace tusk::transport
