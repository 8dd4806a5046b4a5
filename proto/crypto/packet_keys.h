// The keys of one direction through all their generations: when to change them, and which one a
// packet was sealed with, told by one key-phase bit (RFC 9001 §6).
//
// Unlike QUIC's, the two directions change keys independently: each sender goes by its own count and
// its peer follows. A sender starts a generation only when a packet of the current one has been
// acknowledged, so a receiver is never more than one generation behind.
// The key-phase bit must be part of the authenticated header. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "proto/crypto/packet_cipher.h"
#include "proto/crypto/packet_protection.h"
#include "proto/crypto/primitives.h"

namespace tusk::crypto {

class SendKeys {
 public:
  // `limits` is an argument for tests only.
  SendKeys(PacketCipher cipher, const Secret& traffic_secret, const KeyLimits& limits);
  SendKeys(PacketCipher cipher, const Secret& traffic_secret)
      : SendKeys(cipher, traffic_secret, key_limits(cipher)) {}

  [[nodiscard]] PacketCipher cipher() const { return cipher_; }
  // The bit for the header of the next packet to seal.
  [[nodiscard]] bool key_phase() const { return (generation_ & 1) != 0; }
  [[nodiscard]] std::uint64_t generation() const { return generation_; }

  // As PacketProtector::seal. Packet numbers must rise from call to call (checked: a repeated nonce
  // would give the key away), and exhausted() must be false (checked).
  void seal(std::uint64_t packet_number, std::span<const std::byte> header, std::span<std::byte> packet,
            std::span<const std::byte> tail = {});

  // The peer acknowledged this packet number (any of them; older ones do nothing).
  void handle_acknowledged(std::uint64_t packet_number);

  // An update is due and allowed. Ask before choosing the header's bit; then update().
  [[nodiscard]] bool should_update() const { return sealed_ >= limits_.update_after && may_update(); }
  // The peer has proven that it holds the current generation (RFC 9001 §6.1).
  [[nodiscard]] bool may_update() const { return acknowledged_; }
  // Starts the next generation. Only if may_update() (checked).
  void update();

  // The key is used up and the peer never acknowledged enough to change it: close the connection.
  [[nodiscard]] bool exhausted() const { return sealed_ >= limits_.seals_max; }

 private:
  PacketCipher cipher_;
  KeyLimits limits_;
  Secret secret_;
  PacketProtector protector_;
  std::uint64_t generation_ = 0;
  std::uint64_t sealed_ = 0;               // with the current generation
  std::uint64_t next_packet_number_ = 0;   // the lowest that may still be sealed
  std::uint64_t first_of_generation_ = 0;  // valid if sealed_ > 0
  bool acknowledged_ = false;              // a packet of the current generation was
};

class ReceiveKeys {
 public:
  ReceiveKeys(PacketCipher cipher, const Secret& traffic_secret, const KeyLimits& limits);
  ReceiveKeys(PacketCipher cipher, const Secret& traffic_secret)
      : ReceiveKeys(cipher, traffic_secret, key_limits(cipher)) {}

  // As PacketProtector::open, with the generation that `key_phase` and `packet_number` point to; moves
  // on to the next generation when a packet of it opens, and only then. One attempt with one key, so
  // the time taken does not tell which.
  [[nodiscard]] bool open(std::uint64_t packet_number, bool key_phase, std::span<const std::byte> header,
                          std::span<std::byte> packet);

  // Forgets the previous generation: packets of it that are still on the way no longer open. Call it
  // about three probe timeouts after generation() changed (RFC 9001 §6.5).
  void drop_previous() { previous_.reset(); }

  [[nodiscard]] std::uint64_t generation() const { return generation_; }
  // Packets that did not open, over all generations.
  [[nodiscard]] std::uint64_t failed_opens() const { return failed_opens_; }
  // So many forgeries that the cipher no longer promises anything: nothing opens any more and the
  // connection must be closed (RFC 9001 §6.6).
  [[nodiscard]] bool integrity_limit_reached() const { return failed_opens_ >= limits_.forgeries_max; }

 private:
  [[nodiscard]] bool opens(PacketProtector& protector, std::uint64_t packet_number,
                           std::span<const std::byte> header, std::span<std::byte> packet);
  void advance(std::uint64_t packet_number);

  PacketCipher cipher_;
  KeyLimits limits_;
  Secret next_secret_;
  std::optional<PacketProtector> previous_;
  PacketProtector current_;
  PacketProtector next_;  // made ahead, so that a forged phase bit costs no key derivation
  std::uint64_t generation_ = 0;
  std::uint64_t lowest_of_current_ = 0;  // lowest packet number opened with current_
  std::uint64_t failed_opens_ = 0;
};

}  // namespace tusk::crypto
