// The handshake's bytes across a wire that loses, repeats and reorders.
#include "proto/transport/handshake_stream.h"

#include <gtest/gtest.h>

#include "proto/base/random.h"
#include "tests/golden/samples/wire_text.h"
#include "tests/unit/transport/virtual_time.h"

namespace tusk::transport {
namespace {

using golden::Bytes;
using golden::counting_bytes;

constexpr std::size_t kStreamRoom = 1200;

// ---------------------------------------------------------------- vocabulary

// The frames that the stream wants to send now, as one payload; empty: none.
Bytes packet_of(HandshakeStream& stream, TimePoint now, std::size_t room = kStreamRoom) {
  Bytes payload(room);
  ByteWriter writer(payload);
  if (!stream.write_frames(now, writer)) return {};
  payload.resize(writer.written());
  return payload;
}

std::string text_of(const Bytes& payload) {
  std::string text;
  const auto frames = golden::decode_all(payload);
  for (const wire::Frame& frame : frames.value()) {
    const std::string whole = golden::describe(frame);
    text += (text.empty() ? "" : "; ") + whole.substr(0, whole.find(" data="));
  }
  return text;
}

Result<void> deliver(HandshakeStream& stream, TimePoint now, const Bytes& payload) {
  const auto frames = golden::decode_all(payload);
  for (const wire::Frame& frame : frames.value()) {
    if (const auto* crypto = std::get_if<wire::CryptoFrame>(&frame))
      TUSK_TRY(stream.handle_frame(now, *crypto));
    if (const auto* ack = std::get_if<wire::CryptoAckFrame>(&frame)) TUSK_TRY(stream.handle_frame(now, *ack));
  }
  return {};
}

struct Fixture : testing::Test {
  Bytes packet() { return packet_of(sender, now); }
  HandshakeStream sender;
  HandshakeStream receiver;
  TimePoint now = at(1s);
};
using HandshakeStreamTest = Fixture;

// ---------------------------------------------------------------- a clean wire

TEST_F(HandshakeStreamTest, CarriesAFlightAndItsAcknowledgement) {
  const Bytes flight = counting_bytes(300);
  sender.send(flight);
  ASSERT_TRUE(sender.has_frames());
  ASSERT_TRUE(deliver(receiver, now, packet()));
  EXPECT_FALSE(sender.has_frames());
  EXPECT_EQ(receiver.take_received(), flight);
  EXPECT_TRUE(receiver.take_received().empty()) << "each byte once";

  now += 40ms;
  const Bytes answer = packet_of(receiver, now);
  EXPECT_EQ(text_of(answer), "CRYPTO_ACK 300");
  ASSERT_TRUE(deliver(sender, now, answer));
  EXPECT_TRUE(sender.all_acked());
  EXPECT_EQ(sender.next_timeout(), kNever);
  EXPECT_EQ(sender.round_trip(), 40ms);
}

TEST_F(HandshakeStreamTest, CutsALongFlightIntoPackets) {
  sender.send(Bytes(5000));
  int packets = 0;
  while (sender.has_frames()) {
    ASSERT_TRUE(deliver(receiver, now, packet()));
    ++packets;
  }
  EXPECT_EQ(packets, 5);
  EXPECT_EQ(receiver.take_received().size(), 5000u);
}

TEST_F(HandshakeStreamTest, SaysNothingWithoutNeedOrRoom) {
  EXPECT_TRUE(packet().empty());
  sender.send(counting_bytes(10));
  EXPECT_TRUE(packet_of(sender, now, 5).empty());
  EXPECT_TRUE(sender.has_frames());
}

TEST_F(HandshakeStreamTest, AnswersEveryRepeat) {
  sender.send(counting_bytes(10));
  const Bytes flight = packet();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(deliver(receiver, now, flight));
    EXPECT_EQ(text_of(packet_of(receiver, now)), "CRYPTO_ACK 10") << "the last answer may have been lost";
  }
}

// ---------------------------------------------------------------- reordering

TEST_F(HandshakeStreamTest, GivesBytesInOrderWhateverCameFirst) {
  sender.send(Bytes(1500, std::byte{1}));
  const Bytes first = packet();
  const Bytes second = packet();
  ASSERT_TRUE(deliver(receiver, now, second));
  EXPECT_TRUE(receiver.take_received().empty());
  EXPECT_EQ(text_of(packet_of(receiver, now)), "CRYPTO_ACK 0");
  ASSERT_TRUE(deliver(receiver, now, first));
  EXPECT_EQ(receiver.take_received(), Bytes(1500, std::byte{1}));
}

// ---------------------------------------------------------------- loss

TEST_F(HandshakeStreamTest, RepeatsAFlightWithGrowingPauses) {
  sender.send(counting_bytes(100));
  (void)packet();
  Duration pause = HandshakeStream::kTimeoutInitial;
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(sender.next_timeout(), now + pause) << i;
    now = sender.next_timeout() - 1ns;
    sender.handle_timeout(now);
    EXPECT_FALSE(sender.has_frames());
    now += 1ns;
    sender.handle_timeout(now);
    EXPECT_EQ(text_of(packet()), "CRYPTO offset=0");
    pause = std::min(2 * pause, HandshakeStream::kTimeoutMax);
  }
}

TEST_F(HandshakeStreamTest, RepeatsOnlyWhatIsNotAcknowledged) {
  sender.send(Bytes(1500));
  ASSERT_TRUE(deliver(receiver, now, packet()));
  (void)packet();  // lost
  ASSERT_TRUE(deliver(sender, now, packet_of(receiver, now)));
  now = sender.next_timeout();
  sender.handle_timeout(now);
  ASSERT_TRUE(deliver(receiver, now, packet()));
  EXPECT_EQ(receiver.take_received().size(), 1500u);
  EXPECT_FALSE(sender.has_frames());
}

