#include "proto/crypto/address_token.h"

#include <gtest/gtest.h>

#include "tests/unit/crypto/test_bytes.h"

namespace tusk::crypto {
namespace {

constexpr UnixSeconds kNow{1'700'000'000};

Secret secret_of(unsigned char fill) {
  Secret secret;
  secret.bytes.fill(static_cast<std::byte>(fill));
  return secret;
}

class AddressToken : public testing::TestWithParam<AddressTokenKind> {
 protected:
  [[nodiscard]] Bytes mint() const { return tokens_.mint(GetParam(), address_, id_, kNow); }
  [[nodiscard]] ErrorCode error_of(const Bytes& token, const Bytes& address, UnixSeconds now = kNow) const {
    return error_of(token, address, id_, now);
  }
  [[nodiscard]] ErrorCode error_of(const Bytes& token, const Bytes& address, const Bytes& id,
                                   UnixSeconds now = kNow) const {
    const auto checked = tokens_.check(token, address, id, now);
    return checked ? ErrorCode::kOk : checked.error().code;
  }
  [[nodiscard]] static std::uint64_t lifetime() {
    return GetParam() == AddressTokenKind::kRetry ? kRetryTokenLifetimeSeconds : kFutureTokenLifetimeSeconds;
  }

  AddressTokens tokens_{secret_of(1)};
  const Bytes address_ = from_hex("20010db8000000000000000000000001115c");
  const Bytes id_ = from_hex("8394c8f03e515708");
};

INSTANTIATE_TEST_SUITE_P(AllKinds, AddressToken,
                         testing::Values(AddressTokenKind::kRetry, AddressTokenKind::kFuture,
                                         AddressTokenKind::kAdmitted),
                         [](const auto& tested) {
                           if (tested.param == AddressTokenKind::kRetry) return "Retry";
                           return tested.param == AddressTokenKind::kFuture ? "Future" : "Admitted";
                         });

TEST_P(AddressToken, IsBelievedFromItsAddress) {
  const Bytes token = mint();
  EXPECT_EQ(token.size(), kAddressTokenBytes);
  EXPECT_EQ(token_kind(token), GetParam());
  EXPECT_EQ(error_of(token, address_), ErrorCode::kOk);
}

TEST_P(AddressToken, TakesTheLongestInputsAndNoLongerOnes) {
  const Bytes address(kTokenAddressBytesMax, std::byte{7});
  const Bytes id(kTokenConnectionIdBytesMax, std::byte{8});
  EXPECT_EQ(error_of(tokens_.mint(GetParam(), address, id, kNow), address, id), ErrorCode::kOk);
  EXPECT_DEATH(static_cast<void>(tokens_.mint(GetParam(), Bytes(kTokenAddressBytesMax + 1), id, kNow)),
               "invariant");
  EXPECT_DEATH(
      static_cast<void>(tokens_.mint(GetParam(), address, Bytes(kTokenConnectionIdBytesMax + 1), kNow)),
      "invariant");
}

TEST_P(AddressToken, LivesExactlyItsLifetime) {
  const Bytes token = mint();
  EXPECT_EQ(error_of(token, address_, kNow + lifetime()), ErrorCode::kOk);
  EXPECT_EQ(error_of(token, address_, kNow + lifetime() + 1), ErrorCode::kTimedOut);
}

TEST_P(AddressToken, ToleratesAClockSetBackALittle) {
  const Bytes token = mint();
  EXPECT_EQ(error_of(token, address_, kNow - kTokenClockSlackSeconds), ErrorCode::kOk);
  EXPECT_EQ(error_of(token, address_, kNow - kTokenClockSlackSeconds - 1), ErrorCode::kTimedOut);
  EXPECT_EQ(error_of(token, address_, UnixSeconds{0}), ErrorCode::kTimedOut);
}

TEST_P(AddressToken, IsForItsAddressOnly) {
  const Bytes token = mint();
  for (std::size_t i = 0; i < address_.size(); ++i)
    EXPECT_EQ(error_of(token, flip_bit(address_, i)), ErrorCode::kAuthenticationFailed);
  EXPECT_EQ(error_of(token, Bytes(address_.begin(), address_.end() - 1)), ErrorCode::kAuthenticationFailed);
  EXPECT_EQ(error_of(token, {}), ErrorCode::kAuthenticationFailed);
  EXPECT_EQ(error_of(token, Bytes(kTokenAddressBytesMax + 1)), ErrorCode::kMalformed);
}

TEST_P(AddressToken, IsForItsConnectionOnly) {
  const Bytes token = mint();
  for (std::size_t i = 0; i < id_.size(); ++i)
    EXPECT_EQ(error_of(token, address_, flip_bit(id_, i)), ErrorCode::kAuthenticationFailed);
  EXPECT_EQ(error_of(token, address_, Bytes{}), ErrorCode::kAuthenticationFailed);
  EXPECT_EQ(error_of(token, address_, Bytes(kTokenConnectionIdBytesMax + 1)), ErrorCode::kMalformed);
}

TEST_P(AddressToken, OfNoConnectionIsForNone) {
  const Bytes token = tokens_.mint(GetParam(), address_, {}, kNow);
  EXPECT_EQ(error_of(token, address_, Bytes{}), ErrorCode::kOk);
  EXPECT_EQ(error_of(token, address_), ErrorCode::kAuthenticationFailed);
}

TEST_P(AddressToken, RefusesEveryFlippedBit) {
  const Bytes token = mint();
  for (std::size_t i = 0; i < token.size(); ++i)
    for (unsigned bit = 0; bit < 8; ++bit)
      EXPECT_NE(error_of(flip_bit(token, i, bit), address_), ErrorCode::kOk) << i << "." << bit;
}

TEST_P(AddressToken, RefusesEveryTruncationAndAnExtension) {
  Bytes token = mint();
  for (std::size_t length = 0; length < token.size(); ++length) {
    const Bytes shortened(token.begin(), token.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_EQ(error_of(shortened, address_), ErrorCode::kMalformed) << length;
    EXPECT_EQ(token_kind(shortened), std::nullopt);
  }
  token.push_back(std::byte{0});
  EXPECT_EQ(error_of(token, address_), ErrorCode::kMalformed);
}

TEST_P(AddressToken, DoesNotMoveBytesBetweenAddressAndConnectionId) {
  const Bytes token = tokens_.mint(GetParam(), from_text("ab"), from_text("cd"), kNow);
  EXPECT_EQ(error_of(token, from_text("ab"), from_text("cd")), ErrorCode::kOk);
  EXPECT_EQ(error_of(token, from_text("abc"), from_text("d")), ErrorCode::kAuthenticationFailed);
  EXPECT_EQ(error_of(token, from_text("a"), from_text("bcd")), ErrorCode::kAuthenticationFailed);
}

TEST_P(AddressToken, OfAnotherServerIsRefused) {
  const AddressTokens other(secret_of(9));
  EXPECT_EQ(error_of(other.mint(GetParam(), address_, id_, kNow), address_),
            ErrorCode::kAuthenticationFailed);
}

TEST_P(AddressToken, CannotChangeItsKind) {
  Bytes token = mint();
  const auto other = (static_cast<unsigned>(GetParam()) + 1) % 3;
  token[0] = static_cast<std::byte>(other);
  EXPECT_EQ(error_of(token, address_), ErrorCode::kAuthenticationFailed);
}

// Golden bytes: the layout in the header, computed by hand but for the MAC.
TEST(AddressTokenFormat, IsAsDocumented) {
  const AddressTokens tokens(secret_of(1));
  const Bytes address = from_hex("c0000201");
  const Bytes body = from_hex("01000000006553f100");
  Bytes authenticated = body;
  for (const std::byte byte : from_hex("04c000020102abcd")) authenticated.push_back(byte);
  EXPECT_EQ(to_hex(tokens.mint(AddressTokenKind::kFuture, address, from_hex("abcd"), kNow)),
            to_hex(body) + to_hex(hmac_sha256(secret_of(1).bytes, authenticated)));
}

}  // namespace
}  // namespace tusk::crypto
