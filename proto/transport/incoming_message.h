// One message on its way in: rebuilt from pieces that arrive late, twice or out of order.
//
// The body of a reply goes straight to where the requester wanted it; that of a request to fresh memory.
#pragma once

#include "proto/base/interval_set.h"
#include "proto/base/result.h"
#include "proto/base/shared_bytes.h"
#include "proto/wire/frame.h"

namespace tusk::transport {

class IncomingMessage {
 public:
  // `place`: where the body goes, at most that many bytes; nullopt: memory of the size the header names,
  // or, while the header is missing, of the largest size.
  explicit IncomingMessage(std::optional<MutableSharedBytes> place) : place_(std::move(place)) {}

  // Repeats are harmless. kMalformed: pieces that contradict each other or overrun the place; they
  // were authenticated, so the peer itself is broken.
  [[nodiscard]] Result<void> handle_header(const wire::MessageHeaderFrame& frame);
  [[nodiscard]] Result<void> handle_body(const wire::BodyFrame& frame);

  [[nodiscard]] bool knows_sizes() const { return header_size_ > 0; }
  [[nodiscard]] bool complete() const {
    return knows_sizes() && header_received_.covers(0, header_size_) && body_received_.covers(0, body_size_);
  }
  [[nodiscard]] ByteCount size() const { return header_size_ + body_size_; }
  [[nodiscard]] ByteCount body_size() const { return body_size_; }
  // One past the last body byte that came.
  [[nodiscard]] ByteCount body_received_end() const {
    return body_received_.empty() ? 0 : body_received_.back().end;
  }
  [[nodiscard]] wire::Priority priority() const { return priority_; }
  [[nodiscard]] ByteCount reply_capacity() const { return reply_capacity_; }

  // Of a complete message.
  [[nodiscard]] SharedBytes header() const { return header_.first(header_size_); }
  [[nodiscard]] SharedBytes body() const { return place_ ? place_->first(body_size_) : SharedBytes{}; }

 private:
  std::optional<MutableSharedBytes> place_;
  MutableSharedBytes header_;
  ByteCount header_size_ = 0;
  ByteCount body_size_ = 0;
  ByteCount reply_capacity_ = 0;
  wire::Priority priority_ = wire::Priority::kInteractive;
  IntervalSet header_received_;
  IntervalSet body_received_;
};

}  // namespace tusk::transport
