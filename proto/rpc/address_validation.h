// Whether a client receives at the address it writes from (RFC 9000 §8), for all shards of a server: tokens
// that prove it, and how many are believed without one. And the tokens by which a client knows that a reset
// is its server's (RFC 9000 §10.3).
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <span>
#include <vector>

#include "proto/base/time.h"
#include "proto/crypto/address_token.h"
#include "proto/crypto/identity.h"
#include "proto/io/address.h"
#include "proto/rpc/source.h"
#include "proto/rpc/steering.h"
#include "proto/wire/types.h"

namespace tusk::rpc {

class AddressValidation {
 public:
  // `unproven_max`: believed within 10 s, as long as a handshake may take.
  AddressValidation(const crypto::Identity& identity, std::uint32_t unproven_max)
      : tokens_(identity.derive_secret("tusk address token")),
        reset_secret_(identity.derive_secret("tusk reset token")),
        tag_(tag_of(identity)),
        unproven_max_(unproven_max) {}

  // What `token` proves of `from`; one of a retry only for the connection that begins with the id `original`.
  [[nodiscard]] Proof proof(const io::Address& from, const wire::ConnectionIdBytes& original,
                            std::span<const std::byte> token) const;
  // What it would prove if it were true.
  [[nodiscard]] static Proof claim(std::span<const std::byte> token);
  // For who is asked to come again with it; `original` is the id that it began with, and begins with again.
  [[nodiscard]] std::vector<std::byte> retry_token(const io::Address& to,
                                                   const wire::ConnectionIdBytes& original) const;
  // For its next connection, from the same address and any port. `admitted`: it was let into an export.
  [[nodiscard]] std::vector<std::byte> future_token(const io::Address& to, bool admitted) const;
  // `bound_to`: what the socket listens on, with its port. It stays the same across restarts, and no other
  // server of this key in this network namespace has it: nobody can ask that one for this one's tokens (RFC
  // 9000 §21.11).
  [[nodiscard]] std::vector<std::byte> reset_token(const wire::ConnectionIdBytes& id,
                                                   const io::Address& bound_to) const;

  // Of the ids of all connections of this identity's servers.
  [[nodiscard]] ServerTag tag() const { return tag_; }

  // It spares a first mount a round trip to believe a few addresses that are not proven; whoever makes up
  // many makes everybody prove theirs again. A handshake that fails at once has cost as much as any: it
  // counts for its time.
  [[nodiscard]] bool trust(TimePoint now);
  // One that was believed has shown that it receives.
  void note_proven();

 private:
  [[nodiscard]] static ServerTag tag_of(const crypto::Identity& identity);

  const crypto::AddressTokens tokens_;
  const crypto::Secret reset_secret_;
  const ServerTag tag_;
  const std::uint32_t unproven_max_;

  std::mutex mutex_;
  std::deque<TimePoint> trusted_;  // when handshakes began on trust that have not shown their address since
};

}  // namespace tusk::rpc
