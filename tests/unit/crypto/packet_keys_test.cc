// Key updates: when a sender may change keys, and that a receiver finds the right key for every packet
// however packets are reordered across the change.
#include "proto/crypto/packet_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "proto/base/random.h"
#include "tests/unit/crypto/test_bytes.h"

namespace tusk::crypto {
namespace {

constexpr KeyLimits kTinyLimits = {.update_after = 4, .seals_max = 8, .forgeries_max = 3};

struct Packet {
  std::uint64_t number = 0;
  bool key_phase = false;
  Bytes bytes;

  [[nodiscard]] Bytes header() const {
    Bytes header(9);
    std::memcpy(header.data(), &number, sizeof number);
    header[8] = static_cast<std::byte>(key_phase);
    return header;
  }
};

// One direction between a sender and a receiver that share a secret.
class Direction {
 public:
  explicit Direction(PacketCipher cipher, const KeyLimits& limits = kTinyLimits)
      : send(cipher, secret(), limits), receive(cipher, secret(), limits) {}

  [[nodiscard]] Packet seal_next() {
    Packet packet{next_number_++, send.key_phase(), pattern(40 + kTagBytes)};
    send.seal(packet.number, packet.header(), packet.bytes);
    return packet;
  }
  // By value: opening is in place.
  [[nodiscard]] bool open(Packet packet) {
    if (!receive.open(packet.number, packet.key_phase, packet.header(), packet.bytes)) return false;
    packet.bytes.resize(40);
    EXPECT_EQ(packet.bytes, pattern(40));
    return true;
  }
  void acknowledge(const Packet& packet) { send.handle_acknowledged(packet.number); }
  void update() {
    acknowledge(seal_and_open());
    send.update();
  }
  Packet seal_and_open() {
    Packet packet = seal_next();
    EXPECT_TRUE(open(packet));
    return packet;
  }

  SendKeys send;
  ReceiveKeys receive;

 private:
  static Secret secret() {
    const Bytes bytes = pattern(Secret::kBytes);
    return Secret(std::span<const std::byte, Secret::kBytes>(bytes));
  }

