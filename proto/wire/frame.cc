#include "proto/wire/frame.h"

#include <algorithm>

namespace tusk::wire {
namespace {

// Lengths inside a packet fit in two bytes, and are always written so: the overhead is then known
// before the data is.
constexpr std::size_t kLengthSize = 2;

void write_type(FrameType type, ByteWriter& writer) { writer.u8(static_cast<std::uint8_t>(type)); }

void write_sized(std::span<const std::byte> data, ByteWriter& writer) {
  writer.u16(static_cast<std::uint16_t>(data.size()));
  writer.bytes(data);
}

std::span<const std::byte> read_sized(ByteReader& reader) { return reader.take(reader.u16()); }

// One frame, or nullopt when the reader ran over.
template <class T>
std::optional<Frame> checked(const ByteReader& reader, T frame) {
  if (!reader.ok()) return std::nullopt;
  return Frame(std::move(frame));
}

std::optional<Frame> read_padding(ByteReader& reader) {
  // The type byte is the first; following zeros belong to the same run. Only whole packets are padded,
  // at their end, so taking everything is right; anything but zeros there is malformed.
  PaddingFrame frame;
  for (std::byte b : reader.take_rest()) {
    if (b != std::byte{0}) return std::nullopt;
    ++frame.size;
  }
  return frame;
}

std::optional<Frame> read_ack(ByteReader& reader) {
  AckFrame frame;
  const std::uint64_t largest = reader.varint();
  frame.delay_us = reader.varint();
  frame.received_at_us = reader.varint();
  frame.congestion_marks = reader.varint();
  const std::uint64_t count = reader.varint();
  if (!reader.ok() || count == 0 || count > kAckRangesMax) return std::nullopt;
  frame.ranges.reserve(count);
  std::uint64_t last = largest;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (i > 0) {
      const std::uint64_t gap = reader.varint() + 1;  // packets missing between two ranges
      if (gap + 1 > last) return std::nullopt;
      last -= gap + 1;
    }
    const std::uint64_t more = reader.varint();  // packets of the range beside `last`
    if (!reader.ok() || more > last) return std::nullopt;
    frame.ranges.push_back({PacketNumber(last - more), PacketNumber(last)});
    last -= more;
  }
  return frame;
}

std::optional<Frame> read_settings(ByteReader& reader) {
  SettingsFrame frame;
  const std::size_t count = reader.u8();
  if (count > kSettingsMax) return std::nullopt;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t key = reader.varint();
    frame.settings.push_back({key, reader.varint()});
  }
  return checked(reader, std::move(frame));
}

std::optional<Frame> read_message_header(ByteReader& reader) {
  MessageHeaderFrame frame;
  frame.exchange = ExchangeId(reader.varint());
  const std::uint8_t priority = reader.u8();
  frame.header_size = reader.varint();
  frame.body_size = reader.varint();
  frame.reply_capacity = reader.varint();
  frame.offset = reader.varint();
  frame.data = read_sized(reader);
  if (!reader.ok() || priority >= kPriorityCount) return std::nullopt;
  frame.priority = static_cast<Priority>(priority);
  if (frame.header_size == 0 || frame.header_size > kMessageHeaderMax || frame.body_size > kMessageBodyMax ||
      frame.reply_capacity > kMessageBodyMax || frame.data.empty() ||
      frame.offset + frame.data.size() > frame.header_size)
    return std::nullopt;
  return frame;
}

std::optional<Frame> read_body(ByteReader& reader, bool sized) {
  BodyFrame frame;
  frame.exchange = ExchangeId(reader.varint());
  frame.offset = reader.varint();
  frame.data = sized ? read_sized(reader) : reader.take_rest();
  if (!reader.ok() || frame.data.empty() || frame.offset + frame.data.size() > kMessageBodyMax)
    return std::nullopt;
  return frame;
}

