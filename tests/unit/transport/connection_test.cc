// What closes a connection, what keeps it alive, and what its two sides tell each other of themselves.
#include "tests/unit/transport/connection_fixture.h"

namespace tusk::transport {
namespace {

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
  EXPECT_EQ(said.front(), "SETTINGS 1=8972 2=30000 3=3");
}

TEST_F(ConnectionTest, LostSettingsAreSaidAgain) {
  const std::uint64_t number = number_of_packet_with("SETTINGS");
  send_something();
  wait(100ms);
  acknowledge_all_but(number);
  wait(100ms);
  connection_.handle_timeout(now_);
  EXPECT_THAT(frames(), Contains("SETTINGS 1=8972 2=30000 3=3"));
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
  EXPECT_THAT(frames(), Contains("SETTINGS 1=8972 2=30000 3=1 4=1"));
}

TEST_F(ConnectionTest, SaysWithHowManyItSharesWheneverThatChanges) {
  EXPECT_THAT(frames(), Contains("SETTINGS 1=8972 2=30000 3=3"));
  connection_.share_with(3);
  EXPECT_THAT(frames(), Contains("SETTINGS 1=8972 2=30000 3=3 5=3"));
  EXPECT_THAT(frames(), Not(Contains(StartsWith("SETTINGS"))));
  connection_.share_with(1);
  EXPECT_THAT(frames(), Contains("SETTINGS 1=8972 2=30000 3=3 5=1"));
}

// Of one's siblings, who is told what part one takes.
struct PartHeard final : Siblings {
  Others tell(const void*, const News& news) override {
    part = news.part;
    return {};
  }
  void leave(const void*) override {}
  [[nodiscard]] Glance glance() const override { return {}; }

