// One connection and a peer played by the test, frame by frame: what closes it, what keeps it alive,
// what is said again when it was lost.
#include "proto/transport/connection.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/golden/samples/samples.h"
#include "tests/unit/transport/virtual_time.h"

namespace tusk::transport {
namespace {

using golden::Bytes;
using golden::counting_bytes;
using golden::from_hex;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using wire::ExchangeId;
using wire::Frame;
using wire::PacketNumber;

constexpr std::size_t kOverhead = wire::kShortHeaderSize + wire::kTagSize;

// ---------------------------------------------------------------- vocabulary

struct SentPacketText {
  std::uint64_t number = 0;
  std::size_t size = 0;  // of the datagram
  bool mtu_probe = false;
  std::vector<std::string> frames;
};

class ConnectionTest : public testing::Test {
 protected:
  explicit ConnectionTest(Role role = Role::kServer, ConnectionConfig config = {})
      : connection_(role, config, now_, 100ms) {}

  // ------------------------------------------------ the peer
  void receive(std::span<const std::byte> payload) {
    connection_.handle_packet(now_, PacketNumber(next_number_++), payload, payload.size() + kOverhead, false);
  }
  void receive(std::initializer_list<Frame> frames) {
    Bytes payload;
    for (const Frame& frame : frames) {
      const Bytes bytes = golden::encode(frame);
      payload.insert(payload.end(), bytes.begin(), bytes.end());
    }
    receive(payload);
  }
  void receive_hex(std::string_view hex) { receive(from_hex(hex).value()); }
  void acknowledge(std::uint64_t first, std::uint64_t last) {
    wire::AckFrame ack;
    ack.ranges.push_back({PacketNumber(first), PacketNumber(last)});
    receive({ack});
  }
  void acknowledge_all_but(std::uint64_t missing) {
    const std::uint64_t last = connection_.sent_packets().next_number().value() - 1;
    wire::AckFrame ack;
    if (last > missing) ack.ranges.push_back({PacketNumber(missing + 1), PacketNumber(last)});
    if (missing > 0) ack.ranges.push_back({PacketNumber(0), PacketNumber(missing - 1)});
    receive({ack});
  }
  void acknowledge_all() {
    const std::uint64_t next = connection_.sent_packets().next_number().value();
    if (next > 0) acknowledge(0, next - 1);
  }

