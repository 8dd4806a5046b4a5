// The ways to the same cipher. What all of them must do is in packet_protection_test.cc.
#include "proto/crypto/aead.h"

#include <gtest/gtest.h>

#include "tests/unit/crypto/test_bytes.h"

namespace tusk::crypto {
namespace {

class WaysToAes : public testing::Test {
 protected:
  void SetUp() override {
    if (!ipsec_) GTEST_SKIP() << "skipped, because there is no ipsec-mb here, or no instructions for AES";
  }

  const Bytes key_bytes_ = pattern(kKeyBytes);
  const std::span<const std::byte, kKeyBytes> key_{key_bytes_};
  std::unique_ptr<Aead> openssl_ = make_openssl_aead(PacketCipher::kAes256Gcm, key_);
  std::unique_ptr<Aead> ipsec_ = make_ipsec_aead(key_);
  Aead::Nonce nonce_{std::byte{1}, std::byte{2}, std::byte{3}};
};

TEST_F(WaysToAes, SealTheSameBytes) {
  for (std::size_t size = 0; size <= 1600; size += size < 300 ? 1 : 37) {
    for (const std::size_t header_size : {std::size_t{0}, std::size_t{1}, std::size_t{14}, size % 40}) {
      const Bytes header = pattern(header_size);
      for (const std::size_t tail_size : {std::size_t{0}, size / 3, size}) {
        const Bytes tail = pattern(tail_size);
        Bytes one = pattern(size - tail_size), other = one;
        one.resize(size + kTagBytes);
        other.resize(size + kTagBytes);
        nonce_[11] = std::byte(size);
        openssl_->seal(nonce_, header, tail, one);
        ipsec_->seal(nonce_, header, tail, other);
        ASSERT_EQ(one, other) << size << " " << header_size << " " << tail_size;
        ASSERT_TRUE(openssl_->open(nonce_, header, other));
        ASSERT_TRUE(ipsec_->open(nonce_, header, one));
        ASSERT_EQ(one, other);
      }
    }
  }
}

TEST_F(WaysToAes, RefuseTheSamePackets) {
  Bytes packet = pattern(200);
  openssl_->seal(nonce_, {}, {}, packet);
  for (std::size_t i = 0; i < packet.size(); ++i) {
    Bytes one = flip_bit(packet, i, i % 8), other = one;
    ASSERT_FALSE(openssl_->open(nonce_, {}, one)) << i;
    ASSERT_FALSE(ipsec_->open(nonce_, {}, other)) << i;
  }
}

}  // namespace
}  // namespace tusk::crypto