std::optional<Frame> read_parity(ByteReader& reader) {
  ParityFrame frame;
  frame.exchange = ExchangeId(reader.varint());
  frame.offset = reader.varint();
  frame.length = reader.varint();
  frame.index = reader.u8();
  frame.data = read_sized(reader);
  if (!reader.ok() || frame.data.empty() || frame.length == 0 || frame.length > kMessageBodyMax ||
      frame.offset > kMessageBodyMax - frame.length || frame.index >= erasure::kParityMax ||
      erasure::rows_of(frame.length, frame.data.size()) > erasure::kRowsMax)
    return std::nullopt;
  return frame;
}

std::optional<Frame> read_flow_news(ByteReader& reader) {
  FlowNewsFrame frame;
  frame.flows = reader.varint();
  frame.rate = reader.varint();
  frame.delivered = reader.varint();
  frame.capacity = reader.varint();
  frame.base_us = reader.varint();
  frame.queue_us = reader.varint();
  frame.emptied_us = reader.varint();
  if (frame.flows == 0 || frame.flows > kFlowsMax || std::max(frame.rate, frame.capacity) > kRateMax ||
      std::max({frame.base_us, frame.queue_us, frame.emptied_us}) > kFlowTimeMax)
    return std::nullopt;
  return checked(reader, frame);
}

std::optional<Frame> read_other_flows(ByteReader& reader) {
  OtherFlowsFrame frame;
  frame.around = reader.varint();
  const std::uint8_t answers = reader.u8();
  frame.answers = answers == 1;
  frame.flows = reader.varint();
  frame.parts = reader.varint();
  frame.rate = reader.varint();
  frame.rate_of_all = reader.varint();
  frame.capacity = reader.varint();
  frame.emptied_us = reader.varint();
  frame.ahead = reader.varint();
  frame.behind = reader.varint();
  if (answers > 1 || frame.around == 0 || std::max(frame.around, frame.flows) > kOtherFlowsMax ||
      frame.parts > frame.flows * kPartUnits ||
      std::max({frame.rate, frame.rate_of_all, frame.capacity}) > kRateMax ||
      frame.emptied_us > kFlowTimeMax || std::min(frame.ahead, frame.behind) > 0)
    return std::nullopt;
  return checked(reader, frame);
}

std::optional<Frame> read_close(ByteReader& reader) {
  CloseFrame frame;
  frame.code = reader.u16();
  frame.reason = read_sized(reader);
  if (frame.reason.size() > kCloseReasonMax) return std::nullopt;
  return checked(reader, frame);
}

std::optional<Frame> read_address_token(ByteReader& reader) {
  AddressTokenFrame frame{read_sized(reader)};
  if (frame.token.empty() || frame.token.size() > kTokenMax) return std::nullopt;
  return checked(reader, frame);
}

std::optional<Frame> read_crypto(ByteReader& reader) {
  CryptoFrame frame;
  frame.offset = reader.varint();
  frame.data = read_sized(reader);
  if (frame.data.empty()) return std::nullopt;
  return checked(reader, frame);
}

}  // namespace

