// An AEAD cipher with a key: one packet after the other, each with a nonce of its own (RFC 5116).
//
// AES-256-GCM (NIST SP 800-38D) comes from Intel's ipsec-mb where the processor has instructions for it and
// the library is there, else from OpenSSL; ChaCha20-Poly1305 (RFC 8439) always from OpenSSL.
// docs/decisions/0015-packet-aead.md says why.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "proto/crypto/packet_cipher.h"
#include "proto/crypto/primitives.h"

namespace tusk::crypto {

// One thread at a time.
class Aead {
 public:
  using Nonce = std::array<std::byte, kNonceBytes>;

  Aead() = default;
  Aead(const Aead&) = delete;
  Aead& operator=(const Aead&) = delete;
  virtual ~Aead() = default;  // the key is wiped

  // `packet`: plaintext, room for `tail`, room for the tag (kTagBytes). The plaintext is encrypted in place;
  // `tail`, which must not overlap it, goes behind: its encryption is its copy. A nonce must never be used
  // twice with one key.
  virtual void seal(const Nonce& nonce, std::span<const std::byte> header, std::span<const std::byte> tail,
                    std::span<std::byte> packet) = 0;

  // In place. `packet`: ciphertext and tag. False: `packet` is undefined and must be dropped unread.
  [[nodiscard]] virtual bool open(const Nonce& nonce, std::span<const std::byte> header,
                                  std::span<std::byte> packet) = 0;
};

// The fastest that there is here.
[[nodiscard]] std::unique_ptr<Aead> make_aead(PacketCipher cipher, std::span<const std::byte, kKeyBytes> key);

// For processors without instructions for AES, and to be compared with.
[[nodiscard]] std::unique_ptr<Aead> make_openssl_aead(PacketCipher cipher,
                                                      std::span<const std::byte, kKeyBytes> key);

// AES-256-GCM by ipsec-mb; nullptr where the library or the processor's instructions are missing.
[[nodiscard]] std::unique_ptr<Aead> make_ipsec_aead(std::span<const std::byte, kKeyBytes> key);

}  // namespace tusk::crypto