  std::uint64_t next_number_ = 0;
};

class KeyUpdate : public testing::TestWithParam<PacketCipher> {
 protected:
  Direction direction_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(BothCiphers, KeyUpdate,
                         testing::Values(PacketCipher::kAes256Gcm, PacketCipher::kChaCha20Poly1305),
                         [](const auto& tested) {
                           return tested.param == PacketCipher::kAes256Gcm ? "Aes" : "ChaCha";
                         });

TEST_P(KeyUpdate, IsDueAfterTheLimitAndAnAcknowledgement) {
  Packet last;
  for (std::uint64_t i = 0; i < kTinyLimits.update_after; ++i) {
    EXPECT_FALSE(direction_.send.should_update());
    last = direction_.seal_and_open();
  }
  EXPECT_FALSE(direction_.send.should_update());  // the peer has not yet proven that it can follow
  direction_.acknowledge(last);
  EXPECT_TRUE(direction_.send.should_update());
}

TEST_P(KeyUpdate, IsNotDueBeforeTheLimit) {
  direction_.acknowledge(direction_.seal_and_open());
  EXPECT_TRUE(direction_.send.may_update());
  EXPECT_FALSE(direction_.send.should_update());
}

TEST_P(KeyUpdate, NeedsAnAcknowledgementOfTheCurrentGeneration) {
  const Packet old = direction_.seal_and_open();
  direction_.acknowledge(old);
  direction_.send.update();
  EXPECT_FALSE(direction_.send.may_update());
  direction_.acknowledge(old);
  EXPECT_FALSE(direction_.send.may_update());
  const Packet fresh = direction_.seal_and_open();
  direction_.acknowledge(old);
  EXPECT_FALSE(direction_.send.may_update());
  direction_.acknowledge(fresh);
  EXPECT_TRUE(direction_.send.may_update());
  direction_.send.update();
  EXPECT_DEATH(direction_.send.update(), "invariant");
}

TEST_P(KeyUpdate, FlipsThePhaseAndTheReceiverFollows) {
  for (std::uint64_t generation = 0; generation < 5; ++generation) {
    EXPECT_EQ(direction_.send.generation(), generation);
    EXPECT_EQ(direction_.send.key_phase(), generation % 2 == 1);
    direction_.update();
    EXPECT_EQ(direction_.receive.generation(), generation);
  }
  direction_.seal_and_open();
  EXPECT_EQ(direction_.receive.generation(), 5U);
  EXPECT_EQ(direction_.receive.failed_opens(), 0U);
}

TEST_P(KeyUpdate, OpensPacketsOfThePreviousGenerationThatComeLate) {
  const Packet late = direction_.seal_next();
  direction_.update();
  const Packet early_of_next = direction_.seal_next();
  const Packet second_of_next = direction_.seal_next();
  EXPECT_TRUE(direction_.open(second_of_next));
  EXPECT_TRUE(direction_.open(late));
  EXPECT_TRUE(direction_.open(early_of_next));  // lower than the packet that brought the update
  EXPECT_TRUE(direction_.open(late));
  EXPECT_EQ(direction_.receive.generation(), 1U);
  EXPECT_EQ(direction_.receive.failed_opens(), 0U);
}

TEST_P(KeyUpdate, ForgetsThePreviousGenerationWhenTold) {
  const Packet late = direction_.seal_next();
  direction_.update();
  direction_.seal_and_open();
  EXPECT_TRUE(direction_.open(late));
  direction_.receive.drop_previous();
  EXPECT_FALSE(direction_.open(late));
  EXPECT_EQ(direction_.receive.failed_opens(), 0U);  // not tried, so not a forgery
}

TEST_P(KeyUpdate, DoesNotOpenPacketsOfTwoGenerationsAgo) {
  const Packet ancient = direction_.seal_next();
  direction_.update();
  direction_.update();
  direction_.seal_and_open();
  ASSERT_EQ(direction_.receive.generation(), 2U);
  EXPECT_FALSE(direction_.open(ancient));
}

TEST_P(KeyUpdate, IsNotCommittedByAForgery) {
  direction_.acknowledge(direction_.seal_and_open());
  Packet forged = direction_.seal_next();
  forged.key_phase = true;
  EXPECT_FALSE(direction_.open(forged));
  EXPECT_EQ(direction_.receive.generation(), 0U);
  EXPECT_EQ(direction_.receive.failed_opens(), 1U);
  direction_.seal_and_open();
  direction_.send.update();
  direction_.seal_and_open();
  EXPECT_EQ(direction_.receive.generation(), 1U);
}

TEST_P(KeyUpdate, SurvivesRandomReorderingAcrossIt) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Direction direction(GetParam());
    Random random(seed);
    for (int round = 0; round < 6; ++round) {
      std::vector<Packet> in_flight;
      for (int i = 0; i < 3; ++i) in_flight.push_back(direction.seal_next());
      direction.update();
      for (int i = 0; i < 3; ++i) in_flight.push_back(direction.seal_next());
      for (std::size_t i = in_flight.size(); i > 1; --i)
        std::swap(in_flight[i - 1], in_flight[random.below(i)]);
      for (const Packet& packet : in_flight) EXPECT_TRUE(direction.open(packet)) << "seed " << seed;
    }
    EXPECT_EQ(direction.receive.failed_opens(), 0U);
  }
}

TEST_P(KeyUpdate, DirectionsAreIndependent) {
  Direction back(GetParam());
  direction_.update();
  direction_.seal_and_open();
  back.seal_and_open();
  EXPECT_EQ(back.receive.generation(), 0U);
  back.update();
  back.update();
  back.seal_and_open();
  EXPECT_EQ(back.receive.generation(), 2U);
  EXPECT_EQ(direction_.receive.generation(), 1U);
}

TEST_P(KeyUpdate, SealsATailWithTheGenerationToo) {
  direction_.update();
  const Bytes plaintext = pattern(40);
  Packet packet{1000, direction_.send.key_phase(), plaintext};
  packet.bytes.resize(40 + kTagBytes);
  direction_.send.seal(packet.number, packet.header(), packet.bytes, std::span(plaintext).subspan(7));
  EXPECT_TRUE(direction_.open(packet));
}

TEST_P(KeyUpdate, StopsAtTheConfidentialityLimit) {
  for (std::uint64_t i = 0; i < kTinyLimits.seals_max; ++i) {
    EXPECT_FALSE(direction_.send.exhausted());
    direction_.seal_and_open();
  }
  EXPECT_TRUE(direction_.send.exhausted());
  EXPECT_DEATH(static_cast<void>(direction_.seal_next()), "invariant");
}

TEST_P(KeyUpdate, NeverUsesAPacketNumberTwice) {
  Packet packet{5, false, Bytes(kTagBytes)};
  direction_.send.seal(5, packet.header(), packet.bytes);
  EXPECT_DEATH(direction_.send.seal(5, packet.header(), packet.bytes), "invariant");
  EXPECT_DEATH(direction_.send.seal(4, packet.header(), packet.bytes), "invariant");
  direction_.send.seal(6, packet.header(), packet.bytes);
}

TEST_P(KeyUpdate, StopsAtTheIntegrityLimit) {
  const Packet good = direction_.seal_next();
  Packet bad = good;
  bad.bytes[0] ^= std::byte{1};
  for (std::uint64_t i = 0; i < kTinyLimits.forgeries_max; ++i) {
    EXPECT_FALSE(direction_.receive.integrity_limit_reached());
    EXPECT_FALSE(direction_.open(bad));
  }
  EXPECT_TRUE(direction_.receive.integrity_limit_reached());
  EXPECT_FALSE(direction_.open(good));
}

// RFC 9001 §6.6.
TEST(KeyLimitsOf, AreThoseOfTheRfc) {
  const KeyLimits aes = key_limits(PacketCipher::kAes256Gcm);
  EXPECT_EQ(aes.seals_max, std::uint64_t{1} << 23);
  EXPECT_EQ(aes.forgeries_max, std::uint64_t{1} << 52);
  EXPECT_LT(aes.update_after, aes.seals_max);
  const KeyLimits chacha = key_limits(PacketCipher::kChaCha20Poly1305);
  EXPECT_EQ(chacha.forgeries_max, std::uint64_t{1} << 36);
  EXPECT_LT(chacha.update_after, chacha.seals_max);
}

}  // namespace
}  // namespace tusk::crypto