std::optional<Frame> read_frame(ByteReader& reader) {
  switch (static_cast<FrameType>(reader.u8())) {
    case FrameType::kPadding:
      return read_padding(reader);
    case FrameType::kPing:
      return PingFrame{};
    case FrameType::kAck:
      return read_ack(reader);
    case FrameType::kSettings:
      return read_settings(reader);
    case FrameType::kCredit: {
      CreditFrame frame;
      frame.request_bytes = reader.varint();
      frame.exchanges = reader.varint();
      return checked(reader, frame);
    }
    case FrameType::kFloor:
      return checked(reader, FloorFrame{PacketNumber(reader.varint())});
    case FrameType::kMessageHeader:
      return read_message_header(reader);
    case FrameType::kCancel: {
      CancelFrame frame;
      frame.exchange = ExchangeId(reader.varint());
      frame.request_bytes = reader.varint();
      return checked(reader, frame);
    }
    case FrameType::kPathChallenge:
      return checked(reader, PathChallengeFrame{reader.u64()});
    case FrameType::kPathResponse:
      return checked(reader, PathResponseFrame{reader.u64()});
    case FrameType::kClose:
      return read_close(reader);
    case FrameType::kAddressToken:
      return read_address_token(reader);
    case FrameType::kResetToken:
      return checked(reader, ResetTokenFrame{reader.take(kResetTokenSize)});
    case FrameType::kBody:
      return read_body(reader, false);
    case FrameType::kSizedBody:
      return read_body(reader, true);
    case FrameType::kParity:
      return read_parity(reader);
    case FrameType::kFlowNews:
      return read_flow_news(reader);
    case FrameType::kOtherFlows:
      return read_other_flows(reader);
    case FrameType::kCrypto:
      return read_crypto(reader);
    case FrameType::kCryptoAck:
      return checked(reader, CryptoAckFrame{reader.varint()});
  }
  return std::nullopt;
}

void write_frame(const PaddingFrame& frame, ByteWriter& writer) { writer.zeros(frame.size); }

void write_frame(const PingFrame&, ByteWriter& writer) { write_type(FrameType::kPing, writer); }

void write_frame(const AckFrame& frame, ByteWriter& writer) {
  TUSK_CHECK(!frame.ranges.empty() && frame.ranges.size() <= kAckRangesMax);
  write_type(FrameType::kAck, writer);
  writer.varint(frame.ranges.front().last.value());
  writer.varint(frame.delay_us);
  writer.varint(frame.received_at_us);
  writer.varint(frame.congestion_marks);
  writer.varint(frame.ranges.size());
  const AckRange* newer = nullptr;
  for (const AckRange& range : frame.ranges) {
    if (newer) writer.varint(newer->first - range.last - 2);
    writer.varint(range.last - range.first);
    newer = &range;
  }
}

std::size_t ack_frame_size(const AckFrame& frame) {
  std::size_t size = 1 + varint_size(frame.ranges.front().last.value()) + varint_size(frame.delay_us) +
                     varint_size(frame.received_at_us) + varint_size(frame.congestion_marks) +
                     varint_size(frame.ranges.size());
  const AckRange* newer = nullptr;
  for (const AckRange& range : frame.ranges) {
    if (newer) size += varint_size(newer->first - range.last - 2);
    size += varint_size(range.last - range.first);
    newer = &range;
  }
  return size;
}

void write_frame(const SettingsFrame& frame, ByteWriter& writer) {
  TUSK_CHECK(frame.settings.size() <= kSettingsMax);
  write_type(FrameType::kSettings, writer);
  writer.u8(static_cast<std::uint8_t>(frame.settings.size()));
  for (const Setting& setting : frame.settings) {
    writer.varint(setting.key);
    writer.varint(setting.value);
  }
}

void write_frame(const CreditFrame& frame, ByteWriter& writer) {
  write_type(FrameType::kCredit, writer);
  writer.varint(frame.request_bytes);
  writer.varint(frame.exchanges);
}

void write_frame(const FloorFrame& frame, ByteWriter& writer) {
  write_type(FrameType::kFloor, writer);
  writer.varint(frame.floor.value());
}

void write_frame(const MessageHeaderFrame& frame, ByteWriter& writer) {
  write_type(FrameType::kMessageHeader, writer);
  writer.varint(frame.exchange.value());
  writer.u8(static_cast<std::uint8_t>(frame.priority));
  writer.varint(frame.header_size);
  writer.varint(frame.body_size);
  writer.varint(frame.reply_capacity);
  writer.varint(frame.offset);
  write_sized(frame.data, writer);
}

std::size_t message_header_frame_overhead(const MessageHeaderFrame& frame) {
  return 1 + varint_size(frame.exchange.value()) + 1 + varint_size(frame.header_size) +
         varint_size(frame.body_size) + varint_size(frame.reply_capacity) + varint_size(frame.offset) +
         kLengthSize;
}

