// The name of a key: SHA-256 of its SubjectPublicKeyInfo in DER (RFC 5280 §4.1.2.7).
//
// It is what URLs carry, what clients pin and what servers list as allowed. Public, not secret.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>

#include "proto/base/result.h"

namespace tusk::crypto {

struct Fingerprint {
  static constexpr std::size_t kBytes = 32;
  static constexpr std::size_t kTextLength = 43;

  // base64url without padding, kTextLength characters.
  [[nodiscard]] std::string to_text() const;
  // kMalformed unless `text` is exactly what to_text makes of some fingerprint.
  [[nodiscard]] static Result<Fingerprint> parse(std::string_view text);

  auto operator<=>(const Fingerprint&) const = default;

  std::array<std::byte, kBytes> bytes{};
};

}  // namespace tusk::crypto

template <>
struct std::hash<tusk::crypto::Fingerprint> {
  // A fingerprint is a hash already.
  std::size_t operator()(const tusk::crypto::Fingerprint& fingerprint) const {
    std::size_t value;
    std::memcpy(&value, fingerprint.bytes.data(), sizeof value);
    return value;
  }
};
