#include "proto/crypto/packet_protection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/unit/crypto/test_bytes.h"

namespace tusk::crypto {
namespace {

constexpr std::uint64_t kNumber = 0x0123456789abcdef;

Secret example_secret() {
  const Bytes bytes = pattern(Secret::kBytes);
  return Secret(std::span<const std::byte, Secret::kBytes>(bytes));
}

Bytes with_tag_room(Bytes plaintext) {
  plaintext.resize(plaintext.size() + kTagBytes);
  return plaintext;
}

class Protection : public testing::TestWithParam<PacketCipher> {
 protected:
  [[nodiscard]] Bytes sealed(const Bytes& plaintext, std::uint64_t number = kNumber) {
    Bytes packet = with_tag_room(plaintext);
    sender_.seal(number, header_, packet);
    return packet;
  }
  [[nodiscard]] bool opens(Bytes packet, std::uint64_t number = kNumber) {
    return receiver_.open(number, header_, packet);
  }

  PacketProtector sender_{GetParam(), example_secret()};
  PacketProtector receiver_{GetParam(), example_secret()};
  const Bytes header_ = from_text("a header of odd length.");
};

INSTANTIATE_TEST_SUITE_P(BothCiphers, Protection,
                         testing::Values(PacketCipher::kAes256Gcm, PacketCipher::kChaCha20Poly1305),
                         [](const auto& tested) {
                           return tested.param == PacketCipher::kAes256Gcm ? "Aes" : "ChaCha";
                         });

TEST_P(Protection, OpensWhatItSealedAtEverySize) {
  for (std::size_t size : {0, 1, 15, 16, 17, 31, 32, 287, 288, 1200, 1434, 8934, 65519}) {
    const Bytes plaintext = pattern(size);
    Bytes packet = sealed(plaintext, size);
    if (size >= 16) {
      EXPECT_FALSE(std::equal(plaintext.begin(), plaintext.end(), packet.begin()));
    }
    ASSERT_TRUE(receiver_.open(size, header_, packet)) << size;
    packet.resize(size);
    EXPECT_EQ(packet, plaintext);
  }
}

TEST_P(Protection, SealsWithoutAHeader) {
  Bytes packet = with_tag_room(pattern(100));
  sender_.seal(1, {}, packet);
  EXPECT_FALSE(opens(packet, 1));
  EXPECT_TRUE(receiver_.open(1, {}, packet));
}

TEST_P(Protection, SealsATailThatIsElsewhereAsIfItWereThere) {
  const Bytes plaintext = pattern(1434);
  for (const std::size_t cut : {0, 1, 13, 15, 16, 17, 22, 600, 1433, 1434}) {
    const auto tail = std::span(plaintext).subspan(cut);
    Bytes packet(plaintext.begin(), plaintext.begin() + static_cast<std::ptrdiff_t>(cut));
    packet.resize(plaintext.size() + kTagBytes);
    sender_.seal(kNumber, header_, packet, tail);
    EXPECT_EQ(packet, sealed(plaintext)) << cut;
  }
}

TEST_P(Protection, ATailNeedsRoom) {
  const Bytes tail = pattern(100);
  Bytes shorter(99 + kTagBytes);
  EXPECT_DEATH(sender_.seal(1, header_, shorter, tail), "invariant");
}

TEST_P(Protection, RefusesEveryChangedByte) {
  const Bytes packet = sealed(pattern(200));
  for (std::size_t i = 0; i < packet.size(); ++i) EXPECT_FALSE(opens(flip_bit(packet, i, i % 8))) << i;
  EXPECT_TRUE(opens(packet));  // failures leave no trace
}

TEST_P(Protection, RefusesEveryChangedByteOfTheHeader) {
  const Bytes packet = sealed(pattern(200));
  for (std::size_t i = 0; i < header_.size(); ++i) {
    Bytes copy = packet;
    EXPECT_FALSE(receiver_.open(kNumber, flip_bit(header_, i), copy));
  }
  Bytes copy = packet;
  EXPECT_FALSE(receiver_.open(kNumber, std::span(header_).first(header_.size() - 1), copy));
}

TEST_P(Protection, RefusesEveryOtherPacketNumber) {
  const Bytes packet = sealed(pattern(200));
  for (unsigned bit = 0; bit < 64; ++bit)
    EXPECT_FALSE(opens(packet, kNumber ^ std::uint64_t{1} << bit)) << bit;
}

TEST_P(Protection, RefusesEveryTruncation) {
  const Bytes packet = sealed(pattern(50));
  for (std::size_t length = 0; length < packet.size(); ++length)
    EXPECT_FALSE(opens(Bytes(packet.begin(), packet.begin() + static_cast<std::ptrdiff_t>(length))))
        << length;
}

TEST_P(Protection, RefusesPacketsLongerThanADatagram) {
  Bytes packet(kSealedPacketBytesMax + 1);
  EXPECT_FALSE(receiver_.open(1, header_, packet));
  EXPECT_DEATH(sender_.seal(1, header_, packet), "invariant");
  Bytes no_room(kTagBytes - 1);
  EXPECT_DEATH(sender_.seal(1, header_, no_room), "invariant");
}

TEST_P(Protection, OneProtectorMayAlternateBetweenSealingAndOpening) {
  for (std::uint64_t number = 0; number < 10; ++number) {
    Bytes packet = sealed(pattern(100), number);
    EXPECT_FALSE(sender_.open(number + 1, header_, packet));
    packet = sealed(pattern(100), number);
    EXPECT_TRUE(sender_.open(number, header_, packet));
  }
}

TEST_P(Protection, SurvivesAMove) {
  PacketProtector moved = std::move(sender_);
  Bytes packet = with_tag_room(pattern(100));
  moved.seal(1, header_, packet);
  EXPECT_TRUE(opens(packet, 1));
}

TEST_P(Protection, NextGenerationHasOtherKeys) {
  PacketProtector next(GetParam(), next_traffic_secret(example_secret()));
  Bytes packet = sealed(pattern(100));
  EXPECT_FALSE(next.open(kNumber, header_, packet));
}

TEST(ProtectionCiphers, DoNotOpenEachOther) {
  PacketProtector aes(PacketCipher::kAes256Gcm, example_secret());
  PacketProtector chacha(PacketCipher::kChaCha20Poly1305, example_secret());
  Bytes packet = with_tag_room(pattern(100));
  aes.seal(1, {}, packet);
  EXPECT_FALSE(chacha.open(1, {}, packet));
}

// RFC 9001 appendix A.5, a packet with a one-byte payload.
TEST(ProtectionKnownAnswer, ChaCha20Poly1305OfRfc9001) {
  const Bytes key = from_hex("c6d98ff3441c3fe1b2182094f69caa2ed4b716b65488960a7a984979fb23e1c8");
  const Bytes iv = from_hex("e0459b3474bdd0e44a41c144");
  PacketProtector protector(PacketCipher::kChaCha20Poly1305, std::span<const std::byte, kKeyBytes>(key),
                            std::span<const std::byte, kNonceBytes>(iv));
  Bytes packet = with_tag_room(from_hex("01"));
  protector.seal(654360564, from_hex("4200bff4"), packet);
  EXPECT_EQ(to_hex(packet), "655e5cd55c41f69080575d7999c25a5bfb");
}

// Test case 16 of the GCM specification (McGrew and Viega); the packet number 0 leaves the iv as it is.
TEST(ProtectionKnownAnswer, Aes256GcmOfItsSpecification) {
  const Bytes key = from_hex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
  const Bytes iv = from_hex("cafebabefacedbaddecaf888");
  PacketProtector protector(PacketCipher::kAes256Gcm, std::span<const std::byte, kKeyBytes>(key),
                            std::span<const std::byte, kNonceBytes>(iv));
  Bytes packet =
      with_tag_room(from_hex("d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
                             "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"));
  protector.seal(0, from_hex("feedfacedeadbeeffeedfacedeadbeefabaddad2"), packet);
  EXPECT_EQ(to_hex(packet),
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838"
            "c5f61e6393ba"
            "7a0abcc9f66276fc6ece0f4e1768cddf8853bb2d551b");
}

// The keys of a second implementation: computed beside this code with Python's hmac module.
TEST(ProtectionKnownAnswer, KeysFromATrafficSecret) {
  EXPECT_EQ(to_hex(hkdf_expand_label(example_secret(), "tusk key").bytes),
            "4d91db7415217afbc9242c9c5ee9fd7fe56a333499d836d424f3840c6d16956e");
  Bytes iv(kNonceBytes);
  hkdf_expand_label(example_secret(), "tusk iv", iv);
  EXPECT_EQ(to_hex(iv), "3fa895d5169c5069a6f7116e");
  EXPECT_EQ(to_hex(next_traffic_secret(example_secret()).bytes),
            "00b6dbbb3d322ebcf5479b02b6683303cf8ef22d450f9a3f800044533298dbe0");
}

TEST(ProtectionKnownAnswer, UsesThoseKeys) {
  const Secret key = hkdf_expand_label(example_secret(), "tusk key");
  std::array<std::byte, kNonceBytes> iv;
  hkdf_expand_label(example_secret(), "tusk iv", iv);
  PacketProtector direct(PacketCipher::kAes256Gcm, key.bytes, iv);
  PacketProtector derived(PacketCipher::kAes256Gcm, example_secret());
  Bytes packet = with_tag_room(pattern(100));
  direct.seal(kNumber, {}, packet);
  EXPECT_TRUE(derived.open(kNumber, {}, packet));
}

TEST(HandshakeProtection, IsTheSameForAllWhoKnowTheConnectionId) {
  const Bytes id = from_hex("8394c8f03e515708");
  PacketProtector client = PacketProtector::for_handshake(id, true);
  PacketProtector server = PacketProtector::for_handshake(id, true);
  Bytes packet = with_tag_room(pattern(100));
  client.seal(0, {}, packet);
  EXPECT_TRUE(server.open(0, {}, packet));
}

TEST(HandshakeProtection, DiffersByDirectionAndConnectionId) {
  const Bytes id = from_hex("8394c8f03e515708");
  Bytes packet = with_tag_room(pattern(100));
  PacketProtector::for_handshake(id, true).seal(0, {}, packet);
  Bytes copy = packet;
  EXPECT_FALSE(PacketProtector::for_handshake(id, false).open(0, {}, copy));
  copy = packet;
  EXPECT_FALSE(PacketProtector::for_handshake(flip_bit(id, 0), true).open(0, {}, copy));
}

TEST(HandshakeProtection, TakesAnEmptyConnectionId) {
  Bytes packet = with_tag_room(pattern(10));
  PacketProtector::for_handshake({}, true).seal(0, {}, packet);
  EXPECT_TRUE(PacketProtector::for_handshake({}, true).open(0, {}, packet));
}

// Computed beside this code with Python's hmac module and OpenSSL's command line.
TEST(ProtectionKnownAnswer, HandshakePacket) {
  Bytes packet = with_tag_room(from_text("hello"));
  PacketProtector::for_handshake(from_hex("8394c8f03e515708"), true).seal(7, from_text("header"), packet);
  EXPECT_EQ(to_hex(packet), "0d6a14803d8af663173448ef45f75121e9687479d6");
}

TEST(NativeCipher, HasAName) {
  EXPECT_EQ(packet_cipher_name(PacketCipher::kAes256Gcm), "AES-256-GCM");
  EXPECT_EQ(packet_cipher_name(PacketCipher::kChaCha20Poly1305), "ChaCha20-Poly1305");
  EXPECT_FALSE(packet_cipher_name(native_packet_cipher()).empty());
}

}  // namespace
}  // namespace tusk::crypto
