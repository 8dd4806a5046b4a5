// Messages in pieces: what is cut on one side is whole on the other, in any order, with any loss.
#include <gtest/gtest.h>

#include <algorithm>

#include "proto/base/random.h"
#include "proto/transport/incoming_message.h"
#include "proto/transport/outgoing_message.h"
#include "tests/golden/samples/wire_text.h"
#include "tests/unit/transport/malformed.h"

namespace tusk::transport {
namespace {

using golden::Bytes;
using golden::counting_bytes;
using wire::ExchangeId;

// ---------------------------------------------------------------- vocabulary

SharedBytes random_bytes(std::size_t size, Random& random) {
  MutableSharedBytes bytes = allocate_bytes(size);
  for (std::byte& b : bytes.bytes) b = static_cast<std::byte>(random.next());
  return bytes.first(size);
}

bool equal(const SharedBytes& a, const SharedBytes& b) { return std::ranges::equal(a.bytes, b.bytes); }

wire::MessageHeaderFrame header_frame(ByteCount header_size, ByteCount body_size, ByteCount offset,
                                      std::span<const std::byte> data) {
  return {ExchangeId(0), wire::Priority::kBulk, header_size, body_size, 77, offset, data};
}
wire::BodyFrame body_frame(ByteCount offset, std::span<const std::byte> data) {
  return {ExchangeId(0), offset, data};
}

Result<void> deliver(IncomingMessage& message, const OutgoingMessage& from,
                     const OutgoingMessage::Piece& piece) {
  if (piece.part == Part::kBody) return message.handle_body(body_frame(piece.offset, piece.data));
  return message.handle_header(header_frame(from.header_size(), from.body_size(), piece.offset, piece.data));
}

MutableSharedBytes place_of(std::size_t size) { return allocate_bytes(size); }

// ---------------------------------------------------------------- out and in again

// Cuts, loses, delays, repeats and reorders until all is acknowledged.
void expect_arrives(std::uint64_t seed, bool into_a_place) {
  Random random(seed);
  const SharedBytes header = random_bytes(1 + random.below(5000), random);
  const SharedBytes body = random_bytes(random.chance(0.2) ? 0 : random.below(100'000), random);
  OutgoingMessage out(header, body, wire::Priority::kBulk, 77);
  IncomingMessage in(into_a_place ? std::optional(place_of(body.size() + random.below(1000))) : std::nullopt);
  std::vector<OutgoingMessage::Piece> under_way;
  ByteCount unsent = out.unsent();
  EXPECT_EQ(unsent, header.size() + body.size());

  for (int step = 0; !out.fully_acked(); ++step) {
    ASSERT_LT(step, 100'000) << "it never ends";
    const bool again = out.has_lost() && random.chance(0.7);
    const auto position = again ? out.next_lost() : out.next_unsent();
    if (position && (under_way.empty() || random.chance(0.6))) {
      const auto piece = out.take(*position, again, 1 + random.below(3000));
      if (!again) unsent -= piece.data.size();
      ASSERT_EQ(out.unsent(), unsent);
      under_way.push_back(piece);
      continue;
    }
    if (under_way.empty()) continue;
    const std::size_t pick = random.below(under_way.size());
    const OutgoingMessage::Piece piece = under_way[pick];
    const bool arrives = random.chance(0.7);
    if (arrives) {
      ASSERT_TRUE(deliver(in, out, piece));
    }
    if (arrives && random.chance(0.2)) continue;  // it will come again
    under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(pick));
    // An acknowledgement may be lost, never invented.
    if (arrives && random.chance(0.9)) {
      out.handle_acked(piece.part, piece.offset, piece.data.size());
    } else {
      out.handle_lost(piece.part, piece.offset, piece.data.size());
    }
  }
  EXPECT_FALSE(out.has_lost());
  ASSERT_TRUE(in.complete());
  EXPECT_TRUE(equal(in.header(), header));
  EXPECT_TRUE(equal(in.body(), body));
  EXPECT_EQ(in.body_arrived(), body.size()) << "each byte once";
  EXPECT_EQ(in.reply_capacity(), 77u);
}

TEST(Messages, ArriveWholeInFreshMemory) {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    expect_arrives(seed, false);
  }
}

TEST(Messages, ArriveWholeInTheirPlace) {
  for (std::uint64_t seed = 1000; seed <= 1150; ++seed) {
    SCOPED_TRACE(seed);
    expect_arrives(seed, true);
  }
}

// ---------------------------------------------------------------- outgoing

OutgoingMessage small_message() {
  return {copy_bytes(counting_bytes(10)), copy_bytes(counting_bytes(100)), wire::Priority::kInteractive, 0};
}

TEST(OutgoingMessage, SendsTheHeaderFirst) {
  OutgoingMessage message = small_message();
  EXPECT_EQ(message.next_unsent()->part, Part::kHeader);
  message.take(*message.next_unsent(), false, 10);
  EXPECT_EQ(message.next_unsent()->part, Part::kBody);
}

TEST(OutgoingMessage, SendsOnlyLostBytesAgain) {
  OutgoingMessage message = small_message();
  message.take(*message.next_unsent(), false, 10);
  message.take(*message.next_unsent(), false, 100);
  EXPECT_FALSE(message.has_unsent());
  message.handle_acked(Part::kBody, 20, 30);
  message.handle_lost(Part::kBody, 0, 60);
  ASSERT_TRUE(message.has_lost());
  const auto first = message.take(*message.next_lost(), true, 1000);
  EXPECT_EQ(first.offset, 0u);
  EXPECT_EQ(first.data.size(), 20u);
  const auto second = message.take(*message.next_lost(), true, 1000);
  EXPECT_EQ(second.offset, 50u);
  EXPECT_EQ(second.data.size(), 10u);
  EXPECT_FALSE(message.has_lost());
}

TEST(OutgoingMessage, KnowsWhatIsLostAgainAndAgain) {
  using enum RepeatedLosses::Verdict;
  for (const Part part : {Part::kHeader, Part::kBody}) {
    OutgoingMessage message = small_message();
    message.take(*message.next_unsent(), false, 10);
    message.take(*message.next_unsent(), false, 100);
    RepeatedLosses::Seen seen{TimePoint(1s), 1s, 30s, 0, 0};
    const auto lose = [&](ByteCount offset, ByteCount length) {
      seen.now += 1s;
      seen.acked += 1000;
      ++seen.lost;
      return message.note_loss(seen, part, offset, length);
    };
    for (int i = 0; i < 30; ++i) EXPECT_NE(lose(0, 5), kTooLong);
    EXPECT_FALSE(message.has_lost()) << "it only counts";
    message.handle_acked(part == Part::kHeader ? Part::kBody : Part::kHeader, 0, 10);
    EXPECT_EQ(lose(0, 5), kTooLong);
    EXPECT_EQ(lose(5, 5), kChance);
    message.handle_acked(part, 0, 5);
    EXPECT_EQ(lose(0, 10), kChance);
  }
}

TEST(OutgoingMessage, ALateAcknowledgementTakesBackALoss) {
  OutgoingMessage message = small_message();
  message.take(*message.next_unsent(), false, 10);
  message.handle_lost(Part::kHeader, 0, 10);
  ASSERT_TRUE(message.has_lost());
  message.handle_acked(Part::kHeader, 0, 10);
  EXPECT_FALSE(message.has_lost());
  message.handle_lost(Part::kHeader, 0, 10);
  EXPECT_FALSE(message.has_lost()) << "a copy arrived already";
}

// ---------------------------------------------------------------- incoming: what a broken peer sends

TEST(IncomingMessage, ContradictorySizesAreMalformed) {
  const Bytes data = counting_bytes(10);
  IncomingMessage message(std::nullopt);
  ASSERT_TRUE(message.handle_header(header_frame(30, 100, 0, data)));
  EXPECT_TRUE(is_malformed(message.handle_header(header_frame(31, 100, 10, data))));
  EXPECT_TRUE(is_malformed(message.handle_header(header_frame(30, 99, 10, data))));
  EXPECT_TRUE(message.handle_header(header_frame(30, 100, 10, data)));
}

TEST(IncomingMessage, AnotherReplyCapacityOrPriorityIsMalformed) {
  const Bytes data = counting_bytes(10);
  IncomingMessage message(std::nullopt);
  ASSERT_TRUE(message.handle_header(header_frame(30, 100, 0, data)));
  wire::MessageHeaderFrame other = header_frame(30, 100, 10, data);
  ++other.reply_capacity;
  EXPECT_TRUE(is_malformed(message.handle_header(other)));
  other = header_frame(30, 100, 10, data);
  other.priority = wire::Priority::kInteractive;
  EXPECT_TRUE(is_malformed(message.handle_header(other)));
  EXPECT_FALSE(message.complete());
  EXPECT_TRUE(message.handle_header(header_frame(30, 100, 10, data)));
}

TEST(IncomingMessage, BodyBytesPastTheEndAreMalformedWhicheverComesFirst) {
  const Bytes data = counting_bytes(10);
  IncomingMessage header_first(std::nullopt);
  ASSERT_TRUE(header_first.handle_header(header_frame(10, 15, 0, data)));
  EXPECT_TRUE(is_malformed(header_first.handle_body(body_frame(6, data))));
  EXPECT_TRUE(header_first.handle_body(body_frame(5, data)));

  IncomingMessage body_first(std::nullopt);
  ASSERT_TRUE(body_first.handle_body(body_frame(6, data)));
  EXPECT_TRUE(is_malformed(body_first.handle_header(header_frame(10, 15, 0, data))));
}

TEST(IncomingMessage, ABodyMustFitItsPlace) {
  const Bytes data = counting_bytes(10);
  IncomingMessage message(place_of(100));
  EXPECT_TRUE(is_malformed(message.handle_header(header_frame(10, 101, 0, data))));
  EXPECT_TRUE(is_malformed(message.handle_body(body_frame(91, data))));
  EXPECT_TRUE(message.handle_body(body_frame(90, data)));
  EXPECT_TRUE(message.handle_header(header_frame(10, 100, 0, data)));
}

TEST(IncomingMessage, AnEmptyPlaceTakesNoBody) {
  const Bytes data = counting_bytes(1);
  IncomingMessage message{MutableSharedBytes{}};
  EXPECT_TRUE(is_malformed(message.handle_body(body_frame(0, data))));
  EXPECT_TRUE(message.handle_header(header_frame(1, 0, 0, data)));
  EXPECT_TRUE(message.complete());
  EXPECT_TRUE(message.body().empty());
}

TEST(IncomingMessage, TheLargestBodyFitsBeforeItsSizeIsKnown) {
  const Bytes data = counting_bytes(16);
  IncomingMessage message(std::nullopt);
  EXPECT_TRUE(message.handle_body(body_frame(wire::kMessageBodyMax - 16, data)));
  EXPECT_TRUE(is_malformed(message.handle_body(body_frame(wire::kMessageBodyMax - 15, data))));
}

TEST(IncomingMessage, MemoryFollowsWhatCame) {
  std::vector<std::size_t> sizes;
  const Allocate allocate = [&](std::size_t size) {
    sizes.push_back(size);
    return allocate_bytes(size);
  };
  const Bytes data = counting_bytes(1000);
  IncomingMessage message(std::nullopt, &allocate);
  ASSERT_TRUE(message.handle_body(body_frame(0, std::span(data).first(1))));
  EXPECT_EQ(sizes, (std::vector<std::size_t>{4096})) << "one byte does not take the largest body";
  ASSERT_TRUE(message.handle_body(body_frame(5000, data)));
  EXPECT_EQ(sizes.back(), 8192u);
  ASSERT_TRUE(message.handle_body(body_frame(1, std::span(data).subspan(1))));
  for (ByteCount offset = 1000; offset < 5000; offset += 1000)
    ASSERT_TRUE(message.handle_body(body_frame(offset, data)));
  ASSERT_TRUE(message.handle_header(header_frame(10, 10'000, 0, std::span(data).first(10))));
  EXPECT_EQ(sizes, (std::vector<std::size_t>{4096, 8192, 10, 10'000}));
  for (ByteCount offset = 6000; offset < 10'000; offset += 1000)
    ASSERT_TRUE(message.handle_body(body_frame(offset, data)));
  ASSERT_TRUE(message.complete());
  for (std::size_t i = 0; i < 10'000; ++i) ASSERT_EQ(message.body().bytes[i], data[i % 1000]) << i;
}

TEST(IncomingMessage, AMessageFullOfHolesIsMalformed) {
  const Bytes data = counting_bytes(1);
  for (const bool in_body : {true, false}) {
    IncomingMessage message(std::nullopt);
    const auto piece = [&](ByteCount offset) {
      return in_body ? message.handle_body(body_frame(offset, data))
                     : message.handle_header(header_frame(100'000, 0, offset, data));
    };
    const std::size_t most = IncomingMessage::runs_max(80'000);
    ASSERT_TRUE(piece(79'999));
    for (std::size_t i = 1; i < most; ++i) ASSERT_TRUE(piece(2 * i)) << i;
    EXPECT_TRUE(piece(3)) << "filling a hole is welcome";
    EXPECT_TRUE(piece(70'000));
    EXPECT_TRUE(is_malformed(piece(70'002)));
  }
}

TEST(IncomingMessage, EverySecondPieceOfTheSmallestDatagramsIsNotTooManyHoles) {
  const Bytes data = counting_bytes(1190);
  IncomingMessage message(std::nullopt);
  for (ByteCount offset = 0; offset + data.size() <= wire::kMessageBodyMax; offset += 2 * data.size())
    ASSERT_TRUE(message.handle_body(body_frame(offset, data))) << offset;
}

TEST(IncomingMessage, AFewBytesHaveRoomForFewHoles) {
  const Bytes data = counting_bytes(1);
  IncomingMessage message(std::nullopt);
  Result<void> result;
  int pieces = 0;
  for (ByteCount offset = 16'382; result && offset > 0; offset -= 2, ++pieces)
    result = message.handle_body(body_frame(offset, data));
  EXPECT_TRUE(is_malformed(result));
  EXPECT_LE(pieces, 50) << "each further one would move all that came before";
}

TEST(IncomingMessage, IsCompleteOnlyWithItsLastByte) {
  const Bytes data = counting_bytes(2);
  IncomingMessage message(std::nullopt);
  EXPECT_FALSE(message.complete());
  ASSERT_TRUE(message.handle_body(body_frame(0, data)));
  EXPECT_FALSE(message.complete()) << "nobody knows how long it is";
  ASSERT_TRUE(message.handle_header(header_frame(4, 2, 0, data)));
  EXPECT_FALSE(message.complete());
  ASSERT_TRUE(message.handle_header(header_frame(4, 2, 2, data)));
  EXPECT_TRUE(message.complete());
}

}  // namespace
}  // namespace tusk::transport
