// The few cryptographic functions that the rest of Tusk is built from: hash, MAC, key derivation,
// random bytes, comparison. Thin over OpenSSL; no state, no files, no clock.
//
// All functions may be called from any thread. None of them can fail but by a broken OpenSSL
// installation, which is checked (TUSK_CHECK) rather than reported: nothing safe can follow it.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace tusk::crypto {

constexpr std::size_t kSha256Bytes = 32;
using Sha256Digest = std::array<std::byte, kSha256Bytes>;

// Overwrites with zeros in a way the compiler may not remove.
void wipe(std::span<std::byte> bytes);

// True if equal; takes the same time wherever the difference is. Different lengths are unequal.
[[nodiscard]] bool constant_time_equal(std::span<const std::byte> a, std::span<const std::byte> b);

// 32 secret bytes that wipe themselves: a traffic secret, a MAC key.
struct Secret {
  static constexpr std::size_t kBytes = 32;

  Secret() = default;
  explicit Secret(std::span<const std::byte, kBytes> source);
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret() { wipe(bytes); }

  [[nodiscard]] static Secret random();
  bool operator==(const Secret& other) const { return constant_time_equal(bytes, other.bytes); }

  std::array<std::byte, kBytes> bytes{};
};

// Unpredictable bytes from the operating system's generator.
void random_bytes(std::span<std::byte> out);
[[nodiscard]] std::uint64_t random_number();

[[nodiscard]] Sha256Digest sha256(std::span<const std::byte> data);
[[nodiscard]] Sha256Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> data);

// HKDF with SHA-256, RFC 5869 §2.2 and §2.3. At most kHkdfOutputBytesMax of output.
constexpr std::size_t kHkdfOutputBytesMax = 255 * kSha256Bytes;
[[nodiscard]] Secret hkdf_extract(std::span<const std::byte> salt, std::span<const std::byte> key_material);
void hkdf_expand(const Secret& key, std::span<const std::byte> info, std::span<std::byte> out);

// HKDF-Expand-Label of RFC 8446 §7.1 with SHA-256 and an empty context; "tls13 " is put before the
// label as there, so that any TLS library's own function gives the same bytes.
constexpr std::size_t kLabelBytesMax = 249;
void hkdf_expand_label(const Secret& key, std::string_view label, std::span<std::byte> out);
[[nodiscard]] Secret hkdf_expand_label(const Secret& key, std::string_view label);

}  // namespace tusk::crypto
