#include "proto/transport/handshake_stream.h"

#include <algorithm>
#include <cstring>

namespace tusk::transport {

bool HandshakeStream::write_frames(TimePoint now, ByteWriter& writer) {
  const std::size_t before = writer.written();
  if (ack_due_ && writer.room() >= wire::kSmallFrameMax) {
    write_frame(wire::CryptoAckFrame{in_order()}, writer);
    ack_due_ = false;
  }
  if (next_ < outgoing_.size() && writer.room() > wire::kCryptoFrameOverhead) {
    const std::size_t length =
        std::min<std::size_t>(outgoing_.size() - next_, writer.room() - wire::kCryptoFrameOverhead);
    write_frame(wire::CryptoFrame{next_, std::span(outgoing_).subspan(next_, length)}, writer);
    next_ += length;
    if (sent_at_ == kNever) sent_at_ = now;
    retransmit_at_ = now + timeout_;
  }
  return writer.written() > before;
}

void HandshakeStream::handle_timeout(TimePoint now) {
  if (now < retransmit_at_) return;
  retransmit_at_ = kNever;
  if (all_acked()) return;
  next_ = acked_;
  repeated_ = true;
  timeout_ = std::min(timeout_ * 2, kTimeoutMax);
}

Result<void> HandshakeStream::handle_frame(TimePoint, const wire::CryptoFrame& frame) {
  const ByteCount end = frame.offset + frame.data.size();
  if (end > kBytesMax) return fail(ErrorCode::kMalformed, "a handshake without end");
  // Anybody can send these: what is in order always counts, but not pieces here and there without end.
  if (received_.intervals().size() >= kRunsMax && frame.offset > in_order())
    return fail(ErrorCode::kMalformed, "a handshake in too many pieces");
  ack_due_ = true;
  if (end > incoming_.size()) incoming_.resize(end);
  std::memcpy(incoming_.data() + frame.offset, frame.data.data(), frame.data.size());
  received_.add(frame.offset, end);
  return {};
}

Result<void> HandshakeStream::handle_frame(TimePoint now, const wire::CryptoAckFrame& frame) {
  if (frame.received > outgoing_.size()) return fail(ErrorCode::kMalformed, "an acknowledgement of nothing");
  if (frame.received <= acked_) return {};
  acked_ = frame.received;
  next_ = std::max(next_, acked_);
  if (all_acked()) {
    retransmit_at_ = kNever;
    if (!repeated_ && sent_at_ != kNever) round_trip_ = now - sent_at_;
    sent_at_ = kNever;
    repeated_ = false;
  }
  return {};
}

std::vector<std::byte> HandshakeStream::take_received() {
  if (in_order() <= taken_) return {};
  const auto first = incoming_.begin() + static_cast<std::ptrdiff_t>(taken_);
  taken_ = in_order();
  return {first, incoming_.begin() + static_cast<std::ptrdiff_t>(taken_)};
}

}  // namespace tusk::transport