void write_frame(const BodyFrame& frame, bool last_in_packet, ByteWriter& writer) {
  write_type(last_in_packet ? FrameType::kBody : FrameType::kSizedBody, writer);
  writer.varint(frame.exchange.value());
  writer.varint(frame.offset);
  if (last_in_packet) {
    writer.bytes(frame.data);
  } else {
    write_sized(frame.data, writer);
  }
}

std::size_t body_frame_overhead(ExchangeId exchange, ByteCount offset, bool last_in_packet) {
  return 1 + varint_size(exchange.value()) + varint_size(offset) + (last_in_packet ? 0 : kLengthSize);
}

void write_frame(const ParityFrame& frame, ByteWriter& writer) {
  write_type(FrameType::kParity, writer);
  writer.varint(frame.exchange.value());
  writer.varint(frame.offset);
  writer.varint(frame.length);
  writer.u8(frame.index);
  write_sized(frame.data, writer);
}

std::size_t parity_frame_overhead(const ParityFrame& frame) {
  return 1 + varint_size(frame.exchange.value()) + varint_size(frame.offset) + varint_size(frame.length) + 1 +
         kLengthSize;
}

void write_frame(const FlowNewsFrame& frame, ByteWriter& writer) {
  write_type(FrameType::kFlowNews, writer);
  writer.varint(frame.flows);
  writer.varint(frame.rate);
  writer.varint(frame.delivered);
  writer.varint(frame.capacity);
  writer.varint(frame.base_us);
  writer.varint(frame.queue_us);
  writer.varint(frame.emptied_us);
}

void write_frame(const OtherFlowsFrame& frame, ByteWriter& writer) {
  write_type(FrameType::kOtherFlows, writer);
  writer.varint(frame.around);
  writer.u8(frame.answers ? 1 : 0);
  writer.varint(frame.flows);
  writer.varint(frame.parts);
  writer.varint(frame.rate);
  writer.varint(frame.rate_of_all);
  writer.varint(frame.capacity);
  writer.varint(frame.emptied_us);
  writer.varint(frame.ahead);
  writer.varint(frame.behind);
}

void write_frame(const CancelFrame& frame, ByteWriter& writer) {
  write_type(FrameType::kCancel, writer);
  writer.varint(frame.exchange.value());
  writer.varint(frame.request_bytes);
}

void write_frame(const PathChallengeFrame& frame, ByteWriter& writer) {
  write_type(FrameType::kPathChallenge, writer);
  writer.u64(frame.data);
}

void write_frame(const PathResponseFrame& frame, ByteWriter& writer) {
  write_type(FrameType::kPathResponse, writer);
  writer.u64(frame.data);
}

void write_frame(const CloseFrame& frame, ByteWriter& writer) {
  write_type(FrameType::kClose, writer);
  writer.u16(frame.code);
  write_sized(frame.reason.first(std::min(frame.reason.size(), kCloseReasonMax)), writer);
}

void write_frame(const AddressTokenFrame& frame, ByteWriter& writer) {
  write_type(FrameType::kAddressToken, writer);
  write_sized(frame.token, writer);
}

void write_frame(const ResetTokenFrame& frame, ByteWriter& writer) {
  TUSK_CHECK(frame.token.size() == kResetTokenSize);
  write_type(FrameType::kResetToken, writer);
  writer.bytes(frame.token);
}

void write_frame(const CryptoFrame& frame, ByteWriter& writer) {
  write_type(FrameType::kCrypto, writer);
  writer.varint(frame.offset);
  write_sized(frame.data, writer);
}

void write_frame(const CryptoAckFrame& frame, ByteWriter& writer) {
  write_type(FrameType::kCryptoAck, writer);
  writer.varint(frame.received);
}

}  // namespace tusk::wire
