#include "proto/crypto/address_token.h"

#include "proto/base/check.h"

namespace tusk::crypto {
namespace {

constexpr std::byte kKindBit{1};
constexpr std::byte kParityBit{2};
constexpr std::size_t kTimeOffset = 1;
constexpr std::size_t kTimeBytes = 8;
constexpr std::size_t kConnectionIdLengthOffset = kTimeOffset + kTimeBytes;
constexpr std::size_t kConnectionIdOffset = kConnectionIdLengthOffset + 1;
static_assert(kConnectionIdOffset + kTokenConnectionIdBytesMax + kSha256Bytes <= kAddressTokenBytesMax);

Sha256Digest authenticate(const Secret& secret, std::span<const std::byte> body,
                          std::span<const std::byte> address) {
  std::vector<std::byte> input(body.begin(), body.end());
  input.push_back(static_cast<std::byte>(address.size()));
  input.insert(input.end(), address.begin(), address.end());
  return hmac_sha256(secret.bytes, input);
}

std::uint64_t lifetime_seconds(AddressTokenKind kind) {
  return kind == AddressTokenKind::kRetry ? kRetryTokenLifetimeSeconds : kFutureTokenLifetimeSeconds;
}

std::uint64_t read_time(std::span<const std::byte> token) {
  std::uint64_t seconds = 0;
  for (const std::byte byte : token.subspan(kTimeOffset, kTimeBytes))
    seconds = seconds << 8 | std::to_integer<std::uint64_t>(byte);
  return seconds;
}

// Lengths and reserved bits are those of a token.
bool well_formed(std::span<const std::byte> token) {
  if (token.size() < kConnectionIdOffset + kSha256Bytes) return false;
  const auto id_length = std::to_integer<std::size_t>(token[kConnectionIdLengthOffset]);
  return id_length <= kTokenConnectionIdBytesMax &&
         token.size() == kConnectionIdOffset + id_length + kSha256Bytes &&
         (token[0] & ~(kKindBit | kParityBit)) == std::byte{0};
}

}  // namespace

void AddressTokens::rotate(const Secret& secret) {
  previous_ = current_;
  current_ = secret;
  parity_ = !parity_;
}

std::vector<std::byte> AddressTokens::mint(AddressTokenKind kind, std::span<const std::byte> client_address,
                                           std::span<const std::byte> original_connection_id,
                                           UnixSeconds now) const {
  TUSK_CHECK(client_address.size() <= kTokenAddressBytesMax);
  TUSK_CHECK(original_connection_id.size() <= kTokenConnectionIdBytesMax);
  std::vector<std::byte> token;
  token.reserve(kAddressTokenBytesMax);
  token.push_back((kind == AddressTokenKind::kFuture ? kKindBit : std::byte{0}) |
                  (parity_ ? kParityBit : std::byte{0}));
  for (int shift = 56; shift >= 0; shift -= 8)
    token.push_back(static_cast<std::byte>(now.value() >> shift & 0xff));
  token.push_back(static_cast<std::byte>(original_connection_id.size()));
  token.insert(token.end(), original_connection_id.begin(), original_connection_id.end());
  const Sha256Digest mac = authenticate(current_, token, client_address);
  token.insert(token.end(), mac.begin(), mac.end());
  return token;
}

std::optional<AddressTokenKind> token_kind(std::span<const std::byte> token) {
  if (!well_formed(token)) return std::nullopt;
  return (token[0] & kKindBit) != std::byte{0} ? AddressTokenKind::kFuture : AddressTokenKind::kRetry;
}

Result<CheckedAddressToken> AddressTokens::check(std::span<const std::byte> token,
                                                 std::span<const std::byte> client_address,
                                                 UnixSeconds now) const {
  const std::optional<AddressTokenKind> kind = token_kind(token);
  if (!kind || client_address.size() > kTokenAddressBytesMax)
    return fail(ErrorCode::kMalformed, "not an address token");

  const bool is_current = ((token[0] & kParityBit) != std::byte{0}) == parity_;
  if (!is_current && !previous_)
    return fail(ErrorCode::kAuthenticationFailed, "address token of an unknown secret");
  const std::span<const std::byte> body = token.first(token.size() - kSha256Bytes);
  const Sha256Digest mac = authenticate(is_current ? current_ : *previous_, body, client_address);
  if (!constant_time_equal(mac, token.last(kSha256Bytes)))
    return fail(ErrorCode::kAuthenticationFailed, "address token changed or of another address");

  const std::uint64_t issued = read_time(token);
  const bool too_old = now.value() > issued && now.value() - issued > lifetime_seconds(*kind);
  const bool from_later = issued > now.value() && issued - now.value() > kTokenClockSlackSeconds;
  if (too_old || from_later) return fail(ErrorCode::kTimedOut, "address token out of its lifetime");

  const std::span<const std::byte> id = body.subspan(kConnectionIdOffset);
  return CheckedAddressToken{*kind, {id.begin(), id.end()}};
}

}  // namespace tusk::crypto
