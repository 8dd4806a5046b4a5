#include "proto/base/bytes.h"

#include <gtest/gtest.h>

#include <array>

#include "proto/base/result.h"

namespace tusk {
namespace {

// Worked examples of RFC 9000, Appendix A.1.
TEST(Varint, MatchesTheExamplesOfRfc9000) {
  const auto decode = [](std::initializer_list<int> list) {
    std::array<std::byte, 8> bytes{};
    std::size_t n = 0;
    for (int b : list) bytes[n++] = static_cast<std::byte>(b);
    ByteReader reader{std::span(bytes).first(n)};
    const std::uint64_t value = reader.varint();
    EXPECT_TRUE(reader.ok() && reader.at_end());
    return value;
  };
  EXPECT_EQ(decode({0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c}), 151288809941952652u);
  EXPECT_EQ(decode({0x9d, 0x7f, 0x3e, 0x7d}), 494878333u);
  EXPECT_EQ(decode({0x7b, 0xbd}), 15293u);
  EXPECT_EQ(decode({0x25}), 37u);
}

TEST(Varint, RoundTripsAtEveryBoundary) {
  for (std::uint64_t v : {0ull, 63ull, 64ull, 16383ull, 16384ull, (1ull << 30) - 1, 1ull << 30,
                          static_cast<unsigned long long>(kVarintMax)}) {
    std::array<std::byte, 8> bytes;
    ByteWriter writer(bytes);
    writer.varint(v);
    EXPECT_EQ(writer.written(), varint_size(v));
    ByteReader reader{std::span(bytes).first(writer.written())};
    EXPECT_EQ(reader.varint(), v);
    EXPECT_TRUE(reader.at_end());
    ByteReader cut{std::span(bytes).first(writer.written() - 1)};
    EXPECT_EQ(cut.varint(), 0u);
    EXPECT_FALSE(cut.ok());
  }
}

TEST(ByteReader, StaysBadAfterAnOverrun) {
  std::array<std::byte, 3> bytes{};
  ByteReader reader(bytes);
  reader.u32();
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.u8(), 0);
  EXPECT_TRUE(reader.take(1).empty());
  EXPECT_FALSE(reader.ok());
}

TEST(ErrorCode, OfOurOwnMapToAnErrnoAndSystemOnesToThemselves) {
  EXPECT_EQ(to_errno(from_errno(ENOENT)), ENOENT);
  EXPECT_EQ(to_errno(ErrorCode::kCancelled), EINTR);
  EXPECT_EQ(to_errno(static_cast<ErrorCode>(4711)), EIO);
  EXPECT_EQ((Error{from_errno(ENOENT), "open /x"}.message()), "open /x: No such file or directory");
}

}  // namespace
}  // namespace tusk
