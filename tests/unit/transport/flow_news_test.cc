// Clients of one host, which their server tells of each other.
#include "proto/transport/flow_news.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/transport/connection_fixture.h"

namespace tusk::transport {
namespace {

using wire::FlowNewsFrame;
using wire::OtherFlowsFrame;

constexpr double kMbit = 125'000;
constexpr Duration kTrip = 60ms;  // of a round trip with the queue

// One client, and the server's side of it. Their clocks are an hour apart.
struct Client {
  SiblingsByPeer siblings;
  PeersFlow flow;
  std::uint64_t number = 0;

  explicit Client(const std::shared_ptr<Siblings>& host) {
    flow.let_hear();
    flow.join(host);
  }
  [[nodiscard]] static TimePoint at_server(TimePoint time) { return time + 1h; }

  Siblings::Others tell(TimePoint now, Siblings::News news) {
    news.now = now;
    return siblings.tell(this, news);
  }
  // What it has told arrives half a round trip later.
  void say(TimePoint now) {
    if (const auto news = siblings.take_news(now))
      flow.hear(at_server(now + kTrip / 2), wire::PacketNumber(++number), *news, 1e9, 1 << 30);
  }
  // What the server has to say leaves now, and arrives half a round trip later.
  bool hear(TimePoint now) {
    const auto others = flow.take_answer(at_server(now));
    if (others) siblings.hear(now + kTrip / 2, wire::PacketNumber(++number), *others, kTrip);
    return others.has_value();
  }
  // A whole round trip of it.
  Siblings::Others ask(TimePoint now, const Siblings::News& news) {
    tell(now, news);
    say(now);
    hear(now + kTrip / 2);
    return tell(now + kTrip, news);
  }
};

class FlowNewsTest : public testing::Test {
 protected:
  static Siblings::News news() {
    return {.rate = 100 * kMbit, .delivered = 1000, .capacity = 400 * kMbit, .base = 50ms, .queue = 10ms};
  }

