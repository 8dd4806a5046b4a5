// Carries the TLS handshake's bytes in order over packets that get lost (docs/PROTOCOL.md, "Handshake").
//
// A protocol of its own, because the connection's recovery needs what the handshake brings: a flight is
// sent again whole until the peer has acknowledged it, with exponential back-off. Flights are small.
// Pure state: no sockets, clock or threads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "proto/base/bytes.h"
#include "proto/base/interval_set.h"
#include "proto/base/result.h"
#include "proto/base/time.h"
#include "proto/wire/frame.h"

namespace tusk::transport {

class HandshakeStream {
 public:
  static constexpr ByteCount kBytesMax = 64 << 10;
  // Of bytes with gaps between them: a flight is a few packets, and what is lost of it leaves a few.
  static constexpr std::size_t kRunsMax = 64;
  static constexpr Duration kTimeoutInitial = 250ms;
  static constexpr Duration kTimeoutMax = 2s;

  // ------------------------------------------------ towards the peer
  void send(std::span<const std::byte> bytes) {
    outgoing_.insert(outgoing_.end(), bytes.begin(), bytes.end());
    if (!bytes.empty()) restart();
  }
  // A new token or a new server: everything goes out again at once.
  void restart() {
    next_ = acked_;
    timeout_ = kTimeoutInitial;
    sent_at_ = kNever;  // the answer will be one to this sending
  }

  // Appends frames while there is something to send and room for it; false: nothing was written.
  bool write_frames(TimePoint now, ByteWriter& writer);
  [[nodiscard]] bool has_frames() const { return ack_due_ || next_ < outgoing_.size(); }
  [[nodiscard]] bool all_acked() const { return acked_ == outgoing_.size(); }

  [[nodiscard]] TimePoint next_timeout() const { return retransmit_at_; }
  void handle_timeout(TimePoint now);

  // ------------------------------------------------ from the peer
  // kMalformed: more than a handshake can have, or behind more gaps; nothing of it is taken then.
  [[nodiscard]] Result<void> handle_frame(TimePoint now, const wire::CryptoFrame& frame);
  [[nodiscard]] Result<void> handle_frame(TimePoint now, const wire::CryptoAckFrame& frame);
  // A repetition by a peer that has not heard that its bytes came.
  void acknowledge_again() { ack_due_ = true; }
  // The bytes that are in order now and were not taken yet.
  [[nodiscard]] std::vector<std::byte> take_received();

  // From the first sending of a flight to its acknowledgement, when nothing was sent twice.
  [[nodiscard]] std::optional<Duration> round_trip() const { return round_trip_; }

 private:
  [[nodiscard]] ByteCount in_order() const {
    return received_.empty() || received_.front().begin > 0 ? 0 : received_.front().end;
  }

  std::vector<std::byte> outgoing_;
  ByteCount acked_ = 0;
  ByteCount next_ = 0;
  TimePoint sent_at_ = kNever;
  bool repeated_ = false;
  TimePoint retransmit_at_ = kNever;
  Duration timeout_ = kTimeoutInitial;
  std::optional<Duration> round_trip_;

  std::vector<std::byte> incoming_;
  IntervalSet received_;
  ByteCount taken_ = 0;
  bool ack_due_ = false;
};

}  // namespace tusk::transport