  double part = 0;
};

// The part that a connection takes whose peer shares with so many; it has much to send.
double part_taken(TimePoint now, std::uint64_t flows) {
  Connection connection(Role::kServer, {}, now, 100ms);
  const auto heard = std::make_shared<PartHeard>();
  connection.meet(heard);
  const Bytes settings = golden::encode(wire::SettingsFrame{{{5, flows}}});
  connection.handle_packet(now, PacketNumber(0), settings, settings.size(), false);
  Bytes payload(wire::kDatagramSizeMax);
  while (connection.poll_packet(now, payload)) continue;
  connection.open_exchange(copy_bytes(counting_bytes(10)), copy_bytes(Bytes(1 << 20)), {},
                           wire::Priority::kBulk);
  EXPECT_TRUE(connection.poll_packet(now + 1s, payload));
  return heard->part;
}

TEST_F(ConnectionTest, SenselessNumbersOfFlowsAreBroughtIntoTheirLimits) {
  EXPECT_EQ(part_taken(now_, 4), 1.0 / 4);
  EXPECT_EQ(part_taken(now_, 0), 1.0);
  EXPECT_EQ(part_taken(now_, wire::kFlowsMax), 1.0 / wire::kFlowsMax);
  EXPECT_EQ(part_taken(now_, wire::kFlowsMax + 1), 1.0 / wire::kFlowsMax);
  EXPECT_EQ(part_taken(now_, kVarintMax), 1.0 / wire::kFlowsMax);
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

// So that many clients wake their server together.
TEST_F(ClientConnectionTest, PingsWhenAQuarterOfASecondBeginsAtTheServer) {
  settle();
  for (const Duration arrived : {123'456'789us, 500'000us, 123'700'001us}) {
    send_something();
    const TimePoint sent_at = now_;
    wait(100ms);
    wire::AckFrame ack;
    const std::uint64_t last = connection_.sent_packets().next_number().value() - 1;
    ack.ranges.push_back({PacketNumber(last), PacketNumber(last)});
    ack.received_at_us = static_cast<std::uint64_t>(arrived / 1us);
    receive({ack});
    (void)packets();
    const Duration later = connection_.next_timeout() - sent_at;
    EXPECT_GT(later, 9'700ms);
    EXPECT_LE(later, 10s);
    EXPECT_EQ((arrived + later) % 250ms, 0ms);
    now_ = connection_.next_timeout();
    connection_.handle_timeout(now_);
    EXPECT_THAT(frames(), Contains("PING"));
    wait(100ms);
    acknowledge_all();
  }
}

TEST_F(ClientConnectionTest, PingsSoonerWhileItWaitsForAnAnswer) { expect_ping_while_a_call_is_open(2100ms); }

// With limits of its own, in s: to keep alive, and idle. One is less than what a client waits with an answer
// outstanding.
class HastyClientTest : public ConnectionTest, public testing::WithParamInterface<std::pair<int, int>> {
 protected:
  HastyClientTest()
      : ConnectionTest(Role::kClient, {.idle_timeout = std::chrono::seconds(GetParam().second),
                                       .keep_alive = std::chrono::seconds(GetParam().first)}) {}
};

TEST_P(HastyClientTest, KeepsToThemWhileItWaitsForAnAnswer) { expect_ping_while_a_call_is_open(1s); }

INSTANTIATE_TEST_SUITE_P(Limits, HastyClientTest, testing::Values(std::pair(1, 30), std::pair(10, 3)));

TEST_F(ClientConnectionTest, PingsThreeTimesWithinThePeersIdleTimeout) {
  settle();
  receive({wire::SettingsFrame{{{2, 5'000}}}});
  (void)packets();
  for (const TimePoint begun = now_; now_ < begun + 30s;) {
    const TimePoint sent_at = now_;
    send_something();
    wait(100ms);
    acknowledge_all();
    (void)packets();
    EXPECT_LE(connection_.next_timeout() - sent_at, Duration(5s) / 3 + 1ms);
    now_ = connection_.next_timeout();
    connection_.handle_timeout(now_);
    EXPECT_THAT(frames(), Contains("PING"));
    ASSERT_FALSE(connection_.closed());
  }
}

TEST_F(ConnectionTest, TheServerDoesNotPing) {
  settle();
  wait(20s);
  connection_.handle_timeout(now_);
  EXPECT_THAT(frames(), Not(Contains("PING")));
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

TEST_F(ConnectionTest, ALostResetTokenIsSaidAgain) {
  settle();
  const Bytes token = counting_bytes(16);
  connection_.send_reset_token(token);
  const std::uint64_t number = number_of_packet_with("RESET_TOKEN");
  send_something();
  wait(100ms);
  acknowledge_all_but(number);
  wait(100ms);
  connection_.handle_timeout(now_);
  EXPECT_THAT(frames(), Contains("RESET_TOKEN " + golden::to_hex(token)));
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

TEST_F(ClientConnectionTest, KnowsHowLongItHadNothingToSend) {
  settle();
  (void)packets();
  wait(2s);
  const Duration before = connection_.stats().idle;
  open(4 << 20);
  (void)packets();
  const Duration idle = connection_.stats().idle;
  EXPECT_GE(idle - before, 2s);
  wait(50ms);  // its window is full: that is not idle
  (void)packets();
  EXPECT_EQ(connection_.stats().idle, idle);
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
      while (const auto packet = connection.poll_packet(now, payload)) {
        packet->copy_tail(payload);
        trace += golden::to_hex(std::span(payload).first(packet->payload_size));
      }
      now += 3ms;
      connection.handle_timeout(now);
      if (i % 11 == 0) connection.challenge_path(now);
    }
    return trace;
  };
  EXPECT_EQ(run(), run());
}

// ---------------------------------------------------------------- parity

// A packet was lost before, and then much goes out at once: what of it is parity?
class ParityConnectionTest : public ClientConnectionTest {
 protected:
  int parity_after(std::uint64_t features) {
    settle();
    receive({wire::SettingsFrame{{{3, features}}}});
    (void)connection_.open_exchange(copy_bytes(counting_bytes(10)), copy_bytes(Bytes(60'000)), {},
                                    wire::Priority::kBulk);
    const std::uint64_t lost = number_of_packet_with("BODY exchange=0 ");
    send_something();
    wait(100ms);
    acknowledge_all_but(lost);
    (void)packets();
    wait(20ms);
    connection_.handle_timeout(now_);
    (void)packets();
    wait(100ms);
    acknowledge_all();
    (void)connection_.open_exchange(copy_bytes(counting_bytes(10)), copy_bytes(Bytes(100'000)), {},
                                    wire::Priority::kBulk);
    int parity = 0;
    for (int i = 0; i < 90; ++i) {
      for (const std::string& frame : frames()) parity += frame.starts_with("PARITY exchange=2 ");
      wait(1ms);
    }
    return parity;
  }
};

TEST_F(ParityConnectionTest, GoesToWhoAskedForIt) {
  EXPECT_EQ(parity_after(wire::kFeatureParity), 4);
  EXPECT_EQ(connection_.stats().packets_parity, 5u)
      << "with the header, and none before anything was seen to be lost";
}
TEST_F(ParityConnectionTest, GoesToNobodyElse) {
  EXPECT_EQ(parity_after(0), 0);
  EXPECT_EQ(connection_.stats().packets_parity, 0u);
}
TEST_F(ParityConnectionTest, OtherFeaturesAreNoneOfIts) { EXPECT_EQ(parity_after(6), 0); }

TEST_F(ConnectionTest, AnnouncesThatItTakesParity) {
  EXPECT_THAT(frames(), Contains(testing::HasSubstr(" 3=3")));
}

}  // namespace
}  // namespace tusk::transport