  // ------------------------------------------------ the connection
  // Everything it sends at this moment, and later as far as pacing holds it back.
  std::vector<SentPacketText> packets() {
    std::vector<SentPacketText> sent;
    Bytes payload(wire::kDatagramSizeMax);
    while (const auto packet = connection_.poll_packet(now_, payload)) {
      const auto frames = golden::decode_all(std::span(payload).first(packet->payload_size));
      EXPECT_TRUE(frames) << "it sent what no peer accepts";
      SentPacketText text{packet->number.value(), packet->payload_size + kOverhead, packet->mtu_probe, {}};
      for (const Frame& frame : *frames) text.frames.push_back(golden::describe(frame));
      sent.push_back(std::move(text));
      EXPECT_LT(sent.size(), 10'000u) << "it never stops";
    }
    return sent;
  }
  // The frames of packets(), without probes of the MTU.
  std::vector<std::string> frames() {
    std::vector<std::string> texts;
    for (const auto& packet : packets())
      if (!packet.mtu_probe) texts.insert(texts.end(), packet.frames.begin(), packet.frames.end());
    return texts;
  }
  // The number of the packet among those sent now with a frame that begins so.
  std::uint64_t number_of_packet_with(std::string_view start) {
    std::optional<std::uint64_t> found;
    for (const auto& packet : packets())
      for (const std::string& frame : packet.frames)
        if (frame.starts_with(start)) found = packet.number;
    EXPECT_TRUE(found) << "no " << start;
    return found.value_or(0);
  }

  void wait(Duration duration) { now_ += duration; }
  // A packet that must be acknowledged and needs no answer.
  void send_something() {
    wait(1ms);
    connection_.send_address_token(counting_bytes(4));
    (void)packets();
  }
  // Lets timers fire for so long; what is sent meanwhile is lost.
  void run_in_silence(Duration duration) {
    const TimePoint end = now_ + duration;
    for (int i = 0; connection_.next_timeout() <= end && !connection_.closed(); ++i) {
      ASSERT_LT(i, 100'000) << "it spins";
      now_ = std::max(now_, connection_.next_timeout());
      connection_.handle_timeout(now_);
      (void)packets();
    }
    now_ = end;
  }
  // Both sides have said what they have to say at the start.
  void settle() {
    receive({wire::SettingsFrame{{{1, 1472}, {2, 30'000}}}});
    for (int i = 0; i < 10; ++i) {
      (void)packets();
      wait(100ms);
      acknowledge_all();
      connection_.handle_timeout(now_);
    }
    (void)packets();
    (void)events();
  }
  std::vector<std::string> events() {
    std::vector<std::string> texts;
    while (const auto event = connection_.poll_event()) {
      if (const auto* closed = std::get_if<Closed>(&*event)) {
        texts.push_back(fmt::format("closed {} {}", static_cast<int>(closed->code), closed->reason));
      } else if (const auto* request = std::get_if<RequestArrived>(&*event)) {
        texts.push_back(fmt::format("request {}", request->exchange.value()));
      } else if (const auto* reply = std::get_if<ReplyArrived>(&*event)) {
        texts.push_back(fmt::format("reply {}", reply->exchange.value()));
      } else if (const auto* cancelled = std::get_if<RequestCancelled>(&*event)) {
        texts.push_back(fmt::format("cancelled {}", cancelled->exchange.value()));
      } else if (const auto* token = std::get_if<AddressTokenArrived>(&*event)) {
        texts.push_back("address token " + golden::to_hex(token->token));
      } else if (const auto* reset = std::get_if<ResetTokenArrived>(&*event)) {
        texts.push_back("reset token " + golden::to_hex(reset->token));
      } else {
        texts.push_back(std::holds_alternative<PathValidated>(*event) ? "path validated" : "path failed");
      }
    }
    return texts;
  }
  ExchangeId open(std::size_t body = 0) {
    return connection_.open_exchange(copy_bytes(counting_bytes(10)), copy_bytes(Bytes(body)),
                                     allocate_bytes(100), wire::Priority::kInteractive);
  }

  TimePoint now_ = at(1s);
  std::uint64_t next_number_ = 0;
  Connection connection_;
};

class ClientConnectionTest : public ConnectionTest {
 protected:
  ClientConnectionTest() : ConnectionTest(Role::kClient) {}
};

wire::MessageHeaderFrame request_header(std::uint64_t exchange, ByteCount header_size, ByteCount body_size,
                                        std::span<const std::byte> data) {
  return {ExchangeId(exchange), wire::Priority::kBulk, header_size, body_size, 0, 0, data};
}

// ---------------------------------------------------------------- what closes it

struct Crime {
  std::string name;
  std::vector<std::string> packets;  // hex
};

void PrintTo(const Crime& crime, std::ostream* out) { *out << crime.name; }

std::string hex(const Frame& frame) { return golden::to_hex(golden::encode(frame)); }

std::vector<Crime> crimes() {
  static const Bytes kData = counting_bytes(8);
  return {
      {"UnknownFrame", {"07"}},
      {"FrameCutShort", {"04 41"}},
      {"PaddingWithContent", {"00 00 01"}},
      {"AcknowledgingWhatWasNeverSent",
       {hex(wire::AckFrame{0, 0, 0, {{PacketNumber(0), PacketNumber(1'000'000)}}})}},
      {"HandshakeBytes", {hex(wire::CryptoFrame{0, kData})}},
      {"HandshakeAcknowledgement", {hex(wire::CryptoAckFrame{0})}},
      {"MoreExchangesThanGranted", {hex(request_header(2 * 16384, 8, 0, kData))}},
      {"AReplyToNothing", {hex(request_header(1, 8, 0, kData))}},
      {"ABodyOfAReplyToNothing", {hex(wire::BodyFrame{ExchangeId(1), 0, kData})}},
      {"CancellingTheOthersExchange", {hex(wire::CancelFrame{ExchangeId(1), 0})}},
      {"TwoSizesForOneHeader", {hex(request_header(0, 9, 0, kData)), hex(request_header(0, 10, 0, kData))}},
      {"TwoSizesForOneBody", {hex(request_header(0, 9, 5, kData)), hex(request_header(0, 9, 6, kData))}},
      {"ABodyLongerThanItsSize",
       {hex(request_header(0, 8, 5, kData)), hex(wire::BodyFrame{ExchangeId(0), 0, kData})}},
      {"MoreCancelledBytesThanGranted", {hex(wire::CancelFrame{ExchangeId(0), kVarintMax})}},
  };
}

class CrimeTest : public ConnectionTest, public testing::WithParamInterface<Crime> {};

INSTANTIATE_TEST_SUITE_P(Every, CrimeTest, testing::ValuesIn(crimes()),
                         [](const auto& tested) { return tested.param.name; });

TEST_P(CrimeTest, ClosesTheConnectionAndTellsBothSides) {
  settle();
  for (const std::string& packet : GetParam().packets) receive_hex(packet);
  EXPECT_THAT(events(), ElementsAre(StartsWith("closed 1000 ")));
  EXPECT_THAT(frames(), ElementsAre(StartsWith("CLOSE code=1000 ")));
  EXPECT_TRUE(connection_.closed());
  EXPECT_EQ(connection_.next_timeout(), kNever);

  receive_hex("01");
  wait(1s);
  EXPECT_THAT(packets(), IsEmpty()) << "and never speaks again";
  EXPECT_THAT(events(), IsEmpty());
}

TEST_F(ConnectionTest, WellFormedFramesOfEveryKindDoNotCloseIt) {
  settle();
  for (const auto& sample : golden::frame_samples()) {
    const bool handshake_only = sample.name.starts_with("crypto");
    const bool closes = sample.name.starts_with("close");
    const bool about_nothing = sample.name.starts_with("ack-") || sample.name == "message-header-piece" ||
                               sample.name == "body-sized" || sample.name == "body-to-the-end";
    if (handshake_only || closes || about_nothing) continue;
    receive(golden::encode(sample.frame, sample.form));
    EXPECT_FALSE(connection_.closed()) << sample.name;
    EXPECT_THAT(frames(), Not(Contains(StartsWith("CLOSE")))) << sample.name;
  }
}

// ---------------------------------------------------------------- goodbyes

TEST_F(ConnectionTest, AGoodbyeIsSaidOnceAndNotReportedToWhoSaidIt) {
  settle();
  connection_.close(ErrorCode::kPeerClosed, "that is all");
  EXPECT_LE(connection_.next_timeout(), now_) << "at once";
  EXPECT_THAT(frames(), ElementsAre("CLOSE code=1009 reason=" + golden::to_hex(as_byte_span("that is all"))));
  EXPECT_TRUE(connection_.closed());
  EXPECT_THAT(events(), IsEmpty());
  EXPECT_THAT(packets(), IsEmpty());
}

TEST_F(ConnectionTest, AReasonIsCutToWhatAPeerAccepts) {
  connection_.close(ErrorCode::kInternal, std::string(1000, 'x'));
  EXPECT_THAT(frames(),
              ElementsAre("CLOSE code=1012 reason=" + golden::to_hex(as_byte_span(std::string(200, 'x')))));
}

TEST_F(ConnectionTest, AGoodbyeThatMayNotGoOutIsNotWaitedForLong) {
  // Nobody polls for packets: the peer's address is not proven, and all that it may get is used up.
  settle();
  receive_hex("07");
  EXPECT_THAT(events(), ElementsAre(StartsWith("closed 1000 ")));
  connection_.handle_timeout(now_);
  wait(999ms);
  connection_.handle_timeout(now_);
  EXPECT_FALSE(connection_.closed());
  wait(1ms);
  connection_.handle_timeout(now_);
  EXPECT_TRUE(connection_.closed());
  EXPECT_THAT(packets(), IsEmpty());
}

TEST_F(ConnectionTest, ThePeersGoodbyeIsReportedAndNotAnswered) {
  settle();
  receive({wire::CloseFrame{1013, as_byte_span("bad config")}});
  EXPECT_THAT(events(), ElementsAre("closed 1013 bad config"));
  EXPECT_TRUE(connection_.closed());
  EXPECT_THAT(packets(), IsEmpty());
}

TEST_F(ConnectionTest, FramesBehindAGoodbyeAreNotRead) {
  settle();
  receive_hex("0d 0000 0000 07");
  EXPECT_THAT(events(), ElementsAre("closed 0 "));
}

// ---------------------------------------------------------------- settings

TEST_F(ConnectionTest, SettingsComeFirst) {
  const auto first = packets();
  std::vector<std::string> said;
  for (const auto& packet : first)
    if (!packet.mtu_probe) said.insert(said.end(), packet.frames.begin(), packet.frames.end());
  ASSERT_FALSE(said.empty());
  EXPECT_EQ(said.front(), "SETTINGS 1=8972 2=30000");
}

TEST_F(ConnectionTest, LostSettingsAreSaidAgain) {
  const std::uint64_t number = number_of_packet_with("SETTINGS");
  send_something();
  wait(100ms);
  acknowledge_all_but(number);
  wait(100ms);
  connection_.handle_timeout(now_);
  EXPECT_THAT(frames(), Contains("SETTINGS 1=8972 2=30000"));
}

TEST_F(ConnectionTest, APeerThatYieldsIsYieldedTo) {
  receive({wire::SettingsFrame{{{4, 0}, {4, 2}, {4, kVarintMax}}}});
  EXPECT_FALSE(connection_.stats().background);
  receive({wire::SettingsFrame{{{4, 1}}}});
  EXPECT_TRUE(connection_.stats().background);
}

struct YieldingConnectionTest : ConnectionTest {
  YieldingConnectionTest() : ConnectionTest(Role::kClient, {.congestion = CongestionKind::kBackground}) {}
};
TEST_F(YieldingConnectionTest, AsksThePeerToYield) {
  EXPECT_THAT(frames(), Contains("SETTINGS 1=8972 2=30000 4=1"));
}

TEST_F(ConnectionTest, UnknownSettingsAreIgnored) {
  receive({wire::SettingsFrame{{{4711, 1}, {0, 0}, {kVarintMax, kVarintMax}}}});
  EXPECT_THAT(events(), IsEmpty());
  // Keys that would be known ones if cut to a byte.
  receive({wire::SettingsFrame{{{0x101, 1300}, {0x102, 1}}}});
  settle();
  EXPECT_EQ(connection_.stats().datagram_size, 1472u);
  run_in_silence(20s);
  EXPECT_FALSE(connection_.closed());
}

TEST_F(ConnectionTest, DatagramsAreNoLargerThanThePeerReceives) {
  receive({wire::SettingsFrame{{{1, 1440}}}});
  for (const auto& packet : packets()) EXPECT_LE(packet.size, 1440u);
}

TEST_F(ConnectionTest, SenselessSettingsAreBroughtIntoTheirLimits) {
  receive({wire::SettingsFrame{{{1, 0}, {2, 0}}}});
  for (const auto& packet : packets()) EXPECT_LE(packet.size, wire::kDatagramSizeMin);
  wait(900ms);
  connection_.handle_timeout(now_);
  EXPECT_FALSE(connection_.closed()) << "no idle timeout is shorter than a second";
}

// ---------------------------------------------------------------- idle and alive

TEST_F(ConnectionTest, EndsAfterSilence) {
  settle();
  const TimePoint heard = now_;
  receive_hex("01");
  run_in_silence(30s - 1ms);
  EXPECT_FALSE(connection_.closed());
  run_in_silence(1ms);
  EXPECT_TRUE(connection_.closed());
  EXPECT_EQ(now_, heard + 30s);
  EXPECT_THAT(events(), ElementsAre(StartsWith("closed 1006 ")));
}

TEST_F(ConnectionTest, TheShorterIdleTimeoutCounts) {
  settle();
  receive({wire::SettingsFrame{{{2, 5'000}}}});
  run_in_silence(5s);
  EXPECT_TRUE(connection_.closed());
}

TEST_F(ConnectionTest, ThePeersLongerIdleTimeoutDoesNotCount) {
  settle();
  receive({wire::SettingsFrame{{{2, 3'600'000}}}});
  run_in_silence(30s);
  EXPECT_TRUE(connection_.closed());
}

TEST_F(ConnectionTest, EndsWhenThePeerTalksAndAcknowledgesNothing) {
  settle();
  send_something();
  for (int second = 0; second < 29; ++second) {
    run_in_silence(1s);
    receive_hex("01");
    ASSERT_FALSE(connection_.closed()) << second;
  }
  run_in_silence(1s);
  EXPECT_TRUE(connection_.closed());
  EXPECT_THAT(events(), ElementsAre("closed 1006 the peer acknowledges nothing"));
}

TEST_F(ConnectionTest, LivesWhileThePeerAcknowledgesNowAndThen) {
  settle();
  for (int second = 0; second < 100; ++second) {
    send_something();
    run_in_silence(1s);
    receive_hex("01");
    if (second % 20 == 0) acknowledge_all();
    ASSERT_FALSE(connection_.closed()) << second;
  }
}

TEST_F(ClientConnectionTest, PingsWhenNothingElseIsSaid) {
  settle();
  send_something();
  wait(100ms);
  acknowledge_all();
  wait(10s - 101ms);
  connection_.handle_timeout(now_);
  EXPECT_THAT(frames(), Not(Contains("PING")));
  wait(1s);
  connection_.handle_timeout(now_);
  EXPECT_THAT(frames(), Contains("PING"));
}

TEST_F(ClientConnectionTest, PingsSoonerWhileItWaitsForAnAnswer) {
  settle();
  open();
  (void)packets();
  wait(100ms);
  acknowledge_all();
  (void)packets();
  wait(2100ms);
  connection_.handle_timeout(now_);
  EXPECT_THAT(frames(), Contains("PING"));
}

TEST_F(ConnectionTest, TheServerDoesNotPing) {
  settle();
  wait(20s);
  connection_.handle_timeout(now_);
  EXPECT_THAT(frames(), Not(Contains("PING")));
}

// ---------------------------------------------------------------- acknowledgements

TEST_F(ConnectionTest, ABarePingIsAnsweredAtOnce) {
  settle();
  receive_hex("01");
  EXPECT_THAT(frames(), Contains(StartsWith("ACK ")));
}

TEST_F(ConnectionTest, WhatAsksForItIsAcknowledgedInTime) {
  settle();
  receive_hex("01" + std::string(100, '0'));  // as if something came along
  EXPECT_THAT(frames(), IsEmpty());
  const TimePoint due = connection_.next_timeout();
  EXPECT_LE(due, now_ + AckTracker::kDelayMax);
  now_ = due;
  EXPECT_THAT(frames(), Contains(StartsWith("ACK ")));
}

TEST_F(ConnectionTest, AcknowledgementsAreNotAcknowledged) {
  settle();
  for (int i = 0; i < 100; ++i) {
    acknowledge_all();
    wait(50ms);
    EXPECT_THAT(packets(), IsEmpty());
  }
}

TEST_F(ConnectionTest, APacketIsProcessedOnce) {
  settle();
  const Bytes data = counting_bytes(8);
  const Bytes payload = golden::encode(request_header(0, 8, 0, data));
  for (int i = 0; i < 3; ++i)
    connection_.handle_packet(now_, PacketNumber(77), payload, payload.size(), false);
  EXPECT_THAT(events(), ElementsAre("request 0"));
  const auto received = connection_.stats().packets_received;
  connection_.handle_packet(now_, PacketNumber(77), payload, payload.size(), false);
  EXPECT_EQ(connection_.stats().packets_received, received);
}

TEST_F(ConnectionTest, TheFloorIsTold) {
  settle();
  std::vector<std::string> said;
  for (int i = 0; i < 200; ++i) {
    receive_hex("01");
    wait(30ms);
    for (std::string& frame : frames()) said.push_back(std::move(frame));
  }
  EXPECT_THAT(said, Contains(StartsWith("FLOOR ")));
}

// ---------------------------------------------------------------- loss

TEST_F(ClientConnectionTest, UnansweredPacketsAreProbedWithTheirContentInSmallPackets) {
  settle();
  open(20'000);
  (void)packets();
  connection_.handle_timeout(now_);
  std::vector<SentPacketText> probes;
  for (int i = 0; i < 100 && probes.empty(); ++i) {
    now_ = std::max(now_, connection_.next_timeout());
    const int before = connection_.sent_packets().probes_unanswered();
    connection_.handle_timeout(now_);
    probes = packets();
    if (connection_.sent_packets().probes_unanswered() == before) probes.clear();
  }
  ASSERT_GE(probes.size(), 2u);
  EXPECT_THAT(probes[0].frames, Contains(StartsWith("MESSAGE_HEADER exchange=0 ")));
  EXPECT_LE(probes[0].size, wire::kDatagramSizeMin);
  EXPECT_LE(probes[1].size, wire::kDatagramSizeMin);
}

TEST_F(ClientConnectionTest, ALostCancelIsSaidAgain) {
  settle();
  const auto call = open(10);
  (void)packets();
  connection_.cancel_exchange(call);
  const std::uint64_t number = number_of_packet_with("CANCEL");
  open();
  wait(1ms);
  (void)packets();
  wait(100ms);
  acknowledge_all_but(number);
  wait(100ms);
  connection_.handle_timeout(now_);
  EXPECT_THAT(frames(), Contains("CANCEL exchange=0 request_bytes=20"));
}

TEST_F(ConnectionTest, ALostReplyIsSentAgain) {
  settle();
  const Bytes data = counting_bytes(8);
  receive({request_header(0, 8, 0, data)});
  connection_.reply(ExchangeId(0), copy_bytes(data), {});
  const std::uint64_t number = number_of_packet_with("MESSAGE_HEADER");
  receive({request_header(2, 8, 0, data)});
  connection_.reply(ExchangeId(2), copy_bytes(data), {});
  wait(1ms);
  (void)packets();
  wait(100ms);
  acknowledge_all_but(number);
  wait(100ms);
  connection_.handle_timeout(now_);
  EXPECT_THAT(frames(), Contains(StartsWith("MESSAGE_HEADER exchange=0 ")));
  wait(100ms);
  acknowledge_all();
  EXPECT_EQ(connection_.served_exchanges(), 0u);
}

// ---------------------------------------------------------------- credit

TEST(ConnectionCredit, IsGivenBackAndSaidAgainWhenLost) {
  class Fixture : public ConnectionTest {
   public:
    Fixture() : ConnectionTest(Role::kServer, {.credit = {.request_bytes = 1000, .exchanges = 4}}) {}
    void TestBody() override {
      settle();
      const Bytes data = counting_bytes(8);
      for (const std::uint64_t exchange : {0, 2}) {
        receive({request_header(exchange, 8, 0, data)});
        connection_.reply(ExchangeId(exchange), copy_bytes(data), {});
      }
      EXPECT_THAT(frames(), Not(Contains(StartsWith("CREDIT")))) << "the answers are still kept";
      wait(100ms);
      acknowledge_all();
      const std::uint64_t number = number_of_packet_with("CREDIT request_bytes=1016 exchanges=6");
      receive({request_header(4, 8, 0, data)});
      connection_.reply(ExchangeId(4), copy_bytes(data), {});
      wait(1ms);
      (void)packets();
      wait(100ms);
      acknowledge_all_but(number);
      wait(100ms);
      connection_.handle_timeout(now_);
      EXPECT_THAT(frames(), Contains("CREDIT request_bytes=1024 exchanges=7")) << "with the newest numbers";
    }
  };
  Fixture().TestBody();
}

// ---------------------------------------------------------------- paths

TEST_F(ConnectionTest, AChallengeIsAnswered) {
  settle();
  receive({wire::PathChallengeFrame{0xabcdef}});
  EXPECT_THAT(frames(), Contains("PATH_RESPONSE 0000000000abcdef"));
}

TEST_F(ConnectionTest, AFloodOfChallengesGetsAFewAnswers) {
  settle();
  for (std::uint64_t i = 0; i < 1000; ++i) receive({wire::PathChallengeFrame{i}});
  const auto said = frames();
  const auto responses =
      std::ranges::count_if(said, [](const auto& f) { return f.starts_with("PATH_RESPONSE"); });
  EXPECT_GE(responses, 1);
  EXPECT_LE(responses, 8);
}

std::uint64_t data_of(const std::string& challenge) { return std::stoull(challenge.substr(15), nullptr, 16); }

TEST_F(ConnectionTest, ANewAddressIsProvenByTheRightResponse) {
  settle();
  connection_.challenge_path(now_);
  const auto said = frames();
  ASSERT_THAT(said, Contains(StartsWith("PATH_CHALLENGE ")));
  const auto challenge =
      std::ranges::find_if(said, [](const auto& f) { return f.starts_with("PATH_CHALLENGE"); });
  receive({wire::PathResponseFrame{data_of(*challenge) + 1}});
  EXPECT_THAT(events(), IsEmpty()) << "anybody can answer something";
  EXPECT_TRUE(connection_.path_challenge_pending());
  receive({wire::PathResponseFrame{data_of(*challenge)}});
  EXPECT_THAT(events(), ElementsAre("path validated"));
  EXPECT_FALSE(connection_.path_challenge_pending());
  receive({wire::PathResponseFrame{data_of(*challenge)}});
  EXPECT_THAT(events(), IsEmpty());
}

TEST_F(ConnectionTest, ChallengesAreRepeatedAndThenGivenUp) {
  settle();
  connection_.challenge_path(now_);
  int challenges = 0;
  for (int i = 0; i < 1000 && connection_.path_challenge_pending(); ++i) {
    for (const std::string& frame : frames()) challenges += frame.starts_with("PATH_CHALLENGE");
    now_ = std::max(now_, connection_.next_timeout());
    connection_.handle_timeout(now_);
  }
  EXPECT_EQ(challenges, 5);
  EXPECT_THAT(events(), ElementsAre("path failed"));
}

// ---------------------------------------------------------------- tokens

TEST_F(ConnectionTest, TokensAreHandedOn) {
  settle();
  const Bytes token = counting_bytes(16);
  receive({wire::AddressTokenFrame{token}, wire::ResetTokenFrame{token}});
  EXPECT_THAT(events(),
              ElementsAre("address token " + golden::to_hex(token), "reset token " + golden::to_hex(token)));
}

TEST_F(ConnectionTest, TokensAreSentOnce) {
  settle();
  const Bytes token = counting_bytes(16);
  connection_.send_address_token(token);
  connection_.send_reset_token(token);
  EXPECT_THAT(frames(),
              ElementsAre("ADDRESS_TOKEN " + golden::to_hex(token), "RESET_TOKEN " + golden::to_hex(token)));
  EXPECT_THAT(frames(), IsEmpty());
}

// ---------------------------------------------------------------- datagram sizes

TEST_F(ConnectionTest, TheMtuIsProbedAtTheStartAndUsedWhenAcknowledged) {
  std::vector<std::size_t> sizes;
  std::vector<std::uint64_t> numbers;
  for (const auto& packet : packets()) {
    if (!packet.mtu_probe) continue;
    sizes.push_back(packet.size);
    numbers.push_back(packet.number);
    EXPECT_EQ(packet.frames.size(), 2u) << "a ping and padding";
  }
  EXPECT_THAT(sizes, testing::ElementsAreArray(PathMtu::kCandidates));
  wait(100ms);
  acknowledge(numbers[3], numbers[3]);
  EXPECT_EQ(connection_.stats().datagram_size, sizes[3]);
}

TEST_F(ConnectionTest, ARefusedProbeLeavesTheSizeAsItIs) {
  (void)packets();
  connection_.handle_too_big(8952);
  EXPECT_EQ(connection_.stats().datagram_size, wire::kDatagramSizeMin);
}

// ---------------------------------------------------------------- as a state machine

TEST_F(ClientConnectionTest, HavingNothingToDoItSleeps) {
  settle();
  EXPECT_GT(connection_.next_timeout(), now_ + 1s);
  open(1000);
  EXPECT_LE(connection_.next_timeout(), now_);
  (void)packets();
  EXPECT_GT(connection_.next_timeout(), now_);
}

TEST_F(ClientConnectionTest, ASilentPeerCostsBoundedTraffic) {
  settle();
  open(4 << 20);
  const auto before = connection_.stats();
  run_in_silence(29s);
  const auto after = connection_.stats();
  EXPECT_FALSE(connection_.closed());
  EXPECT_LT(after.bytes_sent - before.bytes_sent, before.window + (2u << 20));
}

TEST(ConnectionDeterminism, TheSameInputsGiveTheSameOutputs) {
  const auto run = [] {
    Connection connection(Role::kClient, {.seed = 5}, at(1s), 20ms);
    std::string trace;
    Bytes payload(wire::kDatagramSizeMax);
    TimePoint now = at(1s);
    for (int i = 0; i < 300; ++i) {
      if (i % 7 == 0)
        (void)connection.open_exchange(copy_bytes(counting_bytes(9)), copy_bytes(Bytes(5000)), {},
                                       wire::Priority::kBulk);
      while (const auto packet = connection.poll_packet(now, payload))
        trace += golden::to_hex(std::span(payload).first(packet->payload_size));
      now += 3ms;
      connection.handle_timeout(now);
      if (i % 11 == 0) connection.challenge_path(now);
    }
    return trace;
  };
  EXPECT_EQ(run(), run());
}

}  // namespace
}  // namespace tusk::transport
