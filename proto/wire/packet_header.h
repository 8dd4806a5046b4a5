// Packet headers: the part of a datagram that is not encrypted (docs/PROTOCOL.md, "Packets").
//
//   short   0 1 0 0 0 K 0 0 | connection id 8 | packet number 4 | sealed frames | tag 16
//   long    1 1 T T 0 0 0 0 | version 4 | to 8 | from 8 | token length 1, token | packet number 4 | ...
//
// The whole header is the AEAD's associated data. K is the key phase. T: 0 handshake, 1 retry,
// 2 version negotiation, 3 reset. Only handshake packets carry a packet number and are sealed; the others
// are believed only by a client in the state that expects them (PROTOCOL.md says why that is safe).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "proto/wire/types.h"

namespace tusk::wire {

enum class LongType : std::uint8_t { kHandshake = 0, kRetry = 1, kVersionNegotiation = 2, kReset = 3 };

struct ShortHeader {
  ConnectionIdBytes to;
  bool key_phase = false;
  std::uint32_t packet_number_low = 0;  // the low 32 bits
};

struct LongHeader {
  LongType type = LongType::kHandshake;
  std::uint32_t version = kVersion;
  ConnectionIdBytes to;
  ConnectionIdBytes from;
  std::span<const std::byte> token;  // handshake: presented by the client; retry, reset: given by the server
  std::uint32_t packet_number_low = 0;  // handshake only
};

// A header and where it ends in the datagram: what follows is the sealed payload.
struct ParsedShort {
  ShortHeader header;
  std::size_t size = 0;
};
struct ParsedLong {
  LongHeader header;  // its token points into the datagram
  std::size_t size = 0;
};

// What kind of packet a datagram starts with; nullopt: not ours.
[[nodiscard]] std::optional<bool> is_long_packet(std::span<const std::byte> datagram);

[[nodiscard]] std::optional<ParsedShort> parse_short_header(std::span<const std::byte> datagram);
[[nodiscard]] std::optional<ParsedLong> parse_long_header(std::span<const std::byte> datagram);

// Write to the front of `out` (large enough: our bug otherwise) and return the header's size.
std::size_t write_short_header(const ShortHeader& header, std::span<std::byte> out);
std::size_t write_long_header(const LongHeader& header, std::span<std::byte> out);
[[nodiscard]] std::size_t long_header_size(std::size_t token_size);

// The full packet number nearest to `expected` that ends in `low` (RFC 9000, Appendix A.3).
[[nodiscard]] PacketNumber expand_packet_number(std::uint32_t low, PacketNumber expected);

}  // namespace tusk::wire
