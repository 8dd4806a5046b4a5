// Packet headers there and back, cut short, with every bit that must be zero set, and the expansion of
// packet numbers.
#include "proto/wire/packet_header.h"

#include <gtest/gtest.h>

#include <memory>

#include "proto/base/random.h"
#include "tests/golden/samples/samples.h"

namespace tusk::wire {
namespace {

using golden::Bytes;
using golden::counting_bytes;
using golden::describe;
using golden::encode;

// ---------------------------------------------------------------- vocabulary

// The address sanitizer sees a read past the end: the memory is exactly as large as the bytes.
template <class Parse>
bool parses(Parse parse, std::span<const std::byte> bytes) {
  const auto memory = std::make_unique<std::byte[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), memory.get());
  return parse(std::span<const std::byte>(memory.get(), bytes.size())).has_value();
}

Bytes with_first_byte(Bytes bytes, unsigned first) {
  bytes[0] = static_cast<std::byte>(first);
  return bytes;
}

Bytes append(Bytes bytes, std::size_t more) {
  bytes.resize(bytes.size() + more, std::byte{0xaa});
  return bytes;
}

// ---------------------------------------------------------------- short packets

TEST(ShortHeaders, SurviveTheTripAndEndWhereThePayloadBegins) {
  for (const auto& sample : golden::short_header_samples()) {
    const auto parsed = parse_short_header(append(encode(sample.header), 20));
    ASSERT_TRUE(parsed);
    EXPECT_EQ(describe(parsed->header), describe(sample.header));
    EXPECT_EQ(parsed->size, kShortHeaderSize);
  }
}

TEST(ShortHeaders, CutAnywhereAreRefused) {
  const Bytes whole = encode(ShortHeader{});
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(parses(parse_short_header, std::span(whole).first(size))) << size;
}

TEST(ShortHeaders, HaveOneFreeBit) {
  const Bytes header = encode(ShortHeader{});
  for (unsigned first = 0; first < 256; ++first)
    EXPECT_EQ(parses(parse_short_header, with_first_byte(header, first)), first == 0x40 || first == 0x44)
        << first;
}

// ---------------------------------------------------------------- long packets

TEST(LongHeaders, SurviveTheTripAndEndWhereThePayloadBegins) {
  for (const auto& sample : golden::long_header_samples()) {
    const Bytes datagram = append(encode(sample.header), 20);
    const auto parsed = parse_long_header(datagram);
    ASSERT_TRUE(parsed) << sample.name;
    EXPECT_EQ(describe(parsed->header), describe(sample.header));
    EXPECT_EQ(parsed->size, datagram.size() - 20);
  }
}

TEST(LongHeaders, CutAnywhereAreRefused) {
  for (const auto& sample : golden::long_header_samples()) {
    const Bytes whole = encode(sample.header);
    for (std::size_t size = 0; size < whole.size(); ++size)
      EXPECT_FALSE(parses(parse_long_header, std::span(whole).first(size)))
          << sample.name << " cut to " << size;
  }
}

TEST(LongHeaders, HaveTwoFreeBits) {
  const Bytes header = encode(LongHeader{});
  for (unsigned first = 0; first < 256; ++first)
    EXPECT_EQ(parses(parse_long_header, with_first_byte(header, first)), (first & 0xcf) == 0xc0) << first;
}

TEST(LongHeaders, OfAnotherVersionAreReadable) {
  // Version negotiation must be able to answer versions that do not exist yet.
  LongHeader header;
  header.version = 0xfeedface;
  EXPECT_EQ(parse_long_header(encode(header))->header.version, 0xfeedfaceu);
}

TEST(LongHeaders, CarryATokenOfAtMostTheAgreedBytes) {
  const Bytes token = counting_bytes(kTokenMax);
  LongHeader header;
  header.token = token;
  Bytes bytes = encode(header);
  EXPECT_EQ(bytes.size(), long_header_size(kTokenMax));
  EXPECT_EQ(parse_long_header(bytes)->header.token.size(), kTokenMax);

  constexpr std::size_t kTokenLengthAt = 1 + 4 + 2 * ConnectionIdBytes::kSize;
  bytes = append(std::move(bytes), 200);
  for (unsigned size = kTokenMax + 1; size < 256; ++size) {
    bytes[kTokenLengthAt] = static_cast<std::byte>(size);
    EXPECT_FALSE(parse_long_header(bytes)) << size;
  }
}

// ---------------------------------------------------------------- kinds of packet

TEST(PacketKinds, AreToldByTheFirstTwoBits) {
  EXPECT_EQ(is_long_packet({}), std::nullopt);
  for (unsigned first = 0; first < 256; ++first) {
    const std::byte byte{static_cast<unsigned char>(first)};
    const auto expected = first & 0x40 ? std::optional(first >= 0x80) : std::nullopt;
    EXPECT_EQ(is_long_packet(std::span(&byte, 1)), expected) << first;
  }
}

TEST(PacketKinds, NoDatagramIsBoth) {
  Random random(11);
  for (int i = 0; i < 20'000; ++i) {
    Bytes bytes(random.below(64));
    for (std::byte& b : bytes) b = static_cast<std::byte>(random.next());
    EXPECT_FALSE(parses(parse_short_header, bytes) && parses(parse_long_header, bytes));
  }
}

// ---------------------------------------------------------------- packet numbers

std::uint64_t expand(std::uint32_t low, std::uint64_t expected) {
  return expand_packet_number(low, PacketNumber(expected)).value();
}

TEST(PacketNumbers, ExpandAsInTheExampleOfRfc9000) {
  // Appendix A.3 has 16 bits on the wire: 0xa82f30ea was the largest, 0x9b32 arrives, 0xa82f9b32 is
  // meant. The same distance with our 32 bits, 16 bits further up.
  EXPECT_EQ(expand(0x9b320000, 0xa82f30eb0000), 0xa82f9b320000u);
}

TEST(PacketNumbers, StartAtZero) {
  EXPECT_EQ(expand(0, 0), 0u);
  EXPECT_EQ(expand(5, 0), 5u);
  // Nothing lies below the first window.
  EXPECT_EQ(expand(0xffffffff, 0), 0xffffffffu);
}

TEST(PacketNumbers, CrossTheWindowsEdgeInBothDirections) {
  constexpr std::uint64_t kWindow = 1ull << 32;
  EXPECT_EQ(expand(0, kWindow - 1), kWindow) << "the next packet, beyond the edge";
  EXPECT_EQ(expand(0xffffffff, kWindow), kWindow - 1) << "a late one from before the edge";
  EXPECT_EQ(expand(0xfffffff0, 7 * kWindow + 3), 7 * kWindow - 16);
  EXPECT_EQ(expand(3, 8 * kWindow - 16), 8 * kWindow + 3);
}

TEST(PacketNumbers, ExpandToTheNearestThatEndsSo) {
  Random random(5);
  constexpr std::uint64_t kHalf = 1ull << 31;
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t expected = random.next() >> (2 + random.below(40));
    const std::uint64_t back = std::min(expected, kHalf - 1);
    const std::uint64_t sent = expected - back + random.below(back + kHalf);
    ASSERT_EQ(expand(static_cast<std::uint32_t>(sent), expected), sent) << "expected " << expected;
  }
}

TEST(PacketNumbers, ExactlyHalfAWindowAheadIsStillAhead) {
  constexpr std::uint64_t kExpected = (5ull << 32) + 1000;
  EXPECT_EQ(expand(static_cast<std::uint32_t>(kExpected + (1ull << 31)), kExpected),
            kExpected + (1ull << 31));
  EXPECT_EQ(expand(static_cast<std::uint32_t>(kExpected + (1ull << 31) + 1), kExpected),
            kExpected - (1ull << 31) + 1);
}

}  // namespace
}  // namespace tusk::wire
