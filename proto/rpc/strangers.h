// What a server does about a datagram that belongs to none of its connections, and what its answers look like
// (docs/PROTOCOL.md, "Handshake" and "Reset"; RFC 9000 §6, §8.1, §10.3). Not whether an address is proven or
// there is a place: that is for who has the connections. The simulated server goes by the same.
//
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/wire/packet_header.h"

namespace tusk::rpc {

struct Stranger {
  enum class Wants : std::uint8_t { kNothing, kReset, kAnotherVersion, kConnection };
  Wants wants = Wants::kNothing;
  wire::ConnectionIdBytes to;  // kReset: the id that nobody has
  wire::LongHeader header;     // of the other two; its token points into the datagram
};

[[nodiscard]] Stranger judge_stranger(std::span<const std::byte> datagram);

[[nodiscard]] wire::LongHeader another_version(const wire::LongHeader& asked);
// The tokens must outlive the headers.
[[nodiscard]] wire::LongHeader retry_with(const wire::LongHeader& asked, std::span<const std::byte> token);
[[nodiscard]] wire::LongHeader reset_of(const wire::ConnectionIdBytes& unknown,
                                        std::span<const std::byte> token);

}  // namespace tusk::rpc
