#include "proto/transport/incoming_message.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tusk::transport {
namespace {

// Of a body whose size is not known yet; less is not worth an allocation.
constexpr ByteCount kRoomMin = 4096;

void place_bytes(std::span<const std::byte> data, ByteCount offset, std::span<std::byte> target) {
  std::memcpy(target.data() + offset, data.data(), data.size());
}

}  // namespace

Result<void> IncomingMessage::handle_header(const wire::MessageHeaderFrame& frame) {
  if (!knows_sizes()) {
    if (fixed_place_ && frame.body_size > place_.size())
      return fail(ErrorCode::kMalformed, "a body larger than its place");
    if (body_received_end() > frame.body_size || (parity_ && parity_->end() > frame.body_size))
      return fail(ErrorCode::kMalformed, "body bytes past the body's end");
    header_size_ = frame.header_size;
    body_size_ = frame.body_size;
    reply_capacity_ = frame.reply_capacity;
    priority_ = frame.priority;
    header_ = allocate(header_size_);
    make_room(body_size_);
    restore();
  } else if (frame.header_size != header_size_ || frame.body_size != body_size_ ||
             frame.reply_capacity != reply_capacity_ || frame.priority != priority_) {
    return fail(ErrorCode::kMalformed, "pieces of one message that differ in its sizes or priority");
  }
  const ByteCount end = frame.offset + frame.data.size();
  if (!header_received_.covers(frame.offset, end)) {
    place_bytes(frame.data, frame.offset, header_.bytes);
    header_received_.add(frame.offset, end);
    if (header_received_.intervals().size() > runs_max(header_received_.back().end))
      return fail(ErrorCode::kMalformed, "a message in too many pieces");
  }
  return {};
}

// What came before the header is copied; that is little, or the header was lost.
void IncomingMessage::make_room(ByteCount size) {
  if (size <= place_.size()) return;
  const MutableSharedBytes larger = allocate(size);
  if (!body_received_.empty()) std::memcpy(larger.bytes.data(), place_.bytes.data(), body_received_end());
  place_ = larger;
}

Result<void> IncomingMessage::handle_body(const wire::BodyFrame& frame) {
  const ByteCount end = frame.offset + frame.data.size();
  const ByteCount room_max = fixed_place_ ? place_.size() : wire::kMessageBodyMax;
  if (end > room_max || (knows_sizes() && end > body_size_))
    return fail(ErrorCode::kMalformed, "body bytes past the body's end");
  if (body_received_.covers(frame.offset, end)) return {};
  // Doubling, so that a body without a header is copied a few times, and a single byte takes little.
  if (!knows_sizes() && !fixed_place_) make_room(std::min(room_max, std::bit_ceil(std::max(end, kRoomMin))));
  // Bytes that came before are the same; writing them again would race with nobody, so no gaps are sought.
  place_bytes(frame.data, frame.offset, place_.bytes);
  body_arrived_ += body_received_.add(frame.offset, end);
  if (body_received_.intervals().size() > runs_max(body_received_end()))
    return fail(ErrorCode::kMalformed, "a message in too many pieces");
  restore();
  return {};
}

Result<void> IncomingMessage::handle_parity(const wire::ParityFrame& frame, ParityBudget& budget) {
  const ByteCount end = frame.offset + frame.length;
  if ((fixed_place_ && end > place_.size()) || (knows_sizes() && end > body_size_))
    return fail(ErrorCode::kMalformed, "parity of what is past the body's end");
  if (body_received_.covers(frame.offset, end)) return {};
  if (!parity_) parity_ = std::make_unique<IncomingParity>(budget);
  if (parity_->add(frame, [this](std::size_t size) { return allocate(size); })) restore();
  return {};
}

// Not before there is room for all of the body: what is missing before the header is not known.
void IncomingMessage::restore() {
  if (!parity_ || !knows_sizes()) return;
  parity_->restore(place_.bytes.first(body_size_), body_received_);
  body_arrived_ = body_received_.total();
  if (parity_->empty() || body_received_.covers(0, body_size_)) parity_.reset();
}

}  // namespace tusk::transport
