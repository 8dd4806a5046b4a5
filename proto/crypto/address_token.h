// Stateless proof that a client receives packets at its address (RFC 9000 §8.1): the server gives a
// token to the address and keeps nothing; who brings it back was reachable there.
//
// Authenticated, not encrypted: what is inside (kind, time, connection id) was on the wire in clear
// beside it. The address itself is not inside, only bound. Replay within the lifetime is possible and
// harmless: a token lets nobody in, it only spares a round trip.
//
// Layout, integers big-endian:
//   u8 flags (bit 0: kind, bit 1: parity of the secret's generation, the others 0)
//   u64 time of issue, Unix seconds
//   u8 length of the connection id, then its bytes
//   32 bytes HMAC-SHA-256 over the above, a u8 length of the address, and the address
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
constexpr std::size_t kAddressTokenBytesMax = 96;
constexpr std::uint64_t kRetryTokenLifetimeSeconds = 15;
constexpr std::uint64_t kFutureTokenLifetimeSeconds = 24 * 60 * 60;
// The wall clock may be set back between minting and checking by this much.
constexpr std::uint64_t kTokenClockSlackSeconds = 5;

enum class AddressTokenKind : std::uint8_t {
  kRetry = 0,   // answers a first packet; bound to address and port
  kFuture = 1,  // given during a connection for the next one; bound to the address only
};

struct CheckedAddressToken {
  AddressTokenKind kind = AddressTokenKind::kRetry;
  std::vector<std::byte> original_connection_id;
};

// mint and check are const and may be called by several threads at once; rotate may not beside them.
class AddressTokens {
 public:
  // The secret of Identity::derive_secret, or a random one if tokens need not outlive the process.
  explicit AddressTokens(const Secret& secret) : current_(secret) {}

  // From now on `secret` mints; tokens of the one before are still accepted, older ones are not. So
  // rotate no more often than kFutureTokenLifetimeSeconds.
  void rotate(const Secret& secret);

  // At most kAddressTokenBytesMax bytes. The caller chooses the bytes of `client_address` to bind
  // (see AddressTokenKind) and gives the same ones to check. Both spans within their limits (checked).
  [[nodiscard]] std::vector<std::byte> mint(AddressTokenKind kind, std::span<const std::byte> client_address,
                                            std::span<const std::byte> original_connection_id,
                                            UnixSeconds now) const;

  // `client_address` as bound for a token of the kind that token_kind() reads.
  // kMalformed: no token of ours; kAuthenticationFailed: changed, for another address, or older than
  // the secrets; kTimedOut: ours, and too old. A server treats all of them as no token.
  [[nodiscard]] Result<CheckedAddressToken> check(std::span<const std::byte> token,
                                                  std::span<const std::byte> client_address,
                                                  UnixSeconds now) const;

 private:
  Secret current_;
  std::optional<Secret> previous_;
  bool parity_ = false;  // flips with each rotation
};

// The kind that a token claims to be of, unchecked: to choose the address bytes to check it with.
// Nothing if it cannot be a token.
[[nodiscard]] std::optional<AddressTokenKind> token_kind(std::span<const std::byte> token);

}  // namespace tusk::crypto
