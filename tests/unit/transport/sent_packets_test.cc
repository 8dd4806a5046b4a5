// Loss detection, probing, rounds and bookkeeping of what is in flight, step by step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "proto/base/random.h"
#include "tests/unit/transport/sent_packets_fixture.h"

namespace tusk::transport {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAreArray;
using wire::PacketNumber;

// ---------------------------------------------------------------- acknowledgements

TEST_F(SentPacketsTest, AnAcknowledgementSettlesAPacketAndTellsTheRoundTrip) {
  const auto number = send();
  EXPECT_EQ(sent_.in_flight(), kSentSize);
  wait(40ms);
  ASSERT_TRUE(ack(number));
  EXPECT_THAT(acked(), ElementsAre(number));
  EXPECT_EQ(rtt_.latest(), 40ms);
  EXPECT_EQ(outcome_.event.rtt, 40ms);
  EXPECT_EQ(outcome_.event.acked_bytes, kSentSize);
  EXPECT_EQ(outcome_.event.prior_in_flight, kSentSize);
  EXPECT_EQ(sent_.in_flight(), 0u);
  EXPECT_EQ(sent_.delivered(), kSentSize);
  EXPECT_FALSE(timer_armed());
}

TEST_F(SentPacketsTest, ThePeersDelayIsNotPartOfTheRoundTrip) {
  know_round_trip(20ms);
  const auto number = send();
  wait(40ms);
  auto frame = ack_frame({{number, number}});
  frame.delay_us = 15'000;
  ASSERT_TRUE(ack(frame));
  EXPECT_EQ(rtt_.latest(), 25ms);
}

TEST_F(SentPacketsTest, ADelayDoesNotMakeThePathShorterThanItWasEverSeen) {
  know_round_trip(30ms);
  const auto number = send();
  wait(40ms);
  auto frame = ack_frame({{number, number}});
  frame.delay_us = 15'000;
  ASSERT_TRUE(ack(frame));
  EXPECT_EQ(rtt_.latest(), 30ms);
  EXPECT_EQ(rtt_.minimum(), 30ms);
}

TEST_F(SentPacketsTest, ADelayIsBelievedUpToWhatAPeerMayWait) {
  know_round_trip(20ms);
  const auto number = send();
  wait(100ms);
  auto frame = ack_frame({{number, number}});
  frame.delay_us = kVarintMax;
  ASSERT_TRUE(ack(frame));
  EXPECT_EQ(rtt_.latest(), 75ms);
}

TEST_F(SentPacketsTest, OnlyTheLargestPacketTellsTheRoundTrip) {
  send();
  send();
  wait(10ms);
  ASSERT_TRUE(ack(1));
  wait(500ms);
  ASSERT_TRUE(ack(ack_frame({{0, 1}})));
  EXPECT_EQ(rtt_.latest(), 10ms) << "packet 0 was late, or its acknowledgement";
}

TEST_F(SentPacketsTest, RepeatedAcknowledgementsChangeNothing) {
  const auto number = send();
  wait(10ms);
  ASSERT_TRUE(ack(number));
  wait(10ms);
  ASSERT_TRUE(ack(number));
  EXPECT_FALSE(outcome_.any_acked);
  EXPECT_THAT(acked(), IsEmpty());
  EXPECT_EQ(sent_.delivered(), kSentSize);
  EXPECT_EQ(rtt_.latest(), 10ms);
}

TEST_F(SentPacketsTest, AcknowledgingWhatWasNeverSentIsAnError) {
  EXPECT_FALSE(ack(0));
  send();
  EXPECT_FALSE(ack(1));
  EXPECT_FALSE(ack(ack_frame({{0, kVarintMax}})));
  EXPECT_EQ(sent_.in_flight(), kSentSize);
  EXPECT_TRUE(ack(0));
}

TEST_F(SentPacketsTest, AcknowledgingANumberThatWasLeftOutIsAnError) {
  const auto first = send();
  sent_.skip();
  const auto second = send();
  EXPECT_EQ(second, first + 2);
  wait(100ms);
  ASSERT_TRUE(ack(first));
  EXPECT_FALSE(ack(ack_frame({{first, second}}))) << "it was never sent, also when all before it is settled";
}

TEST_F(SentPacketsTest, ANumberThatWasLeftOutIsForgottenWithThoseAroundIt) {
  const auto first = send();
  sent_.skip();
  const auto second = send();
  wait(100ms);
  ASSERT_TRUE(ack(ack_frame({{second, second}, {first, first}})));
  EXPECT_EQ(sent_.floor(), PacketNumber(second + 1));
  EXPECT_FALSE(timer_armed()) << "nothing is missing";
  EXPECT_THAT(lost(), IsEmpty());
}

TEST_F(SentPacketsTest, AcknowledgementsBelowTheFloorAreIgnored) {
  know_round_trip(10ms);
  ASSERT_GT(sent_.floor().value(), 10u);
  ASSERT_TRUE(ack(ack_frame({{0, 5}})));
  EXPECT_FALSE(outcome_.any_acked);
}

TEST_F(SentPacketsTest, CongestionMarksAreCountedOnce) {
  send();
  send();
  auto frame = ack_frame({{0, 0}});
  frame.congestion_marks = 3;
  ASSERT_TRUE(ack(frame));
  EXPECT_EQ(outcome_.event.marks, 3u);
  frame = ack_frame({{0, 1}});
  frame.congestion_marks = 4;
  ASSERT_TRUE(ack(frame));
  EXPECT_EQ(outcome_.event.marks, 1u);
  ASSERT_TRUE(ack(ack_frame({{0, 1}})));
  EXPECT_EQ(outcome_.event.marks, 0u) << "an older acknowledgement, overtaken";
}

TEST_F(SentPacketsTest, TheFramesOfAPacketShareItsFate) {
  std::vector<SentFrame> frames{{SentFrame::Kind::kBody, wire::ExchangeId(7), 0, 10},
                                {SentFrame::Kind::kCancel, wire::ExchangeId(8), 0, 0},
                                {SentFrame::Kind::kCredit, wire::ExchangeId(9), 0, 0}};
  sent_.record(now_, kSentSize, frames, false);
  ASSERT_TRUE(ack(0));
  EXPECT_THAT(acked(), ElementsAre(7, 8, 9));
}

// ---------------------------------------------------------------- loss by time

TEST_F(SentPacketsTest, APacketIsLostOneRoundTripAndTheWindowAfterItWasSent) {
  know_round_trip(100ms);
  const Duration start = now_ - TimePoint();
  const auto first = send();
  wait(1ms);
  const auto second = send();
  wait(100ms);
  ASSERT_TRUE(ack(second));
  EXPECT_THAT(lost(), IsEmpty()) << "it could still be under way";

  const Duration due = start + 106250us;
  EXPECT_EQ(next_timeout(), due);
  wait_until(due - 1ns);
  EXPECT_FALSE(timeout());
  EXPECT_THAT(lost(), IsEmpty());
  wait_until(due);
  EXPECT_FALSE(timeout()) << "a loss is no reason to probe";
  EXPECT_THAT(lost(), ElementsAre(first));
  EXPECT_EQ(outcome_.event.lost_packets, 1u);
  EXPECT_EQ(outcome_.event.lost_bytes, kSentSize);
  EXPECT_EQ(sent_.in_flight(), 0u);
  EXPECT_EQ(sent_.lost_total(), 1u);
}

TEST_F(SentPacketsTest, ManyLaterPacketsAloneDoNotMakeALoss) {
  know_round_trip(100ms);
  const auto first = send();
  for (int i = 0; i < 500; ++i) send();
  wait(100ms);
  ASSERT_TRUE(ack(ack_frame({{first + 1, first + 500}})));
  EXPECT_THAT(lost(), IsEmpty());
}

TEST_F(SentPacketsTest, WhatWasSentAfterTheLargestAcknowledgedIsNotLost) {
  know_round_trip(100ms);
  const auto first = send();
  const auto later = send();
  wait(100ms);
  ASSERT_TRUE(ack(first));
  wait(50ms);
  timeout();
  EXPECT_THAT(lost(), IsEmpty());
  EXPECT_EQ(sent_.in_flight(), kSentSize);
  ASSERT_TRUE(ack(later));
}

TEST_F(SentPacketsTest, AnAcknowledgementTakesTheLossTimerAway) {
  know_round_trip(100ms);
  const auto first = send();
  const auto second = send();
  wait(100ms);
  ASSERT_TRUE(ack(second));
  ASSERT_TRUE(timer_armed());
  ASSERT_TRUE(ack(ack_frame({{first, second}})));
  EXPECT_FALSE(timer_armed());
}

TEST_F(SentPacketsTest, TheWindowIsASixteenthOfTheRoundTripButAtLeastFiftyMicroseconds) {
  know_round_trip(100ms);
  EXPECT_EQ(sent_.reordering_window(rtt_), 6250us);
  RttEstimator short_path;
  short_path.add(now_, 100us);
  EXPECT_EQ(sent_.reordering_window(short_path), 50us);
}

TEST_F(SentPacketsTest, TheWindowGrowsToCoverWhatOnlyCameLate) {
  know_round_trip(100ms);
  const auto first = give_up_one_that_comes(8ms, 6250us);
  EXPECT_THAT(acked(), ElementsAre(first)) << "arrived after all";
  EXPECT_EQ(sent_.spurious_total(), 1u);
  EXPECT_GE(sent_.reordering_window(rtt_), 14250us) << "it was so late";
  EXPECT_LE(sent_.reordering_window(rtt_), 18ms) << "and not much more";
  EXPECT_EQ(sent_.in_flight(), 0u) << "a lost packet had left already";
  EXPECT_EQ(sent_.delivered(), 62 * kSentSize);
}

TEST_F(SentPacketsTest, TheWindowShrinksAgainWhenNothingCameLateForAWhile) {
  know_round_trip(100ms);
  give_up_one_that_comes(80ms);
  const Duration late = sent_.reordering_window(rtt_);
  ASSERT_GT(late, 90ms);
  const auto lossy_rounds = [&](int rounds) {
    for (int i = 0; i < rounds; ++i) {
      send();
      answer_the_last_and_give_up_the_rest(send());
    }
  };
  lossy_rounds(SentPackets::kInOrderRounds - 2);
  EXPECT_GT(sent_.reordering_window(rtt_), late * 9 / 10);
  lossy_rounds(4);
  EXPECT_LT(sent_.reordering_window(rtt_), late * 6 / 10);
  lossy_rounds(5 * SentPackets::kInOrderRounds);
  EXPECT_EQ(sent_.reordering_window(rtt_), rtt_.smoothed() / 16);
}

TEST_F(SentPacketsTest, TheWindowNeverExceedsARoundTrip) {
  know_round_trip(100ms);
  give_up_one_that_comes(250ms);
  EXPECT_EQ(sent_.reordering_window(rtt_), rtt_.smoothed());
}

TEST_F(SentPacketsTest, ALostProbeOfTheMtuSaysNothingOfCongestion) {
  know_round_trip(100ms);
  const auto probe = send_frame(SentFrame::Kind::kMtuProbe, 8972);
  answer_the_last_and_give_up_the_rest(send());
  EXPECT_THAT(lost(), ElementsAre(probe));
  EXPECT_EQ(outcome_.event.lost_packets, 0u);
  EXPECT_EQ(outcome_.event.lost_bytes, 0u);
  EXPECT_EQ(sent_.in_flight(), 0u);
  EXPECT_EQ(sent_.lost_total(), 0u);
}

TEST_F(SentPacketsTest, FullSizePacketsThatVanishWhileNoneArrivesAreReported) {
  know_round_trip(100ms);
  sent_.watch_size(1472);
  send(1472);
  answer_the_last_and_give_up_the_rest(send(1300));
  EXPECT_TRUE(outcome_.full_size_swallowed);
  EXPECT_FALSE(outcome_.full_size_acked);
}

TEST_F(SentPacketsTest, AFullSizePacketThatArrivedTellsThatEarlierLossesWereChance) {
  know_round_trip(100ms);
  sent_.watch_size(1472);
  send(1472);
  const auto large = send(1472);
  wait(100ms);
  ASSERT_TRUE(ack(large));
  EXPECT_TRUE(outcome_.full_size_acked);
  now_ = sent_.next_timeout(rtt_);
  timeout();
  EXPECT_EQ(outcome_.event.lost_packets, 1u);
  EXPECT_FALSE(outcome_.full_size_swallowed);

  // Of another size nothing is known yet.
  sent_.watch_size(1440);
  send(1440);
  answer_the_last_and_give_up_the_rest(send(100));
  EXPECT_TRUE(outcome_.full_size_swallowed);
}

// Each has a timer of its own, and small packets are acknowledged between them.
TEST_F(SentPacketsTest, ABurstThatVanishesIsReportedOnce) {
  know_round_trip(100ms);
  sent_.watch_size(1472);
  std::vector<std::uint64_t> small;
  for (int i = 0; i < 3; ++i, now_ += 3ms) {
    send(1472);
    small.push_back(send(100));
  }
  wait(91ms);
  int reported = 0;
  for (const std::uint64_t number : small) {
    ASSERT_TRUE(ack(number));
    reported += outcome_.full_size_swallowed;
    now_ = std::max(now_, sent_.next_timeout(rtt_));
    timeout();
    reported += outcome_.full_size_swallowed;
  }
  EXPECT_EQ(sent_.lost_total(), 3u);
  EXPECT_EQ(reported, 1);
  send(1472);
  answer_the_last_and_give_up_the_rest(send(100));
  EXPECT_TRUE(outcome_.full_size_swallowed) << "a later one";
}

TEST_F(SentPacketsTest, LostProbesOfTheMtuAreNotSwallowedPackets) {
  know_round_trip(100ms);
  sent_.watch_size(1472);
  send_frame(SentFrame::Kind::kMtuProbe, 8972);
  answer_the_last_and_give_up_the_rest(send());
  EXPECT_FALSE(outcome_.full_size_swallowed);
}

// ---------------------------------------------------------------- probes

TEST_F(SentPacketsTest, AProbeIsDueWhenTheTailGoesUnanswered) {
  know_round_trip(100ms);
  send();
  const TimePoint due = now_ + rtt_.probe_timeout(25ms);
  EXPECT_EQ(sent_.next_timeout(rtt_), due);
  now_ = due - 1ns;
  EXPECT_FALSE(timeout());
  now_ = due;
  EXPECT_TRUE(timeout());
  EXPECT_EQ(sent_.probes_unanswered(), 1);
  EXPECT_THAT(lost(), IsEmpty()) << "silence proves no loss";
  EXPECT_EQ(sent_.in_flight(), kSentSize);
}

TEST_F(SentPacketsTest, ProbesBackOffUpToTheLimitAndAnAnswerEndsIt) {
  know_round_trip(100ms);
  send();
  const Duration timeout_once = rtt_.probe_timeout(25ms);
  Duration expected = timeout_once;
  for (int i = 0; i < 20; ++i) {
    const Duration pause = sent_.next_timeout(rtt_) - now_;
    EXPECT_EQ(pause, expected) << "probe " << i;
    wait(pause);
    ASSERT_TRUE(timeout());
    expected = std::min(2 * expected, SentPackets::kProbeBackoffMax);
  }
  const auto probe = send();
  wait(100ms);
  ASSERT_TRUE(ack(ack_frame({{probe - 1, probe}})));
  EXPECT_EQ(sent_.probes_unanswered(), 0);
  send();
  EXPECT_LE(sent_.next_timeout(rtt_) - now_, 2 * timeout_once);
}

TEST_F(SentPacketsTest, OnALongPathTheBackOffIsTwoTimeouts) {
  for (int i = 0; i < 20; ++i) {
    const auto packet = send();
    wait(1200ms);
    ASSERT_TRUE(ack(packet));
  }
  send();
  const Duration once = rtt_.probe_timeout(25ms);
  ASSERT_GT(2 * once, SentPackets::kProbeBackoffMax);
  for (int i = 0; i < 5; ++i) {
    now_ = sent_.next_timeout(rtt_);
    ASSERT_TRUE(timeout());
  }
  EXPECT_EQ(sent_.next_timeout(rtt_) - now_, 2 * once);
}

TEST_F(SentPacketsTest, AQueueThatStoodForManySecondsDoesNotPutOffAProbeForAsLong) {
  know_round_trip(100ms);
  for (int i = 0; i < 20; ++i) {
    const auto packet = send();
    wait(20s);
    ASSERT_TRUE(ack(packet));
  }
  ASSERT_GT(rtt_.probe_timeout(25ms), 10s);
  rtt_.add(now_, 100ms);
  send();
  EXPECT_EQ(sent_.next_timeout(rtt_) - now_, SentPackets::kProbeTimeoutMax);
}

TEST_F(SentPacketsTest, ALossTimerGoesBeforeAProbe) {
  know_round_trip(100ms);
  send();
  const auto second = send();
  send();
  wait(100ms);
  ASSERT_TRUE(ack(second));
  ASSERT_LT(sent_.next_timeout(rtt_) - now_, 10ms);
  now_ = sent_.next_timeout(rtt_);
  EXPECT_FALSE(timeout());
  EXPECT_GT(sent_.next_timeout(rtt_), now_) << "then the third packet's probe";
}

TEST_F(SentPacketsTest, AProbeRepeatsTheOldestThatIsUnderWay) {
  know_round_trip(100ms);
  send_frame(SentFrame::Kind::kMtuProbe, 8972);
  const auto oldest = send();
  send();
  const auto content = sent_.oldest_outstanding();
  ASSERT_EQ(content.size(), 1u);
  EXPECT_EQ(content[0].exchange, wire::ExchangeId(oldest));
}

TEST_F(SentPacketsTest, NothingUnderWayHasNothingToRepeat) {
  EXPECT_THAT(sent_.oldest_outstanding(), IsEmpty());
  send_bare();
  EXPECT_THAT(sent_.oldest_outstanding(), IsEmpty());
  EXPECT_FALSE(timer_armed());
}

// ---------------------------------------------------------------- packets that ask for nothing

TEST_F(SentPacketsTest, BarePacketsUseANumberAndNothingElse) {
  EXPECT_EQ(send_bare(), 0u);
  EXPECT_EQ(send_bare(), 1u);
  EXPECT_EQ(sent_.in_flight(), 0u);
  ASSERT_TRUE(ack(ack_frame({{0, 1}})));
  EXPECT_FALSE(outcome_.any_acked);
  EXPECT_FALSE(rtt_.has_sample());
}

TEST_F(SentPacketsTest, BarePacketsAreNeverLostAndHoldNoFloor) {
  know_round_trip(10ms);
  const auto bare = send_bare();
  const auto data = send();
  wait(10ms);
  ASSERT_TRUE(ack(data));
  wait(1s);
  timeout();
  EXPECT_THAT(lost(), IsEmpty());
  EXPECT_GT(sent_.floor().value(), bare);
}

TEST_F(SentPacketsTest, AThousandBarePacketsAreForgotten) {
  for (int i = 0; i < 1000; ++i) send_bare();
  EXPECT_GE(sent_.floor().value(), 998u);
}

// What was lost is remembered for some round trips, and then nothing comes any more that is acknowledged.
TEST_F(SentPacketsTest, BarePacketsBehindOneThatWasLostAreForgotten) {
  know_round_trip(10ms);
  send();
  answer_the_last_and_give_up_the_rest(send());
  for (int i = 0; i < 1000; ++i) {
    wait(1ms);
    send_bare();
    sent_.forget_settled(now_, rtt_);
  }
  EXPECT_LE(sent_.bare_bytes(), 100 * sizeof(SentPacket));
}

TEST_F(SentPacketsTest, WhatIsHeldForBarePacketsIsKnown) {
  send();
  for (int i = 0; i < 1000; ++i) send_bare();
  EXPECT_EQ(sent_.bare_bytes(), 1000 * sizeof(SentPacket));
  wait(10ms);
  ASSERT_TRUE(ack(ack_frame({{0, 0}})));
  EXPECT_EQ(sent_.bare_bytes(), 0u);
}

// ---------------------------------------------------------------- the floor

TEST_F(SentPacketsTest, TheFloorRisesToTheOldestUnderWay) {
  for (int i = 0; i < 5; ++i) send();
  wait(10ms);
  ASSERT_TRUE(ack(ack_frame({{0, 1}})));
  EXPECT_EQ(sent_.floor(), PacketNumber(2));
  ASSERT_TRUE(ack(ack_frame({{0, 4}})));
  EXPECT_EQ(sent_.floor(), PacketNumber(5));
}

TEST_F(SentPacketsTest, ALostPacketIsRememberedForSomeRoundTrips) {
  know_round_trip(100ms);
  const auto gone = send();
  const auto second = send();
  answer_the_last_and_give_up_the_rest(second);
  ASSERT_THAT(lost(), ElementsAre(gone));
  EXPECT_EQ(sent_.floor(), PacketNumber(gone)) << "it may only be late";
  for (int i = 0; i < 4; ++i) {
    const auto number = send();
    wait(120ms);
    ASSERT_TRUE(ack(number));
  }
  EXPECT_GT(sent_.floor().value(), second);
}

// ---------------------------------------------------------------- rounds

TEST_F(SentPacketsTest, ARoundEndsOnceEveryRoundTrip) {
  int rounds = 0;
  for (int i = 0; i < 1000; ++i) {
    wait_until(i * 1ms);
    send();
    if (i < 100) continue;
    ASSERT_TRUE(ack(static_cast<std::uint64_t>(i - 100)));
    if (outcome_.event.round_ended) ++rounds;
  }
  EXPECT_GE(rounds, 8);
  EXPECT_LE(rounds, 10);
}

// ---------------------------------------------------------------- against a model

// Random sends, acknowledgements and timeouts; a map knows what each packet should be.
TEST_F(SentPacketsTest, AgreesWithASimpleModel) {
  enum class Fate { kUnderWay, kAcked, kLost };
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    sent_ = SentPackets();
    rtt_ = RttEstimator();
    std::map<std::uint64_t, Fate> model;
    std::map<std::uint64_t, std::uint32_t> sizes;
    const auto settle = [&] {
      for (const std::uint64_t n : acked()) {
        ASSERT_NE(model.at(n), Fate::kAcked) << n << " acknowledged twice";
        model[n] = Fate::kAcked;
      }
      for (const std::uint64_t n : lost()) {
        ASSERT_EQ(model.at(n), Fate::kUnderWay) << n;
        model[n] = Fate::kLost;
      }
      ByteCount in_flight = 0;
      for (const auto& [n, fate] : model)
        if (fate == Fate::kUnderWay) in_flight += sizes[n];
      ASSERT_EQ(sent_.in_flight(), in_flight);
    };
    for (int step = 0; step < 2000; ++step) {
      wait(Duration(random.below(3'000'000)));
      if (random.chance(0.6)) {
        const auto size = static_cast<std::uint32_t>(100 + random.below(1400));
        if (random.chance(0.2)) {
          send_bare();
        } else {
          const std::uint64_t number = send(size);
          model[number] = Fate::kUnderWay;
          sizes[number] = size;
        }
      } else if (random.chance(0.7) && sent_.next_number().value() > 0) {
        const std::uint64_t next = sent_.next_number().value();
        const std::uint64_t last = next - 1 - random.below(std::min<std::uint64_t>(next, 30));
        const std::uint64_t first = last - random.below(std::min<std::uint64_t>(last + 1, 10));
        ASSERT_TRUE(ack(ack_frame({{first, last}})));
        settle();
      } else {
        timeout();
        settle();
      }
      if (HasFatalFailure()) FAIL() << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace tusk::transport