  std::shared_ptr<Siblings> host_ = std::make_shared<Siblings>();
  Client one_{host_}, other_{host_};
};

TEST_F(FlowNewsTest, EachHearsOfTheOthersARoundTripLater) {
  auto half = news();
  half.part = 0.5;
  EXPECT_EQ(other_.ask(at(1s), half).flows, 0) << "nobody else has told anything";
  const auto others = one_.ask(at(1s), news());
  EXPECT_EQ(others.flows, 1);
  EXPECT_DOUBLE_EQ(others.parts, 0.5);
  EXPECT_DOUBLE_EQ(others.rate, 100 * kMbit);
  EXPECT_DOUBLE_EQ(others.rate_of_all, 100 * kMbit);
  EXPECT_DOUBLE_EQ(others.capacity, 400 * kMbit);
  EXPECT_EQ(others.late, kTrip / 2);
}

TEST_F(FlowNewsTest, TheServerKeepsTheAccount) {
  (void)other_.ask(at(1s), news());
  (void)one_.ask(at(1s), news());
  auto more = news();
  more.delivered += 1'000'000;
  EXPECT_DOUBLE_EQ(one_.ask(at(1100ms), more).ahead, 500'000);
  EXPECT_DOUBLE_EQ(other_.ask(at(1100ms), news()).ahead, -500'000);
}

TEST_F(FlowNewsTest, WhoTellsNothingHearsNothing) {
  EXPECT_TRUE(one_.hear(at(1s))) << "but how many there are";
  EXPECT_FALSE(one_.hear(at(1s)));
  (void)one_.tell(at(1s), news());
  one_.say(at(1s));
  EXPECT_TRUE(one_.hear(at(1100ms)));
  EXPECT_FALSE(one_.hear(at(1100ms)));
}

TEST_F(FlowNewsTest, NewsThatCouldNotBeSentGrowStale) {
  (void)one_.tell(at(1s), news());
  EXPECT_EQ(one_.siblings.take_news(at(2s)), std::nullopt);
  (void)one_.tell(at(2s), news());
  EXPECT_NE(one_.siblings.take_news(at(2100ms)), std::nullopt);
  EXPECT_EQ(one_.siblings.take_news(at(2100ms)), std::nullopt) << "once";
}

// Many programs that start at once must not each take the whole line until they hear of each other.
TEST_F(FlowNewsTest, UntilTheAnswerAllThatAreThereAreTakenToStart) {
  const Client third(host_), fourth(host_);
  EXPECT_EQ(one_.tell(at(1s), news()).flows, 0);
  EXPECT_TRUE(one_.hear(at(1s))) << "there are four, it knows of itself";
  const auto others = one_.tell(at(1100ms), news());
  EXPECT_EQ(others.flows, 3);
  EXPECT_DOUBLE_EQ(others.parts, 3);
  EXPECT_EQ(others.rate, 0);
  EXPECT_EQ(one_.ask(at(1100ms), news()).flows, 0) << "they do not";
  EXPECT_EQ(one_.tell(at(1200ms), news()).flows, 0);
  EXPECT_EQ(one_.tell(at(5s), news()).flows, 3) << "what was true then may not be any more";
}

TEST_F(FlowNewsTest, IsToldUnaskedWhenTheyAreTwiceOrHalfAsMany) {
  {
    const Client third(host_), fourth(host_);
    EXPECT_TRUE(one_.hear(at(1s)));
    const Client fifth(host_);
    EXPECT_FALSE(one_.hear(at(1s)));
  }
  EXPECT_TRUE(one_.hear(at(1s)));
  EXPECT_EQ(one_.tell(at(1s), news()).flows, 1);
}

TEST_F(FlowNewsTest, WhoDoesNotUnderstandItIsToldNothingUnasked) {
  PeersFlow old;
  old.join(host_);
  const Client third(host_), fourth(host_);
  EXPECT_EQ(old.take_answer(at(1s)), std::nullopt);
}

TEST_F(FlowNewsTest, WhoLeavesIsNotThereAnyMore) {
  (void)other_.ask(at(1s), news());
  EXPECT_EQ(host_->glance().around, 2);
  other_.flow.join(nullptr);
  EXPECT_EQ(host_->glance().around, 1);
  EXPECT_EQ(one_.ask(at(1s), news()).flows, 0);
}

TEST_F(FlowNewsTest, TimesAreThoseOfWhoHearsThem) {
  auto empties = news();
  empties.emptying = at(970ms);
  (void)other_.ask(at(1s), empties);
  const auto others = one_.ask(at(1010ms), news());
  EXPECT_LE(std::chrono::abs(others.emptying - at(970ms)), 1ms);
}

TEST_F(FlowNewsTest, AllHearAtOnceThatOneEmptiesTheQueue) {
  (void)other_.ask(at(1s), news());
  (void)one_.ask(at(1s), news());
  auto empties = news();
  empties.emptying = at(1040ms);
  (void)other_.tell(at(1040ms), empties);
  other_.say(at(1040ms));
  (void)other_.flow.take_answer(Client::at_server(at(1070ms)));
  EXPECT_TRUE(one_.hear(at(1071ms))) << "without having asked again";
  EXPECT_LE(std::chrono::abs(one_.tell(at(1110ms), news()).emptying - at(1040ms)), 2ms);
  EXPECT_FALSE(one_.hear(at(1072ms)));
}

TEST_F(FlowNewsTest, ThatItDidSoItselfIsNoNews) {
  (void)other_.ask(at(1s), news());
  auto empties = news();
  empties.emptying = at(1040ms);
  (void)one_.tell(at(1040ms), empties);
  one_.say(at(1040ms));
  EXPECT_TRUE(one_.hear(at(1070ms)));
  EXPECT_FALSE(one_.hear(at(1075ms)));
}

// Each would begin before it hears that another one has.
TEST_F(FlowNewsTest, TheServerSaysWhenAllEmptyTheQueue) {
  std::vector<TimePoint> said;
  for (TimePoint now = at(1s); now < at(6s); now += 100ms) {
    (void)other_.ask(now, news());  // it never does, or has not heard of it
    const TimePoint emptying = one_.ask(now, news()).emptying;
    if (emptying != TimePoint{} && (said.empty() || emptying - said.back() > kTrip / 2))
      said.push_back(emptying);
  }
  ASSERT_EQ(said.size(), 2u);
  const Duration every = Siblings::empty_every(50ms);
  EXPECT_GT(said[0], at(1s) + every);
  EXPECT_LE(said[0], at(1s) + every + 300ms);
  EXPECT_GE(said[1], said[0] + every - 1ms);
}

TEST_F(FlowNewsTest, AnAnswerThatCouldNotBeGivenIsNotGivenLater) {
  (void)one_.tell(at(1s), news());
  one_.say(at(1s));
  EXPECT_TRUE(one_.hear(at(4s))) << "how many there are, nothing else";
  EXPECT_TRUE(one_.tell(at(4100ms), news()).guessed);
  EXPECT_EQ(other_.ask(at(4s), news()).flows, 0) << "it sends nothing any more";
}

TEST_F(FlowNewsTest, WhoAsksAllTheTimeIsAnsweredNowAndThen) {
  int answers = 0;
  for (TimePoint now = at(1s); now < at(1100ms); now += 100us) {
    (void)one_.tell(now, news());
    one_.say(now);
    answers += one_.hear(now + kTrip / 2);
  }
  EXPECT_GE(answers, 40);
  EXPECT_LE(answers, 51);
}

TEST_F(FlowNewsTest, NobodyHasSentMoreThanHasArrived) {
  const auto claims = [&](Duration when, std::uint64_t number, ByteCount arrived) {
    one_.flow.hear(at(when), wire::PacketNumber(number),
                   FlowNewsFrame{.rate = wire::kRateMax,
                                 .delivered = (1ull << 60) * (number + 1),
                                 .capacity = 50'000'000,
                                 .base_us = 50'000,
                                 .queue_us = 10'000},
                   5000, arrived);
    (void)one_.flow.take_answer(at(when));
  };
  claims(1s, 0, 70'000);
  claims(1010ms, 1, 90'000);
  auto now = news();
  now.now = at(1010ms);
  int name = 0;
  const auto others = host_->tell(&name, now);
  EXPECT_EQ(others.flows, 1);
  EXPECT_EQ(others.rate, 5000);
  claims(1020ms, 2, 110'000);
  // Of the 40,000 that have arrived since it was first heard of half was the part of who came a moment later.
  EXPECT_DOUBLE_EQ(host_->tell(&name, now).ahead, -20'000);
}

TEST_F(FlowNewsTest, TheSameHostAgainIsNoChange) {
  (void)other_.ask(at(1s), news());
  (void)one_.ask(at(1s), news());
  auto more = news();
  more.delivered += 1'000'000;
  (void)one_.ask(at(1100ms), more);
  one_.flow.join(host_);
  EXPECT_EQ(host_->glance().around, 2);
  EXPECT_DOUBLE_EQ(one_.ask(at(1200ms), more).ahead, 500'000);
}

TEST_F(FlowNewsTest, TheLongestTimesAndLargestNumbersAreAnswered) {
  const FlowNewsFrame frame{.flows = wire::kFlowsMax,
                            .rate = wire::kRateMax,
                            .delivered = kVarintMax,
                            .capacity = wire::kRateMax,
                            .base_us = wire::kFlowTimeMax,
                            .queue_us = wire::kFlowTimeMax,
                            .emptied_us = wire::kFlowTimeMax};
  for (Client* client : {&one_, &other_}) {
    client->flow.hear(at(2h), wire::PacketNumber(1), frame, 1e15, kVarintMax);
    const auto answer = client->flow.take_answer(at(2h));
    ASSERT_TRUE(answer);
    EXPECT_TRUE(golden::decode_one(golden::encode(wire::Frame(*answer))));
  }
}

TEST_F(FlowNewsTest, OlderNewsAndOlderAnswersAreDropped) {
  (void)other_.ask(at(1s), news());
  (void)one_.tell(at(1s), news());
  one_.say(at(1s));
  const auto answer = one_.flow.take_answer(Client::at_server(at(1030ms)));
  ASSERT_TRUE(answer);
  one_.siblings.hear(at(1060ms), wire::PacketNumber(10), *answer, kTrip);
  one_.siblings.hear(at(1060ms), wire::PacketNumber(9), OtherFlowsFrame{.answers = true}, kTrip);
  EXPECT_EQ(one_.tell(at(1100ms), news()).flows, 1);
  one_.flow.hear(Client::at_server(at(1100ms)), wire::PacketNumber(0), FlowNewsFrame{.rate = 7}, 1e9,
                 1 << 30);
  EXPECT_FALSE(one_.hear(at(1100ms)));
}

// ------------------------------------------------ on a connection

TEST_F(ConnectionTest, TellsAClientOfTheOthersOfItsHost) {
  auto host = std::make_shared<Siblings>();
  connection_.tell_peer_of(host);
  settle();
  receive({wire::FlowNewsFrame{.rate = 1000}, wire::PingFrame{}});
  EXPECT_THAT(frames(), Not(Contains(StartsWith("OTHER_FLOWS")))) << "it has not said that it takes it";
  receive({wire::SettingsFrame{{{1, 1472}, {3, wire::kFeatureFlowNews}}}});
  receive({wire::FlowNewsFrame{.rate = 1000}, wire::PingFrame{}});
  EXPECT_THAT(frames(), Contains(StartsWith("OTHER_FLOWS around=1 answers=1 flows=0 ")));
}

TEST_F(ConnectionTest, WithoutOthersThereIsNoAnswer) {
  settle();
  receive({wire::FlowNewsFrame{.rate = 1000}, wire::PingFrame{}});
  EXPECT_THAT(frames(), Not(Contains(StartsWith("OTHER_FLOWS"))));
}

class FlowNewsConnectionTest : public ClientConnectionTest {
 protected:
  bool tells_a_server_with(std::uint64_t features) {
    receive({wire::SettingsFrame{{{1, 1472}, {3, features}}}});
    (void)packets();
    wait(100ms);
    acknowledge_all();
    (void)open(1 << 20);
    for (int round = 0; round < 4; ++round) {
      for (const std::string& frame : frames())
        if (frame.starts_with("FLOW_NEWS")) return true;
      wait(100ms);
      acknowledge_all();
    }
    return false;
  }
};

TEST_F(FlowNewsConnectionTest, AreForAServerThatTakesThem) {
  EXPECT_TRUE(tells_a_server_with(wire::kFeatureFlowNews));
}
TEST_F(FlowNewsConnectionTest, AreForNoOther) { EXPECT_FALSE(tells_a_server_with(wire::kFeatureParity)); }

}  // namespace
}  // namespace tusk::transport