TEST_F(HandshakeStreamTest, ARepeatedFlightTellsNoRoundTrip) {
  sender.send(counting_bytes(100));
  (void)packet();
  now = sender.next_timeout();
  sender.handle_timeout(now);
  ASSERT_TRUE(deliver(receiver, now, packet()));
  ASSERT_TRUE(deliver(sender, now + 10ms, packet_of(receiver, now)));
  EXPECT_FALSE(sender.round_trip()) << "nobody knows which of the two was answered";
}

TEST_F(HandshakeStreamTest, AfterARestartTheRoundTripIsThatOfTheSecondSending) {
  sender.send(counting_bytes(100));
  (void)packet();
  now += 80ms;
  sender.restart();  // the server wanted a token first
  ASSERT_TRUE(sender.has_frames());
  ASSERT_TRUE(deliver(receiver, now, packet()));
  now += 80ms;
  ASSERT_TRUE(deliver(sender, now, packet_of(receiver, now)));
  EXPECT_EQ(sender.round_trip(), 80ms);
}

TEST_F(HandshakeStreamTest, ANewFlightStartsWithTheShortPauseAgain) {
  sender.send(counting_bytes(100));
  for (int i = 0; i < 4; ++i) {
    (void)packet();
    now = sender.next_timeout();
    sender.handle_timeout(now);
  }
  sender.send(counting_bytes(50));
  (void)packet();
  EXPECT_EQ(sender.next_timeout(), now + HandshakeStream::kTimeoutInitial);
}

TEST_F(HandshakeStreamTest, ArrivesWholeThroughAnyWire) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Random random(seed);
    HandshakeStream ends[2];
    Bytes sent[2];
    Bytes got[2];
    for (int side : {0, 1}) {
      sent[side].resize(1 + random.below(8000));
      for (std::byte& b : sent[side]) b = static_cast<std::byte>(random.next());
      ends[side].send(sent[side]);
    }
    std::vector<std::pair<int, Bytes>> wire;
    now = at(0s);
    int steps = 0;
    while (!(ends[0].all_acked() && ends[1].all_acked())) {
      ASSERT_LT(++steps, 5000) << "seed " << seed;
      now += 50ms;
      for (int side : {0, 1}) {
        ends[side].handle_timeout(now);
        while (ends[side].has_frames()) wire.emplace_back(1 - side, packet_of(ends[side], now));
      }
      while (!wire.empty() && random.chance(0.7)) {
        const std::size_t pick = random.below(wire.size());
        const auto [to, payload] = wire[pick];
        if (!random.chance(0.1)) wire.erase(wire.begin() + static_cast<std::ptrdiff_t>(pick));
        if (random.chance(0.4)) continue;
        ASSERT_TRUE(deliver(ends[to], now, payload));
        const Bytes more = ends[to].take_received();
        got[to].insert(got[to].end(), more.begin(), more.end());
      }
    }
    EXPECT_EQ(got[0], sent[1]) << "seed " << seed;
    EXPECT_EQ(got[1], sent[0]) << "seed " << seed;
  }
}

// ---------------------------------------------------------------- bounds

TEST_F(HandshakeStreamTest, MoreThanAHandshakeCanHaveIsAnError) {
  const Bytes data = counting_bytes(16);
  EXPECT_TRUE(receiver.handle_frame(now, wire::CryptoFrame{HandshakeStream::kBytesMax - 16, data}));
  const auto beyond = receiver.handle_frame(now, wire::CryptoFrame{HandshakeStream::kBytesMax - 15, data});
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, ErrorCode::kMalformed);
  EXPECT_FALSE(receiver.handle_frame(now, wire::CryptoFrame{kVarintMax, data}));
}

// Each of them moves all behind it.
TEST_F(HandshakeStreamTest, PiecesHereAndThereAreNotTakenWithoutEnd) {
  const Bytes byte = counting_bytes(1);
  std::size_t taken = 0;
  for (ByteCount offset = 10'000; offset > 0; offset -= 2)
    if (receiver.handle_frame(now, wire::CryptoFrame{offset, byte})) ++taken;
  EXPECT_EQ(taken, HandshakeStream::kRunsMax);
  const auto beyond = receiver.handle_frame(now, wire::CryptoFrame{50, byte});
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, ErrorCode::kMalformed);
  // The handshake itself goes on: its bytes come in order sooner or later.
  const Bytes flight = counting_bytes(1000);
  EXPECT_TRUE(receiver.handle_frame(now, wire::CryptoFrame{0, flight}));
  EXPECT_EQ(receiver.take_received(), flight);
  EXPECT_TRUE(receiver.handle_frame(now, wire::CryptoFrame{1000, flight}));
  EXPECT_EQ(receiver.take_received(), flight);
}

TEST_F(HandshakeStreamTest, AnAcknowledgementOfNothingIsAnError) {
  sender.send(counting_bytes(10));
  EXPECT_TRUE(sender.handle_frame(now, wire::CryptoAckFrame{0}));
  const auto beyond = sender.handle_frame(now, wire::CryptoAckFrame{11});
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, ErrorCode::kMalformed);
}

TEST_F(HandshakeStreamTest, AnOldAcknowledgementTakesNothingBack) {
  sender.send(counting_bytes(10));
  (void)packet();
  ASSERT_TRUE(sender.handle_frame(now, wire::CryptoAckFrame{10}));
  ASSERT_TRUE(sender.handle_frame(now, wire::CryptoAckFrame{5}));
  EXPECT_TRUE(sender.all_acked());
}

}  // namespace
}  // namespace tusk::transport
