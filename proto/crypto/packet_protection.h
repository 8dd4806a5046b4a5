// Seals and opens packets with one key: one direction, one key generation.
//
// After RFC 9001 §5 without header protection: nonce = iv XOR packet number, the header is the
// additional data. Which key is due, and when to change it, is packet_keys.h's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "proto/crypto/packet_cipher.h"
#include "proto/crypto/primitives.h"

struct evp_cipher_ctx_st;

namespace tusk::crypto {

// No UDP datagram is longer.
constexpr std::size_t kSealedPacketBytesMax = 65535;

// One thread at a time. Movable; a second thread makes a protector of its own from the same secret.
class PacketProtector {
 public:
  // Key and iv from a traffic secret, labels "tusk key" and "tusk iv" (hkdf_expand_label).
  PacketProtector(PacketCipher cipher, const Secret& traffic_secret);
  // Key and iv as they are: for published test vectors.
  PacketProtector(PacketCipher cipher, std::span<const std::byte, kKeyBytes> key,
                  std::span<const std::byte, kNonceBytes> iv);
  PacketProtector(PacketProtector&&) noexcept;
  PacketProtector& operator=(PacketProtector&&) noexcept;
  ~PacketProtector();

  // Keys for handshake packets, as those of QUIC's Initial packets (RFC 9001 §5.2): anybody who sees
  // the connection id can compute them. They tell corruption from intact bytes; they hide nothing and
  // prove nothing about the sender.
  [[nodiscard]] static PacketProtector for_handshake(std::span<const std::byte> client_connection_id,
                                                     bool from_client);

  // In place. `packet` is the plaintext followed by room for the tag: kTagBytes to
  // kSealedPacketBytesMax bytes. A packet number must never be used twice with one key.
  void seal(std::uint64_t packet_number, std::span<const std::byte> header, std::span<std::byte> packet);

  // As above, but the plaintext is the concatenation of `pieces`, encrypted straight into `packet`
  // (as long as all pieces and the tag): the encryption is the copy. Pieces must not overlap `packet`.
  void seal(std::uint64_t packet_number, std::span<const std::byte> header,
            std::span<const std::span<const std::byte>> pieces, std::span<std::byte> packet);

  // In place: true, and all but the last kTagBytes of `packet` is the plaintext; or false, and
  // `packet` is undefined and must be dropped unread. Too short and too long packets are false.
  [[nodiscard]] bool open(std::uint64_t packet_number, std::span<const std::byte> header,
                          std::span<std::byte> packet);

 private:
  struct ContextFree {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  using Nonce = std::array<std::byte, kNonceBytes>;

  void init_context(PacketCipher cipher, std::span<const std::byte, kKeyBytes> key);
  [[nodiscard]] Nonce nonce(std::uint64_t packet_number) const;
  void start_sealing(std::uint64_t packet_number, std::span<const std::byte> header);
  void finish_sealing(std::span<std::byte> tag);

  std::unique_ptr<evp_cipher_ctx_st, ContextFree> context_;  // keyed once; per packet only the nonce
  Nonce iv_{};
};

// The traffic secret of the following key generation, label "tusk ku" (after RFC 9001 §6.1).
[[nodiscard]] Secret next_traffic_secret(const Secret& traffic_secret);

}  // namespace tusk::crypto
