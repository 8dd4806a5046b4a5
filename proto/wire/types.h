// The names of things on the wire, and the sizes that both ends must agree on (docs/PROTOCOL.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#include "proto/base/strong_int.h"

namespace tusk::wire {

using PacketNumber = StrongInt<struct PacketNumberTag>;

// Even: opened by the client; odd: by the server. Each side counts its own up, from 0 and 1.
using ExchangeId = StrongInt<struct ExchangeIdTag>;

struct ConnectionIdBytes {
  static constexpr std::size_t kSize = 8;
  std::array<std::byte, kSize> bytes{};
  bool operator==(const ConnectionIdBytes&) const = default;
};

enum class Priority : std::uint8_t { kInteractive = 0, kBulk = 1, kBackground = 2 };
constexpr std::size_t kPriorityCount = 3;

constexpr std::uint32_t kVersion = 0x54534b01;  // "TSK" 1

// Sealed packets end with the AEAD's tag.
constexpr std::size_t kTagSize = 16;
// First byte, connection id, 32 bits of the packet number.
constexpr std::size_t kShortHeaderSize = 1 + ConnectionIdBytes::kSize + 4;

// Every path must carry this UDP payload: IPv6's minimum MTU of 1280 less its headers.
constexpr std::size_t kDatagramSizeMin = 1232;
// No datagram is larger: a 9000-byte jumbo frame less IPv4 and UDP headers.
constexpr std::size_t kDatagramSizeMax = 8972;

// A message's header (protobuf) and body (bulk bytes) are bounded; more is a broken peer.
constexpr ByteCount kMessageHeaderMax = 1 << 20;
constexpr ByteCount kMessageBodyMax = 4 << 20;

constexpr std::size_t kTokenMax = 128;
constexpr std::size_t kResetTokenSize = 16;
constexpr std::size_t kCloseReasonMax = 200;
// Acknowledgement ranges in one ACK frame.
constexpr std::size_t kAckRangesMax = 64;

}  // namespace tusk::wire

template <>
struct std::hash<tusk::wire::ConnectionIdBytes> {
  std::size_t operator()(const tusk::wire::ConnectionIdBytes& id) const {
    std::uint64_t value;  // chosen at random: its bits are a hash already
    static_assert(sizeof value == tusk::wire::ConnectionIdBytes::kSize);
    std::memcpy(&value, id.bytes.data(), sizeof value);
    return value;
  }
};
