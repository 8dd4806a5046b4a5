#include "proto/transport/incoming_message.h"

#include <cstring>

namespace tusk::transport {
namespace {

void place_bytes(std::span<const std::byte> data, ByteCount offset, std::span<std::byte> target) {
  std::memcpy(target.data() + offset, data.data(), data.size());
}

}  // namespace

Result<void> IncomingMessage::handle_header(const wire::MessageHeaderFrame& frame) {
  if (!knows_sizes()) {
    if (place_ && frame.body_size > place_->size())
      return fail(ErrorCode::kMalformed, "a body larger than its place");
    if (!body_received_.empty() && body_received_.back().end > frame.body_size)
      return fail(ErrorCode::kMalformed, "body bytes past the body's end");
    header_size_ = frame.header_size;
    body_size_ = frame.body_size;
    reply_capacity_ = frame.reply_capacity;
    priority_ = frame.priority;
    header_ = allocate_bytes(header_size_);
    if (!place_ && body_size_ > 0) place_ = allocate_bytes(body_size_);
  } else if (frame.header_size != header_size_ || frame.body_size != body_size_) {
    return fail(ErrorCode::kMalformed, "two sizes for one message");
  }
  const ByteCount end = frame.offset + frame.data.size();
  if (!header_received_.covers(frame.offset, end)) {
    place_bytes(frame.data, frame.offset, header_.bytes);
    header_received_.add(frame.offset, end);
  }
  return {};
}

Result<void> IncomingMessage::handle_body(const wire::BodyFrame& frame) {
  const ByteCount end = frame.offset + frame.data.size();
  // Memory that is not touched costs nothing: the largest body is reserved, then filled as it comes.
  if (!place_) place_ = allocate_bytes(wire::kMessageBodyMax);
  if (end > place_->size() || (knows_sizes() && end > body_size_))
    return fail(ErrorCode::kMalformed, "body bytes past the body's end");
  if (body_received_.covers(frame.offset, end)) return {};
  // Bytes that came before are the same; writing them again would race with nobody, so no gaps are sought.
  place_bytes(frame.data, frame.offset, place_->bytes);
  body_received_.add(frame.offset, end);
  return {};
}

}  // namespace tusk::transport
