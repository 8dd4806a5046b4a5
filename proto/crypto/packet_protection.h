// Seals and opens packets with one key: one direction, one key generation.
//
// After RFC 9001 §5 without header protection: nonce = iv XOR packet number, the header is the
// additional data. Which key is due, and when to change it, is packet_keys.h's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "proto/crypto/aead.h"
#include "proto/crypto/packet_cipher.h"
#include "proto/crypto/primitives.h"

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

  // `packet` is the plaintext, encrypted in place, followed by room for `tail` and the tag: kTagBytes to
  // kSealedPacketBytesMax bytes. `tail` is the end of the plaintext, encrypted from where it is, outside
  // of `packet`: the encryption is the copy. A packet number must never be used twice with one key.
  void seal(std::uint64_t packet_number, std::span<const std::byte> header, std::span<std::byte> packet,
            std::span<const std::byte> tail = {});

  // In place: true, and all but the last kTagBytes of `packet` is the plaintext; or false, and
  // `packet` is undefined and must be dropped unread. Too short and too long packets are false.
  [[nodiscard]] bool open(std::uint64_t packet_number, std::span<const std::byte> header,
                          std::span<std::byte> packet);

 private:
  [[nodiscard]] Aead::Nonce nonce(std::uint64_t packet_number) const;

  std::unique_ptr<Aead> aead_;  // keyed once; per packet only the nonce
  Aead::Nonce iv_{};
};

// The traffic secret of the following key generation, label "tusk ku" (after RFC 9001 §6.1).
[[nodiscard]] Secret next_traffic_secret(const Secret& traffic_secret);

}  // namespace tusk::crypto
