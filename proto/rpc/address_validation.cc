#include "proto/rpc/address_validation.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "proto/crypto/primitives.h"
#include "proto/io/clock.h"

namespace tusk::rpc {
namespace {

constexpr Duration kTrustPeriod = 10s;

crypto::UnixSeconds wall_clock() {
  return crypto::UnixSeconds(static_cast<std::uint64_t>(io::unix_seconds()));
}

// A token for the future is for the address on any port.
std::span<const std::byte> bound(const io::Address::Serialized& address, crypto::AddressTokenKind kind) {
  const std::span<const std::byte> all(address);
  return kind == crypto::AddressTokenKind::kRetry ? all : all.first(all.size() - 2);
}

}  // namespace

ServerTag AddressValidation::tag_of(const crypto::Identity& identity) {
  const crypto::Secret secret = identity.derive_secret("tusk connection id tag");
  return {static_cast<std::uint16_t>(std::to_integer<unsigned>(secret.bytes[0]) << 8 |
                                     std::to_integer<unsigned>(secret.bytes[1]))};
}

Proof AddressValidation::claim(std::span<const std::byte> token) {
  const auto kind = crypto::token_kind(token);
  if (!kind) return Proof::kNone;
  switch (*kind) {
    case crypto::AddressTokenKind::kRetry:
      return Proof::kRetry;
    case crypto::AddressTokenKind::kFuture:
      return Proof::kEarlier;
    case crypto::AddressTokenKind::kAdmitted:
      return Proof::kAdmitted;
  }
  return Proof::kNone;
}

Proof AddressValidation::proof(const io::Address& from, const wire::ConnectionIdBytes& original,
                               std::span<const std::byte> token) const {
  const auto kind = crypto::token_kind(token);
  if (!kind) return Proof::kNone;
  const std::span<const std::byte> id =
      *kind == crypto::AddressTokenKind::kRetry ? std::span(original.bytes) : std::span<const std::byte>();
  const bool holds = tokens_.check(token, bound(from.bytes(), *kind), id, wall_clock()).has_value();
  return holds ? claim(token) : Proof::kNone;
}

std::vector<std::byte> AddressValidation::retry_token(const io::Address& to,
                                                      const wire::ConnectionIdBytes& original) const {
  constexpr auto kKind = crypto::AddressTokenKind::kRetry;
  return tokens_.mint(kKind, bound(to.bytes(), kKind), original.bytes, wall_clock());
}

std::vector<std::byte> AddressValidation::future_token(const io::Address& to, bool admitted) const {
  const auto kind = admitted ? crypto::AddressTokenKind::kAdmitted : crypto::AddressTokenKind::kFuture;
  return tokens_.mint(kind, bound(to.bytes(), kind), {}, wall_clock());
}

std::vector<std::byte> AddressValidation::reset_token(const wire::ConnectionIdBytes& id,
                                                      const io::Address& bound_to) const {
  // The address' own bytes leave out the interface of a link-local one.
  const auto scope = std::bit_cast<std::array<std::byte, sizeof(std::uint32_t)>>(bound_to.scope_id());
  std::array<std::byte, io::Address::kSerializedBytes + sizeof(scope) + wire::ConnectionIdBytes::kSize>
      named{};
  auto end = std::ranges::copy(bound_to.bytes(), named.begin()).out;
  end = std::ranges::copy(scope, end).out;
  std::ranges::copy(id.bytes, end);
  const auto digest = crypto::hmac_sha256(reset_secret_.bytes, named);
  return {digest.begin(), digest.begin() + wire::kResetTokenSize};
}

bool AddressValidation::trust(TimePoint now) {
  const std::lock_guard lock(mutex_);
  while (!trusted_.empty() && now - trusted_.front() >= kTrustPeriod) trusted_.pop_front();
  if (trusted_.size() >= unproven_max_) return false;
  trusted_.push_back(now);
  return true;
}

void AddressValidation::note_proven() {
  const std::lock_guard lock(mutex_);
  if (!trusted_.empty()) trusted_.pop_front();
}

}  // namespace tusk::rpc
