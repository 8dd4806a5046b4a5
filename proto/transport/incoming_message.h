// One message on its way in: rebuilt from pieces that arrive late, twice or out of order.
//
// The body of a reply goes straight to where the requester wanted it; that of a request to fresh memory.
#pragma once

#include <memory>
#include <optional>

#include "proto/base/interval_set.h"
#include "proto/base/result.h"
#include "proto/base/shared_bytes.h"
#include "proto/transport/incoming_parity.h"
#include "proto/wire/frame.h"

namespace tusk::transport {

class IncomingMessage {
 public:
  // Runs of bytes between which others are still missing: every second piece of a message in the smallest
  // datagrams makes half as many. A peer that leaves more holes does so to make every further piece
  // expensive, and to have us remember them.
  [[nodiscard]] static constexpr std::size_t runs_max(ByteCount end) {
    return 16 + static_cast<std::size_t>(end / 512);
  }

  // `place`: where the body goes, at most that many bytes; nullopt: fresh memory of the size the header
  // names, or, while the header is missing, at most twice as much as what came demands. `allocate` must
  // outlive the message; nullptr: allocate_bytes.
  explicit IncomingMessage(std::optional<MutableSharedBytes> place, const Allocate* allocate = nullptr)
      : fixed_place_(place.has_value()), allocate_(allocate) {
    if (place) place_ = std::move(*place);
  }

  // Repeats are harmless. kMalformed: pieces that contradict each other, overrun the place or are more
  // scattered than any loss makes them; they were authenticated, so the peer itself is broken.
  [[nodiscard]] Result<void> handle_header(const wire::MessageHeaderFrame& frame);
  [[nodiscard]] Result<void> handle_body(const wire::BodyFrame& frame);
  // Parity is kept as long as it may be of use, and `budget` allows; it must outlive the message.
  [[nodiscard]] Result<void> handle_parity(const wire::ParityFrame& frame, ParityBudget& budget);

  [[nodiscard]] bool knows_sizes() const { return header_size_ > 0; }
  [[nodiscard]] bool complete() const {
    return knows_sizes() && header_received_.covers(0, header_size_) && body_received_.covers(0, body_size_);
  }
  [[nodiscard]] ByteCount size() const { return header_size_ + body_size_; }
  [[nodiscard]] ByteCount body_size() const { return body_size_; }
  // Bytes of the body that are there; what parity restored is.
  [[nodiscard]] ByteCount body_arrived() const { return body_arrived_; }
  // One past the last body byte that came.
  [[nodiscard]] ByteCount body_received_end() const {
    return body_received_.empty() ? 0 : body_received_.back().end;
  }
  [[nodiscard]] wire::Priority priority() const { return priority_; }
  [[nodiscard]] ByteCount reply_capacity() const { return reply_capacity_; }

  // Of a complete message.
  [[nodiscard]] SharedBytes header() const { return header_.first(header_size_); }
  [[nodiscard]] SharedBytes body() const { return place_.first(body_size_); }

 private:
  [[nodiscard]] MutableSharedBytes allocate(ByteCount size) const {
    return allocate_ && *allocate_ ? (*allocate_)(size) : allocate_bytes(size);
  }
  void make_room(ByteCount size);
  void restore();

  bool fixed_place_;
  const Allocate* allocate_;
  MutableSharedBytes place_;
  MutableSharedBytes header_;
  ByteCount header_size_ = 0;
  ByteCount body_size_ = 0;
  ByteCount reply_capacity_ = 0;
  wire::Priority priority_ = wire::Priority::kInteractive;
  IntervalSet header_received_;
  IntervalSet body_received_;
  ByteCount body_arrived_ = 0;              // the sum of it
  std::unique_ptr<IncomingParity> parity_;  // nullptr: none
};

}  // namespace tusk::transport
