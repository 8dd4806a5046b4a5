// Stateless proof that a client receives packets at its address (RFC 9000 §8.1): the server gives a
// token to the address and keeps nothing; who brings it back was reachable there.
//
// Authenticated, not encrypted: what is inside (kind, time) says nothing of the client. The address is not
// inside, only bound, and so is the connection that a retry token is for. Replay within the lifetime is
// possible and harmless: a token lets nobody in, it only spares a round trip.
//
// Layout, integers big-endian:
//   u8 kind
//   u64 time of issue, Unix seconds
//   32 bytes HMAC-SHA-256 over the above, a u8 length of the address, the address, a u8 length of the
//   connection id (0: none), and the connection id
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "proto/base/result.h"
#include "proto/base/strong_int.h"
#include "proto/crypto/primitives.h"

namespace tusk::crypto {

using UnixSeconds = StrongInt<struct UnixSecondsTag>;

constexpr std::size_t kTokenConnectionIdBytesMax = 20;  // as long as QUIC's (RFC 9000 §17.2)
constexpr std::size_t kTokenAddressBytesMax = 32;       // an IPv6 address and a port are 18
constexpr std::size_t kAddressTokenBytes = 1 + 8 + kSha256Bytes;
constexpr std::uint64_t kRetryTokenLifetimeSeconds = 15;
constexpr std::uint64_t kFutureTokenLifetimeSeconds = 24 * 60 * 60;
// The wall clock may be set back between minting and checking by this much.
constexpr std::uint64_t kTokenClockSlackSeconds = 5;

enum class AddressTokenKind : std::uint8_t {
  kRetry = 0,     // answers a first packet; bound to address, port, and the id that the client began with
  kFuture = 1,    // given during a connection for the next one; bound to the address only
  kAdmitted = 2,  // as kFuture, once the client was let into an export
};

// Const, and may be called by several threads at once.
class AddressTokens {
 public:
  // The secret of Identity::derive_secret, or a random one if tokens need not outlive the process.
  explicit AddressTokens(const Secret& secret) : secret_(secret) {}

  // kAddressTokenBytes. The caller chooses the bytes of `client_address` and `connection_id` to bind (see
  // AddressTokenKind) and gives the same ones to check. Both spans within their limits (checked).
  [[nodiscard]] std::vector<std::byte> mint(AddressTokenKind kind, std::span<const std::byte> client_address,
                                            std::span<const std::byte> connection_id, UnixSeconds now) const;

  // `client_address` and `connection_id` as bound for a token of the kind that token_kind() reads.
  // kMalformed: no token of ours; kAuthenticationFailed: changed, for another address or connection, or by
  // another secret; kTimedOut: ours, and too old. A server treats all of them as no token.
  [[nodiscard]] Result<void> check(std::span<const std::byte> token,
                                   std::span<const std::byte> client_address,
                                   std::span<const std::byte> connection_id, UnixSeconds now) const;

 private:
  Secret secret_;
};

// The kind that a token claims to be of, unchecked: to choose what to check it with.
// Nothing if it cannot be a token.
[[nodiscard]] std::optional<AddressTokenKind> token_kind(std::span<const std::byte> token);

}  // namespace tusk::crypto
