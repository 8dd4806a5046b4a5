// Known answers from the RFCs that define each function; comparison and randomness by property.
#include "proto/crypto/primitives.h"

#include <gtest/gtest.h>

#include "tests/unit/crypto/test_bytes.h"

namespace tusk::crypto {
namespace {

Secret secret_from_hex(std::string_view hex) {
  const Bytes bytes = from_hex(hex);
  return Secret(std::span<const std::byte, Secret::kBytes>(bytes));
}

TEST(Sha256, MatchesFips180) {
  EXPECT_EQ(to_hex(sha256(from_text("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(HmacSha256, MatchesRfc4231) {
  EXPECT_EQ(to_hex(hmac_sha256(from_text("Jefe"), from_text("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(to_hex(hmac_sha256(Bytes(20, std::byte{0x0b}), from_text("Hi There"))),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
}

TEST(HmacSha256, TakesEmptyKeyAndData) {
  EXPECT_EQ(to_hex(hmac_sha256({}, {})), "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(Hkdf, MatchesRfc5869Case1) {
  const Secret key = hkdf_extract(from_hex("000102030405060708090a0b0c"), Bytes(22, std::byte{0x0b}));
  EXPECT_EQ(to_hex(key.bytes), "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5");
  Bytes out(42);
  hkdf_expand(key, from_hex("f0f1f2f3f4f5f6f7f8f9"), out);
  EXPECT_EQ(to_hex(out),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
}

TEST(Hkdf, ExpandsToItsLimitAndTheStartDoesNotDependOnTheLength) {
  const Secret key = hkdf_extract({}, from_text("key"));
  Bytes longest(kHkdfOutputBytesMax);
  hkdf_expand(key, {}, longest);
  Bytes shorter(33);
  hkdf_expand(key, {}, shorter);
  EXPECT_EQ(shorter, Bytes(longest.begin(), longest.begin() + 33));
  Bytes too_long(kHkdfOutputBytesMax + 1);
  EXPECT_DEATH(hkdf_expand(key, {}, too_long), "invariant");
}

// RFC 9001 appendix A.1 uses the same function with QUIC's labels.
TEST(HkdfExpandLabel, MatchesRfc9001) {
  const Secret initial =
      hkdf_extract(from_hex("38762cf7f55934b34d179ae6a4c80cadccbb7f0a"), from_hex("8394c8f03e515708"));
  EXPECT_EQ(to_hex(initial.bytes), "7db5df06e7a69e432496adedb00851923595221596ae2ae9fb8115c1e9ed0a44");
  const Secret client = hkdf_expand_label(initial, "client in");
  EXPECT_EQ(to_hex(client.bytes), "c00cf151ca5be075ed0ebfb5c80323c42d6b7db67881289af4008f1f6c357aea");
  Bytes key(16);
  hkdf_expand_label(client, "quic key", key);
  EXPECT_EQ(to_hex(key), "1f369613dd76d5467730efcbe3b1a22d");
  Bytes iv(12);
  hkdf_expand_label(client, "quic iv", iv);
  EXPECT_EQ(to_hex(iv), "fa044b2f42a3fd3b46fb255c");
}

// RFC 9001 appendix A.5.
TEST(HkdfExpandLabel, MatchesRfc9001KeyUpdate) {
  const Secret secret = secret_from_hex("9ac312a7f877468ebe69422748ad00a15443f18203a07d6060f688f30f21632b");
  EXPECT_EQ(to_hex(hkdf_expand_label(secret, "quic key").bytes),
            "c6d98ff3441c3fe1b2182094f69caa2ed4b716b65488960a7a984979fb23e1c8");
  EXPECT_EQ(to_hex(hkdf_expand_label(secret, "quic ku").bytes),
            "1223504755036d556342ee9361d253421a826c9ecdf3c7148684b36b714881f9");
}

TEST(HkdfExpandLabel, RefusesLabelsThatDoNotFitTheFormat) {
  EXPECT_DEATH(static_cast<void>(hkdf_expand_label(Secret(), std::string(kLabelBytesMax + 1, 'x'))),
               "invariant");
  EXPECT_DEATH(static_cast<void>(hkdf_expand_label(Secret(), "")), "invariant");
}

TEST(ConstantTimeEqual, IsEquality) {
  EXPECT_TRUE(constant_time_equal(from_text("same"), from_text("same")));
  EXPECT_FALSE(constant_time_equal(from_text("same"), from_text("sane")));
  EXPECT_FALSE(constant_time_equal(from_text("same"), from_text("samee")));
  EXPECT_TRUE(constant_time_equal({}, {}));
}

TEST(RandomBytes, DiffersFromCallToCall) {
  EXPECT_NE(to_hex(Secret::random().bytes), to_hex(Secret::random().bytes));
  random_bytes({});
}

TEST(Wipe, LeavesZeros) {
  Bytes bytes = pattern(100);
  wipe(bytes);
  EXPECT_EQ(bytes, Bytes(100));
  wipe({});
}

}  // namespace
}  // namespace tusk::crypto
