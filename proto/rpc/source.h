// The part of an address that one client holds: all of IPv4, the first 64 bits of IPv6. Limits on clients
// that have shown no key yet count by it, since whoever has one address of an IPv6 network has all of them.
//
// Pure.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>

#include "proto/io/address.h"

namespace tusk::rpc {

struct Source {
  static constexpr std::size_t kIpv6PrefixBytes = 8;

  Source() = default;
  explicit Source(const io::Address& address) : ip(address.ip()) {
    if (!address.is_v4()) std::fill(ip.begin() + kIpv6PrefixBytes, ip.end(), std::uint8_t{0});
  }

  io::Address::Ip ip{};

  friend auto operator<=>(const Source&, const Source&) = default;
};

// How a client shows that it receives at its address, by the token that its first packet carries. What is
// shared among them is shared by this first: one kind cannot use up what the others have.
enum class Proof : std::uint8_t {
  kNone = 0,      // no token, or none of ours
  kRetry = 1,     // it has just answered a retry
  kEarlier = 2,   // a connection from this address finished its handshake within a day
  kAdmitted = 3,  // and was let into an export
};
constexpr std::size_t kProofs = 4;

}  // namespace tusk::rpc
