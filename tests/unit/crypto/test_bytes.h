// Bytes for tests: from hexadecimal, from text, as counted patterns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/base/check.h"
#include "proto/base/shared_bytes.h"

namespace tusk::crypto {

using Bytes = std::vector<std::byte>;

inline Bytes from_hex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  TUSK_CHECK(hex.size() % 2 == 0);
  Bytes bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(digit(hex[i]) * 16 + digit(hex[i + 1])));
  return bytes;
}

inline std::string to_hex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const std::byte byte : bytes) {
    hex += kDigits[std::to_integer<std::size_t>(byte >> 4)];
    hex += kDigits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return hex;
}

inline Bytes from_text(std::string_view text) {
  const std::span<const std::byte> bytes = as_byte_span(text);
  return {bytes.begin(), bytes.end()};
}

// 0, 1, 2, ... modulo 251, which no power of two divides.
inline Bytes pattern(std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i % 251);
  return bytes;
}

inline Bytes flip_bit(Bytes bytes, std::size_t offset, unsigned bit = 0) {
  bytes[offset] ^= static_cast<std::byte>(1U << bit);
  return bytes;
}

}  // namespace tusk::crypto
