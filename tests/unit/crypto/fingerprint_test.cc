#include "proto/crypto/fingerprint.h"

#include <gtest/gtest.h>

#include <unordered_set>

#include "proto/crypto/base64url.h"
#include "tests/unit/crypto/test_bytes.h"

namespace tusk::crypto {
namespace {

TEST(Base64url, MatchesRfc4648WithoutPadding) {
  const std::pair<std::string_view, std::string_view> kVectors[] = {
      {"", ""},           {"f", "Zg"},          {"fo", "Zm8"},          {"foo", "Zm9v"},
      {"foob", "Zm9vYg"}, {"fooba", "Zm9vYmE"}, {"foobar", "Zm9vYmFy"},
  };
  for (const auto& [plain, text] : kVectors) {
    EXPECT_EQ(base64url_encode(as_byte_span(plain)), text);
    const auto decoded = base64url_decode(text);
    ASSERT_TRUE(decoded) << text;
    EXPECT_EQ(*decoded, from_text(plain));
  }
}

TEST(Base64url, UsesTheUrlAlphabet) { EXPECT_EQ(base64url_encode(from_hex("fbff")), "-_8"); }

TEST(Base64url, RoundTripsEveryByteAtEveryLength) {
  for (std::size_t size = 0; size < 256; ++size) {
    Bytes bytes(size);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(255 - i);
    const auto decoded = base64url_decode(base64url_encode(bytes));
    ASSERT_TRUE(decoded);
    EXPECT_EQ(*decoded, bytes);
  }
}

TEST(Base64url, RefusesAllButItsOwnForm) {
  for (const std::string_view text :
       std::initializer_list<std::string_view>{"Z", "Zg==", "Zm8=", "Zm 9", "+_8A", "/w", "Zm9v\n",
                                               std::string_view("Zg\0A", 4), "Zh", "Zm9", "\xff\xff"}) {
    const auto decoded = base64url_decode(text);
    ASSERT_FALSE(decoded) << text;
    EXPECT_EQ(decoded.error().code, ErrorCode::kMalformed);
  }
}

Fingerprint example() {
  Fingerprint fingerprint;
  const Bytes bytes = pattern(Fingerprint::kBytes);
  std::copy(bytes.begin(), bytes.end(), fingerprint.bytes.begin());
  return fingerprint;
}

TEST(FingerprintText, RoundTrips) {
  const std::string text = example().to_text();
  EXPECT_EQ(text, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8");
  EXPECT_EQ(text.size(), Fingerprint::kTextLength);
  const auto parsed = Fingerprint::parse(text);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(*parsed, example());
}

TEST(FingerprintText, RefusesOtherLengthsAndForms) {
  const std::string text = example().to_text();
  const std::string bad[] = {"", text.substr(1), text + "A", text.substr(1) + "=", text.substr(1) + "9"};
  for (const std::string& wrong : bad) {
    const auto parsed = Fingerprint::parse(wrong);
    ASSERT_FALSE(parsed) << wrong;
    EXPECT_EQ(parsed.error().code, ErrorCode::kMalformed);
  }
}

TEST(Fingerprint, ComparesAndHashesByItsBytes) {
  Fingerprint other = example();
  other.bytes.back() ^= std::byte{1};
  EXPECT_NE(example(), other);
  EXPECT_TRUE((example() < other) != (other < example()));
  EXPECT_EQ((std::unordered_set<Fingerprint>{example(), other, example()}.size()), 2U);
}

}  // namespace
}  // namespace tusk::crypto
