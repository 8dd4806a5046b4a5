// The two packet ciphers, which of them suits this machine, and how long a key of each may be used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tusk::crypto {

enum class PacketCipher : std::uint8_t {
  kAes256Gcm,
  kChaCha20Poly1305,
};

// The same for both ciphers.
constexpr std::size_t kKeyBytes = 32;
constexpr std::size_t kNonceBytes = 12;
constexpr std::size_t kTagBytes = 16;

// AES-256-GCM where the processor computes AES and GHASH itself, else ChaCha20-Poly1305.
[[nodiscard]] PacketCipher native_packet_cipher();

// "AES-256-GCM", "ChaCha20-Poly1305": the IETF's names, also OpenSSL's for fetching.
[[nodiscard]] std::string_view packet_cipher_name(PacketCipher cipher);

// In packets. RFC 9001 §6.6 and its appendix B.
struct KeyLimits {
  std::uint64_t update_after;   // sealed with one key before the sender should change it
  std::uint64_t seals_max;      // sealed with one key, never more: the AEAD's confidentiality limit
  std::uint64_t forgeries_max;  // failed to open, over all keys of a direction: its integrity limit
};

[[nodiscard]] constexpr KeyLimits key_limits(PacketCipher cipher) {
  // ChaCha20 could go on practically forever; it changes keys as often as AES does so that the
  // change is not a rare path.
  constexpr std::uint64_t kUpdateAfter = std::uint64_t{1} << 22;
  switch (cipher) {
    case PacketCipher::kAes256Gcm:
      return {kUpdateAfter, std::uint64_t{1} << 23, std::uint64_t{1} << 52};
    case PacketCipher::kChaCha20Poly1305:
      return {kUpdateAfter, std::uint64_t{1} << 62, std::uint64_t{1} << 36};
  }
  __builtin_unreachable();
}

}  // namespace tusk::crypto
