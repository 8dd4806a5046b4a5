#include "proto/crypto/base64url.h"

#include <array>
#include <cstdint>

namespace tusk::crypto {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr std::uint8_t kNotInAlphabet = 0xff;

constexpr std::array<std::uint8_t, 256> make_values() {
  std::array<std::uint8_t, 256> values{};
  values.fill(kNotInAlphabet);
  for (std::size_t i = 0; i < kAlphabet.size(); ++i)
    values[static_cast<unsigned char>(kAlphabet[i])] = static_cast<std::uint8_t>(i);
  return values;
}

constexpr std::array<std::uint8_t, 256> kValues = make_values();

}  // namespace

std::string base64url_encode(std::span<const std::byte> bytes) {
  std::string text;
  text.reserve((bytes.size() * 4 + 2) / 3);
  std::uint32_t bits = 0;
  int bit_count = 0;
  for (const std::byte byte : bytes) {
    bits = bits << 8 | std::to_integer<std::uint32_t>(byte);
    for (bit_count += 8; bit_count >= 6; bit_count -= 6) text += kAlphabet[bits >> (bit_count - 6) & 63];
  }
  if (bit_count > 0) text += kAlphabet[bits << (6 - bit_count) & 63];
  return text;
}

Result<std::vector<std::byte>> base64url_decode(std::string_view text) {
  if (text.size() % 4 == 1) return fail(ErrorCode::kMalformed, "base64url text of an impossible length");
  std::vector<std::byte> bytes;
  bytes.reserve(text.size() * 3 / 4);
  std::uint32_t bits = 0;
  int bit_count = 0;
  for (const char c : text) {
    const std::uint8_t value = kValues[static_cast<unsigned char>(c)];
    if (value == kNotInAlphabet)
      return fail(ErrorCode::kMalformed, "base64url text with a foreign character");
    bits = bits << 6 | value;
    bit_count += 6;
    if (bit_count >= 8) {
      bit_count -= 8;
      bytes.push_back(static_cast<std::byte>(bits >> bit_count & 0xff));
    }
  }
  if ((bits & ((1U << bit_count) - 1)) != 0)
    return fail(ErrorCode::kMalformed, "base64url text with stray bits at its end");
  return bytes;
}

}  // namespace tusk::crypto
