// Every frame there and back, cut short at every byte, and at its limits.
#include "proto/wire/frame.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "proto/base/random.h"
#include "proto/base/shared_bytes.h"
#include "tests/golden/samples/samples.h"

namespace tusk::wire {
namespace {

using golden::BodyForm;
using golden::Bytes;
using golden::counting_bytes;
using golden::decode_all;
using golden::decode_one;
using golden::describe;
using golden::encode;
using golden::from_hex;

// ---------------------------------------------------------------- vocabulary

std::string round_trip(const Frame& frame, BodyForm form = BodyForm::kSized) {
  const Bytes bytes = encode(frame, form);
  const auto decoded = decode_one(bytes);
  return decoded ? describe(*decoded) : "malformed";
}

// As round_trip, for frames whose spans the text must still show.
void expect_survives(const Frame& frame, BodyForm form = BodyForm::kSized) {
  EXPECT_EQ(round_trip(frame, form), describe(frame));
}

// What a payload decodes to, or "malformed".
std::string meaning(std::span<const std::byte> payload) {
  const auto frames = decode_all(payload);
  if (!frames) return "malformed";
  std::string text;
  for (const Frame& frame : *frames) text += (text.empty() ? "" : "; ") + describe(frame);
  return text;
}
std::string meaning_of_hex(std::string_view hex) { return meaning(from_hex(hex).value()); }

bool malformed(std::string_view hex) { return meaning_of_hex(hex) == "malformed"; }

// `bytes` in memory of exactly their size, so that the address sanitizer sees a read past their end.
std::optional<Frame> decode_first_tightly(std::span<const std::byte> bytes,
                                          std::unique_ptr<std::byte[]>& memory) {
  memory = std::make_unique<std::byte[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), memory.get());
  ByteReader reader(std::span<const std::byte>(memory.get(), bytes.size()));
  return read_frame(reader);
}

// The varint of `value` in `length` bytes, which may be more than it needs.
void long_varint(Bytes& out, std::uint64_t value, int length) {
  const std::uint64_t prefix = length == 1 ? 0 : length == 2 ? 1 : length == 4 ? 2 : 3;
  value |= prefix << (8 * length - 2);
  for (int i = length - 1; i >= 0; --i) out.push_back(static_cast<std::byte>(value >> (8 * i)));
}

// ---------------------------------------------------------------- there and back

TEST(Frames, SurviveTheTrip) {
  for (const auto& sample : golden::frame_samples()) expect_survives(sample.frame, sample.form);
}

TEST(Frames, CutAnywhereAreMalformedAndNeverReadPastTheEnd) {
  for (const auto& sample : golden::frame_samples()) {
    const Bytes whole = encode(sample.frame, sample.form);
    // What runs to the packet's end has no end of its own to miss, once it has begun.
    const bool open_ended =
        sample.form == BodyForm::kToTheEnd || std::holds_alternative<PaddingFrame>(sample.frame);
    for (std::size_t size = 1; size < whole.size(); ++size) {
      std::unique_ptr<std::byte[]> memory;
      const auto decoded = decode_first_tightly(std::span(whole).first(size), memory);
      if (!open_ended) {
        EXPECT_FALSE(decoded) << sample.name << " cut to " << size;
      }
    }
  }
}

TEST(Frames, AnyBytesDecodeToNothingOrToAFrameThatSurvivesTheTrip) {
  Random random(7);
  int decoded_frames = 0;
  for (int i = 0; i < 200'000; ++i) {
    Bytes bytes(1 + random.below(60));
    for (std::byte& b : bytes)
      b = static_cast<std::byte>(random.chance(0.4) ? random.below(8) : random.next());
    bytes[0] = static_cast<std::byte>(random.below(0x24));
    std::unique_ptr<std::byte[]> memory;
    const auto decoded = decode_first_tightly(bytes, memory);
    if (!decoded) continue;
    ++decoded_frames;
    expect_survives(*decoded);
  }
  EXPECT_GT(decoded_frames, 20'000);
}

TEST(Frames, FollowEachOtherInOnePayload) {
  Bytes payload;
  std::string expected;
  for (const auto& sample : golden::frame_samples()) {
    if (sample.form == BodyForm::kToTheEnd || std::holds_alternative<PaddingFrame>(sample.frame)) continue;
    const Bytes bytes = encode(sample.frame);
    payload.insert(payload.end(), bytes.begin(), bytes.end());
    expected += (expected.empty() ? "" : "; ") + describe(sample.frame);
  }
  EXPECT_EQ(meaning(payload), expected);
}

TEST(Frames, OfUnknownTypesAreMalformed) {
  std::set<std::byte> known;
  for (const auto& sample : golden::frame_samples()) known.insert(encode(sample.frame, sample.form).front());
  ASSERT_EQ(known.size(), 20u);
  for (unsigned type = 0; type < 256; ++type) {
    if (known.contains(static_cast<std::byte>(type))) continue;
    for (const std::byte filler : {std::byte{0}, std::byte{1}}) {
      Bytes bytes(64, filler);
      bytes[0] = static_cast<std::byte>(type);
      EXPECT_EQ(meaning(bytes), "malformed") << type;
    }
  }
}

TEST(Varints, LongerThanNeededAreAccepted) {
  for (const int length : {1, 2, 4, 8}) {
    Bytes bytes{static_cast<std::byte>(FrameType::kCredit)};
    long_varint(bytes, 5, length);
    long_varint(bytes, 9, length);
    EXPECT_EQ(meaning(bytes), "CREDIT request_bytes=5 exchanges=9");
  }
  EXPECT_EQ(meaning_of_hex("02 4003 4000 4000 4000 4001 4002"),
            "ACK delay_us=0 received_at_us=0 congestion_marks=0 ranges=1-3");
}

// ---------------------------------------------------------------- padding

TEST(Padding, IsOneFrameToThePacketsEnd) {
  EXPECT_EQ(meaning_of_hex("01 00 00 00 00"), "PING; PADDING size=4");
  EXPECT_EQ(meaning_of_hex("00"), "PADDING size=1");
}

TEST(Padding, HidesNothing) {
  EXPECT_TRUE(malformed("00 01"));
  EXPECT_TRUE(malformed("01 00 00 00 ff"));
}

// ---------------------------------------------------------------- acknowledgements

AckFrame ack(std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges) {
  AckFrame frame;
  for (const auto& [first, last] : ranges) frame.ranges.push_back({PacketNumber(first), PacketNumber(last)});
  return frame;
}

TEST(Acks, ReachFromTheFirstPacketToTheLargestNumber) {
  expect_survives(ack({{0, kVarintMax}}));
  expect_survives(ack({{kVarintMax, kVarintMax}, {0, 0}}));
  // The smallest gap: one packet missing.
  expect_survives(ack({{2, 2}, {0, 0}}));
}

TEST(Acks, RandomRangesSurvive) {
  Random random(3);
  for (int i = 0; i < 5000; ++i) {
    AckFrame frame;
    frame.delay_us = random.below(1 << 20);
    frame.received_at_us = random.below(kVarintMax);
    frame.congestion_marks = random.below(1000);
    std::uint64_t next = 1 + random.below(1ull << 40);
    const std::size_t count = 1 + random.below(kAckRangesMax);
    while (frame.ranges.size() < count) {
      const std::uint64_t last = next;
      const std::uint64_t first = last - std::min(last, random.below(200));
      frame.ranges.push_back({PacketNumber(first), PacketNumber(last)});
      const std::uint64_t gap = 2 + random.below(100);
      if (first < gap) break;
      next = first - gap;
    }
    expect_survives(frame);
    EXPECT_EQ(encode(frame).size(), ack_frame_size(frame));
  }
}

TEST(Acks, MustHaveARange) { EXPECT_TRUE(malformed("02 05 00 00 00 00")); }

TEST(Acks, HaveAtMostTheAgreedRanges) {
  const auto with_ranges = [](std::size_t count) {
    Bytes bytes{static_cast<std::byte>(FrameType::kAck)};
    long_varint(bytes, 1000, 2);
    for (int field = 0; field < 3; ++field) long_varint(bytes, 0, 1);
    long_varint(bytes, count, 2);
    long_varint(bytes, 0, 1);
    for (std::size_t i = 1; i < count; ++i) {
      long_varint(bytes, 0, 1);
      long_varint(bytes, 0, 1);
    }
    return bytes;
  };
  EXPECT_TRUE(decode_one(with_ranges(kAckRangesMax)));
  EXPECT_FALSE(decode_one(with_ranges(kAckRangesMax + 1)));
}

TEST(Acks, NeverGoBelowTheFirstPacket) {
  EXPECT_EQ(meaning_of_hex("02 05 00 00 00 01 05"), describe(ack({{0, 5}})));
  EXPECT_TRUE(malformed("02 05 00 00 00 01 06")) << "a range that starts before packet 0";
  EXPECT_EQ(meaning_of_hex("02 05 00 00 00 02 00 03 00"), describe(ack({{5, 5}, {0, 0}})));
  EXPECT_TRUE(malformed("02 05 00 00 00 02 00 04 00")) << "a gap that reaches before packet 0";
  EXPECT_TRUE(malformed("02 05 00 00 00 02 00 ffffffffffffffff 00")) << "the longest gap";
}

// ---------------------------------------------------------------- settings

TEST(Settings, MayBeNoneAndAtMostTheAgreedNumber) {
  expect_survives(SettingsFrame{});
  SettingsFrame most;
  for (std::uint64_t i = 0; i < kSettingsMax; ++i) most.settings.push_back({kVarintMax - i, kVarintMax});
  expect_survives(most);
  EXPECT_EQ(encode(most).size(), kSettingsFrameMax);

  Bytes one_more = encode(most);
  one_more[1] = static_cast<std::byte>(kSettingsMax + 1);
  one_more.insert(one_more.end(), 2, std::byte{0});
  EXPECT_FALSE(decode_one(one_more));
}

// ---------------------------------------------------------------- messages

MessageHeaderFrame header_piece(ByteCount header_size, ByteCount body_size, ByteCount capacity,
                                ByteCount offset, std::span<const std::byte> data) {
  return {ExchangeId(2), Priority::kBackground, header_size, body_size, capacity, offset, data};
}

TEST(MessageHeaders, OfTheLargestSizesSurvive) {
  const Bytes data = counting_bytes(4);
  expect_survives(
      header_piece(kMessageHeaderMax, kMessageBodyMax, kMessageBodyMax, kMessageHeaderMax - 4, data));
}

TEST(MessageHeaders, OutOfTheirLimitsAreMalformed) {
  const Bytes data = counting_bytes(4);
  EXPECT_EQ(round_trip(header_piece(kMessageHeaderMax + 1, 0, 0, 0, data)), "malformed")
      << "header too large";
  EXPECT_EQ(round_trip(header_piece(4, kMessageBodyMax + 1, 0, 0, data)), "malformed") << "body too large";
  EXPECT_EQ(round_trip(header_piece(4, 0, kMessageBodyMax + 1, 0, data)), "malformed")
      << "capacity too large";
  EXPECT_EQ(round_trip(header_piece(3, 0, 0, 0, data)), "malformed") << "more data than header";
  EXPECT_EQ(round_trip(header_piece(8, 0, 0, 5, data)), "malformed") << "data past the header's end";
  EXPECT_EQ(round_trip(header_piece(8, 0, 0, kVarintMax, data)), "malformed")
      << "an offset that nearly wraps";
  EXPECT_EQ(round_trip(header_piece(8, 0, 0, 0, {})), "malformed") << "no data";
  EXPECT_EQ(round_trip(header_piece(0, 0, 0, 0, {})), "malformed") << "no header";
}

TEST(MessageHeaders, KnowThreePriorities) {
  const Bytes data = counting_bytes(1);
  for (std::size_t i = 0; i < kPriorityCount; ++i) {
    MessageHeaderFrame frame = header_piece(1, 0, 0, 0, data);
    frame.priority = static_cast<Priority>(i);
    expect_survives(frame);
  }
  EXPECT_TRUE(malformed("08 02 03 01 00 00 00 0001 aa"));
}

TEST(Bodies, EndWhereTheLargestBodyEnds) {
  const Bytes data = counting_bytes(4);
  for (const BodyForm form : {BodyForm::kSized, BodyForm::kToTheEnd}) {
    expect_survives(BodyFrame{ExchangeId(kVarintMax), kMessageBodyMax - 4, data}, form);
    EXPECT_EQ(round_trip(BodyFrame{ExchangeId(0), kMessageBodyMax - 3, data}, form), "malformed");
    EXPECT_EQ(round_trip(BodyFrame{ExchangeId(0), kVarintMax, data}, form), "malformed");
    EXPECT_EQ(round_trip(BodyFrame{ExchangeId(0), 0, {}}, form), "malformed") << "no data";
  }
}

TEST(Bodies, WithoutALengthTakeAllThatFollows) {
  EXPECT_EQ(meaning_of_hex("10 04 00 01 01 01"), "BODY exchange=4 offset=0 data=010101");
  EXPECT_EQ(meaning_of_hex("11 04 00 0001 01 01 01"), "BODY exchange=4 offset=0 data=01; PING; PING");
}

// ---------------------------------------------------------------- tokens, goodbyes, handshake bytes

TEST(Parities, OutOfTheirLimitsAreMalformed) {
  const Bytes row = counting_bytes(10);
  const auto survives = [&](ByteCount offset, ByteCount length, unsigned index, std::size_t size) {
    const ParityFrame frame{ExchangeId(4), offset, length, static_cast<std::uint8_t>(index),
                            std::span(row).first(size)};
    return decode_one(encode(frame)).has_value();
  };
  EXPECT_TRUE(survives(0, 10, 0, 10));
  EXPECT_FALSE(survives(0, 10, 0, 0)) << "no data";
  EXPECT_FALSE(survives(0, 0, 0, 10)) << "of nothing";
  EXPECT_TRUE(survives(0, 10, erasure::kParityMax - 1, 10));
  EXPECT_FALSE(survives(0, 10, erasure::kParityMax, 10));
  EXPECT_TRUE(survives(0, 10 * erasure::kRowsMax, 0, 10));
  EXPECT_FALSE(survives(0, 10 * erasure::kRowsMax + 1, 0, 10)) << "too many rows";
  EXPECT_TRUE(survives(kMessageBodyMax - 10, 10, 0, 10));
  EXPECT_FALSE(survives(kMessageBodyMax - 10, 11, 0, 10)) << "past the largest body";
  EXPECT_FALSE(survives(kVarintMax, 10, 0, 10));
}

TEST(FlowNews, OutOfTheirLimitsAreMalformed) {
  const auto survives = [](FlowNewsFrame frame) { return decode_one(encode(frame)).has_value(); };
  EXPECT_TRUE(
      survives({.flows = kFlowsMax, .rate = kRateMax, .delivered = kVarintMax, .capacity = kRateMax}));
  EXPECT_TRUE(survives({.base_us = kFlowTimeMax, .queue_us = kFlowTimeMax, .emptied_us = kFlowTimeMax}));
  EXPECT_FALSE(survives({.flows = 0}));
  EXPECT_FALSE(survives({.flows = kFlowsMax + 1}));
  EXPECT_FALSE(survives({.rate = kRateMax + 1}));
  EXPECT_FALSE(survives({.capacity = kRateMax + 1}));
  EXPECT_FALSE(survives({.base_us = kFlowTimeMax + 1}));
  EXPECT_FALSE(survives({.queue_us = kFlowTimeMax + 1}));
  EXPECT_FALSE(survives({.emptied_us = kFlowTimeMax + 1}));
}

TEST(OtherFlows, OutOfTheirLimitsAreMalformed) {
  const auto survives = [](OtherFlowsFrame frame) { return decode_one(encode(frame)).has_value(); };
  EXPECT_TRUE(survives({.around = kOtherFlowsMax, .answers = true, .flows = 2, .parts = 2 * kPartUnits}));
  EXPECT_TRUE(
      survives({.rate = kRateMax, .rate_of_all = kRateMax, .capacity = kRateMax, .ahead = kVarintMax}));
  EXPECT_FALSE(survives({.around = 0})) << "itself is one";
  EXPECT_FALSE(survives({.around = kOtherFlowsMax + 1}));
  EXPECT_FALSE(survives({.flows = kOtherFlowsMax + 1}));
  EXPECT_FALSE(survives({.flows = 2, .parts = 2 * kPartUnits + 1}));
  EXPECT_FALSE(survives({.rate = kRateMax + 1}));
  EXPECT_FALSE(survives({.rate_of_all = kRateMax + 1}));
  EXPECT_FALSE(survives({.capacity = kRateMax + 1}));
  EXPECT_FALSE(survives({.emptied_us = kFlowTimeMax + 1}));
  EXPECT_FALSE(survives({.ahead = 1, .behind = 1})) << "one of the two";
  Bytes bytes = encode(OtherFlowsFrame{});
  bytes[2] = std::byte{2};
  EXPECT_FALSE(decode_one(bytes)) << "neither yes nor no";
}

TEST(AddressTokens, HaveFromOneToTheAgreedBytes) {
  expect_survives(AddressTokenFrame{counting_bytes(1)});
  const Bytes most = counting_bytes(kTokenMax);
  expect_survives(AddressTokenFrame{most});
  const Bytes more = counting_bytes(kTokenMax + 1);
  EXPECT_EQ(round_trip(AddressTokenFrame{more}), "malformed");
  EXPECT_EQ(round_trip(AddressTokenFrame{}), "malformed");
}

TEST(Close, CutsAReasonThatIsTooLongAndRefusesOneFromThePeer) {
  const Bytes long_reason = counting_bytes(kCloseReasonMax + 50);
  const auto cut = std::span<const std::byte>(long_reason).first(kCloseReasonMax);
  EXPECT_EQ(round_trip(CloseFrame{1, long_reason}), describe(CloseFrame{1, cut}));

  Bytes too_long = encode(CloseFrame{1, cut});
  too_long[4] = static_cast<std::byte>(kCloseReasonMax + 1);
  too_long.push_back(std::byte{0});
  EXPECT_FALSE(decode_one(too_long));
}

TEST(Crypto, NeedsDataAndMayNameAnyOffset) {
  const Bytes data = counting_bytes(2);
  expect_survives(CryptoFrame{kVarintMax, data});
  EXPECT_EQ(round_trip(CryptoFrame{0, {}}), "malformed");
}

// ---------------------------------------------------------------- sizes that encoders rely on

TEST(FrameSizes, OverheadsAreExact) {
  const Bytes data = counting_bytes(10);
  for (const std::uint64_t id : {0ull, 63ull, 64ull, 16384ull, 1ull << 30}) {
    for (const ByteCount offset : {0ull, 64ull, 16384ull, 4'000'000ull}) {
      const BodyFrame body{ExchangeId(id), offset, data};
      EXPECT_EQ(encode(body, BodyForm::kSized).size(),
                body_frame_overhead(body.exchange, offset, false) + 10);
      EXPECT_EQ(encode(body, BodyForm::kToTheEnd).size(),
                body_frame_overhead(body.exchange, offset, true) + 10);
      MessageHeaderFrame header = header_piece(1 << 20, offset, 1, 5, data);
      header.exchange = ExchangeId(id);
      EXPECT_EQ(encode(header).size(), message_header_frame_overhead(header) + 10);
      const ParityFrame parity{ExchangeId(id), offset, 10 + offset % 1000, 7, data};
      EXPECT_EQ(encode(parity).size(), parity_frame_overhead(parity) + 10);
    }
  }
}

TEST(FrameSizes, BoundsHold) {
  const Bytes data = counting_bytes(1);
  EXPECT_LE(encode(CryptoFrame{kVarintMax, data}).size(), kCryptoFrameOverhead + 1);
  for (const Frame& frame :
       {Frame(CreditFrame{kVarintMax, kVarintMax}), Frame(FloorFrame{PacketNumber(kVarintMax)}),
        Frame(CancelFrame{ExchangeId(kVarintMax), kVarintMax}), Frame(PathChallengeFrame{~0ull}),
        Frame(PathResponseFrame{~0ull}), Frame(CryptoAckFrame{kVarintMax}), Frame(PingFrame{})})
    EXPECT_LE(encode(frame).size(), kSmallFrameMax) << describe(frame);
}

using FrameDeathTest = testing::Test;

TEST(FrameDeathTest, WritingWhatNoPeerAcceptsIsOurOwnBug) {
  EXPECT_DEATH(encode(AckFrame{}), "invariant broken");
  EXPECT_DEATH(encode(FloorFrame{PacketNumber(kVarintMax + 1)}), "invariant broken");
  EXPECT_DEATH(encode(ResetTokenFrame{}), "invariant broken");
  EXPECT_DEATH(encode(SettingsFrame{std::vector<Setting>(kSettingsMax + 1)}), "invariant broken");
  Bytes small(3);
  ByteWriter writer(small);
  EXPECT_DEATH(write_frame(PathChallengeFrame{1}, writer), "invariant broken");
}

}  // namespace
}  // namespace tusk::wire
