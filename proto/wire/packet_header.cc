#include "proto/wire/packet_header.h"

#include <algorithm>

#include "proto/base/bytes.h"

namespace tusk::wire {
namespace {

constexpr std::uint8_t kLongBit = 0x80;
constexpr std::uint8_t kOursBit = 0x40;
constexpr std::uint8_t kKeyPhaseBit = 0x04;
constexpr std::uint8_t kShortReserved = 0x3b;
constexpr std::uint8_t kLongReserved = 0x0f;
constexpr int kLongTypeShift = 4;

ConnectionIdBytes read_id(ByteReader& reader) {
  ConnectionIdBytes id;
  const auto bytes = reader.take(ConnectionIdBytes::kSize);
  std::copy(bytes.begin(), bytes.end(), id.bytes.begin());
  return id;
}

bool has_packet_number(LongType type) { return type == LongType::kHandshake; }

}  // namespace

std::optional<bool> is_long_packet(std::span<const std::byte> datagram) {
  if (datagram.empty()) return std::nullopt;
  const auto first = std::to_integer<std::uint8_t>(datagram[0]);
  if (!(first & kOursBit)) return std::nullopt;
  return (first & kLongBit) != 0;
}

std::optional<ParsedShort> parse_short_header(std::span<const std::byte> datagram) {
  ByteReader reader(datagram);
  const std::uint8_t first = reader.u8();
  if ((first & (kLongBit | kOursBit)) != kOursBit || (first & kShortReserved)) return std::nullopt;
  ParsedShort parsed;
  parsed.header.key_phase = first & kKeyPhaseBit;
  parsed.header.to = read_id(reader);
  parsed.header.packet_number_low = reader.u32();
  if (!reader.ok()) return std::nullopt;
  parsed.size = datagram.size() - reader.remaining();
  return parsed;
}

std::optional<ParsedLong> parse_long_header(std::span<const std::byte> datagram) {
  ByteReader reader(datagram);
  const std::uint8_t first = reader.u8();
  if ((first & (kLongBit | kOursBit)) != (kLongBit | kOursBit) || (first & kLongReserved))
    return std::nullopt;
  const int type = (first >> kLongTypeShift) & 3;
  ParsedLong parsed;
  parsed.header.type = static_cast<LongType>(type);
  parsed.header.version = reader.u32();
  parsed.header.to = read_id(reader);
  parsed.header.from = read_id(reader);
  const std::size_t token_size = reader.u8();
  if (token_size > kTokenMax) return std::nullopt;
  parsed.header.token = reader.take(token_size);
  if (has_packet_number(parsed.header.type)) parsed.header.packet_number_low = reader.u32();
  if (!reader.ok()) return std::nullopt;
  parsed.size = datagram.size() - reader.remaining();
  return parsed;
}

std::size_t write_short_header(const ShortHeader& header, std::span<std::byte> out) {
  ByteWriter writer(out);
  writer.u8(kOursBit | (header.key_phase ? kKeyPhaseBit : 0));
  writer.bytes(header.to.bytes);
  writer.u32(header.packet_number_low);
  return writer.written();
}

std::size_t write_long_header(const LongHeader& header, std::span<std::byte> out) {
  TUSK_CHECK(header.token.size() <= kTokenMax);
  ByteWriter writer(out);
  writer.u8(static_cast<std::uint8_t>(kLongBit | kOursBit | static_cast<int>(header.type) << kLongTypeShift));
  writer.u32(header.version);
  writer.bytes(header.to.bytes);
  writer.bytes(header.from.bytes);
  writer.u8(static_cast<std::uint8_t>(header.token.size()));
  writer.bytes(header.token);
  if (has_packet_number(header.type)) writer.u32(header.packet_number_low);
  return writer.written();
}

std::size_t long_header_size(std::size_t token_size) {
  return 1 + 4 + 2 * ConnectionIdBytes::kSize + 1 + token_size + 4;
}

PacketNumber expand_packet_number(std::uint32_t low, PacketNumber expected) {
  constexpr std::uint64_t kWindow = 1ull << 32;
  constexpr std::uint64_t kHalf = kWindow / 2;
  const std::uint64_t candidate = (expected.value() & ~(kWindow - 1)) | low;
  if (candidate + kHalf <= expected.value()) return PacketNumber(candidate + kWindow);
  if (candidate > expected.value() + kHalf && candidate >= kWindow) return PacketNumber(candidate - kWindow);
  return PacketNumber(candidate);
}

}  // namespace tusk::wire
