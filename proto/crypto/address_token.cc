#include "proto/crypto/address_token.h"

#include "proto/base/check.h"

namespace tusk::crypto {
namespace {

constexpr std::size_t kTimeOffset = 1;
constexpr std::size_t kTimeBytes = 8;
static_assert(kTimeOffset + kTimeBytes + kSha256Bytes == kAddressTokenBytes);

Sha256Digest authenticate(const Secret& secret, std::span<const std::byte> body,
                          std::span<const std::byte> address, std::span<const std::byte> connection_id) {
  std::vector<std::byte> input(body.begin(), body.end());
  for (const std::span<const std::byte> bound : {address, connection_id}) {
    input.push_back(static_cast<std::byte>(bound.size()));
    input.insert(input.end(), bound.begin(), bound.end());
  }
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

}  // namespace

std::vector<std::byte> AddressTokens::mint(AddressTokenKind kind, std::span<const std::byte> client_address,
                                           std::span<const std::byte> connection_id, UnixSeconds now) const {
  TUSK_CHECK(client_address.size() <= kTokenAddressBytesMax);
  TUSK_CHECK(connection_id.size() <= kTokenConnectionIdBytesMax);
  std::vector<std::byte> token;
  token.reserve(kAddressTokenBytes);
  token.push_back(static_cast<std::byte>(kind));
  for (int shift = 56; shift >= 0; shift -= 8)
    token.push_back(static_cast<std::byte>(now.value() >> shift & 0xff));
  const Sha256Digest mac = authenticate(secret_, token, client_address, connection_id);
  token.insert(token.end(), mac.begin(), mac.end());
  return token;
}

std::optional<AddressTokenKind> token_kind(std::span<const std::byte> token) {
  if (token.size() != kAddressTokenBytes) return std::nullopt;
  const auto kind = static_cast<AddressTokenKind>(token[0]);
  if (kind > AddressTokenKind::kAdmitted) return std::nullopt;
  return kind;
}

Result<void> AddressTokens::check(std::span<const std::byte> token, std::span<const std::byte> client_address,
                                  std::span<const std::byte> connection_id, UnixSeconds now) const {
  const std::optional<AddressTokenKind> kind = token_kind(token);
  if (!kind || client_address.size() > kTokenAddressBytesMax ||
      connection_id.size() > kTokenConnectionIdBytesMax)
    return fail(ErrorCode::kMalformed, "not an address token");

  const std::span<const std::byte> body = token.first(token.size() - kSha256Bytes);
  const Sha256Digest mac = authenticate(secret_, body, client_address, connection_id);
  if (!constant_time_equal(mac, token.last(kSha256Bytes)))
    return fail(ErrorCode::kAuthenticationFailed,
                "address token changed, or of another address or connection");

  const std::uint64_t issued = read_time(token);
  const bool too_old = now.value() > issued && now.value() - issued > lifetime_seconds(*kind);
  const bool from_later = issued > now.value() && issued - now.value() > kTokenClockSlackSeconds;
  if (too_old || from_later) return fail(ErrorCode::kTimedOut, "address token out of its lifetime");
  return {};
}

}  // namespace tusk::crypto
