// What a connection makes of the path: what it acknowledges, says again, and finds the path to be.
#include "tests/unit/transport/connection_fixture.h"

namespace tusk::transport {
namespace {

// ---------------------------------------------------------------- acknowledgements

TEST_F(ConnectionTest, ABarePingIsAnsweredAtOnce) {
  settle();
  receive_hex("01");
  EXPECT_THAT(frames(), Contains(StartsWith("ACK ")));
}

TEST_F(ConnectionTest, APingAmongDataIsAnsweredAtOnce) {
  // Somebody measures when this packet arrived.
  settle();
  Bytes payload = from_hex("01").value();
  const Bytes data = golden::encode(request_header(0, 8, 0, counting_bytes(8)));
  payload.insert(payload.end(), data.begin(), data.end());
  receive(payload);
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

// To an address that is not proven a probe may get so little room that an acknowledgement fills all of it.
TEST_F(ConnectionTest, AProbeFindsRoomOrWaitsForTheNextPacket) {
  settle();
  for (std::size_t room = Connection::kPayloadMin; room < 160; ++room) {
    next_number_ += 2;  // one more range to acknowledge
    send_something();
    const int before = connection_.sent_packets().probes_unanswered();
    for (int i = 0; i < 100 && connection_.sent_packets().probes_unanswered() == before; ++i) {
      now_ = std::max(now_, connection_.next_timeout());
      connection_.handle_timeout(now_);
      if (connection_.sent_packets().probes_unanswered() == before) (void)packets();
    }
    ASSERT_GT(connection_.sent_packets().probes_unanswered(), before);
    receive_hex("01");  // wants an acknowledgement at once
    Bytes payload(room);
    int eliciting = 0;
    for (int i = 0; i < 4; ++i) {
      const auto sent = connection_.sent_packets().in_flight();
      if (!connection_.poll_packet(now_, payload)) break;
      if (connection_.sent_packets().in_flight() > sent) ++eliciting;
    }
    EXPECT_GE(eliciting, 2) << room;
    acknowledge_all();
    (void)packets();
  }
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

TEST_F(ConnectionTest, AnswersToChallengesBeyondTheWindowAreThePeersToPayFor) {
  settle();
  send_something();
  std::size_t answers = 0;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    receive({wire::PathChallengeFrame{i}});
    answers += packets().size();
  }
  EXPECT_GE(answers, 20'000u);
  EXPECT_LE(connection_.sent_packets().in_flight(), connection_.stats().window + wire::kDatagramSizeMax);
  // The others only acknowledge: what is held of them counts as the peer's.
  EXPECT_GE(connection_.held_bytes(), 10'000 * sizeof(SentPacket));
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

TEST_F(ConnectionTest, ChallengesThatMayNotGoOutAreGivenUpToo) {
  settle();
  connection_.challenge_path(now_);
  const TimePoint end = now_ + 5s;
  while (connection_.path_challenge_pending() && now_ < end) {
    wait(250ms);
    connection_.handle_timeout(now_);
  }
  EXPECT_THAT(events(), ElementsAre("path failed"));
}

// A request so large that numbers are left out meanwhile; what arrives is acknowledged, and nothing else.
class SkippedNumbersTest : public ClientConnectionTest {
 protected:
  void send_much() {
    settle();
    connection_.open_exchange(copy_bytes(counting_bytes(10)), copy_bytes(Bytes(4 << 20)), {},
                              wire::Priority::kBulk);
  }
  // Of a round trip: true while there was something.
  bool round() {
    wire::AckFrame ack;
    for (const auto& packet : packets()) {
      if (sent_ > 0 && packet.number != last_ + 1) ++left_out_;
      if (sent_ == 0 || packet.number != last_ + 1 || ack.ranges.empty())
        ack.ranges.insert(ack.ranges.begin(), {PacketNumber(packet.number), PacketNumber(packet.number)});
      ack.ranges.front().last = PacketNumber(packet.number);
      last_ = packet.number;
      ++sent_;
    }
    wait(100ms);
    if (ack.ranges.empty()) return false;
    receive({ack});
    connection_.handle_timeout(now_);
    return true;
  }

  std::uint64_t sent_ = 0, left_out_ = 0, last_ = 0;
};

TEST_F(SkippedNumbersTest, AreOneInAThousandOrTwo) {
  send_much();
  for (int i = 0; i < 3000 && round(); ++i) continue;
  EXPECT_GT(sent_, 2900u);
  EXPECT_GE(left_out_, 1u);
  EXPECT_LE(left_out_, 6u);
  EXPECT_THAT(events(), IsEmpty()) << "and do no harm";
}

TEST_F(SkippedNumbersTest, TellWhoAcknowledgesWhatItHasNotGot) {
  send_much();
  std::vector<std::string> said;
  for (int i = 0; i < 3000 && said.empty(); ++i) {
    (void)packets();
    wait(100ms);
    acknowledge_all();
    connection_.handle_timeout(now_);
    said = events();
  }
  EXPECT_THAT(said, ElementsAre(StartsWith("closed")));
}

// ---------------------------------------------------------------- datagram sizes

// Three full-size packets that left 2 ms apart are given up by as many timers.
TEST_F(ClientConnectionTest, LossesThatOneAcknowledgementTellsAreOneReasonToDoubtTheSize) {
  settle();
  const auto lose_three = [&] {
    std::vector<ExchangeId> calls;
    for (int i = 0; i < 3; ++i) {
      wait(2ms);
      calls.push_back(open(1500));
      const auto sent = packets();
      ASSERT_FALSE(sent.empty());
      EXPECT_EQ(sent[0].size, 1472u);
    }
    send_something();
    wait(100ms);
    const std::uint64_t last = connection_.sent_packets().next_number().value() - 1;
    acknowledge(last, last);
    int timers = 0;
    for (; connection_.sent_packets().in_flight() > 0 && timers < 10; ++timers) {
      now_ = connection_.sent_packets().next_timeout(connection_.rtt());
      connection_.handle_timeout(now_);
    }
    EXPECT_GE(timers, 3);
    for (const ExchangeId call : calls) connection_.cancel_exchange(call);
    send_something();
    wait(100ms);
    acknowledge_all_but(0);
  };
  ASSERT_EQ(connection_.stats().datagram_size, 1472u);
  lose_three();
  EXPECT_EQ(connection_.stats().datagram_size, 1472u);
}

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

}  // namespace
}  // namespace tusk::transport
