// Clients of one host, which their server tells of each other.
#include "proto/transport/flow_news.h"

#include <gtest/gtest.h>

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
      flow.hear(at_server(now + kTrip / 2), wire::PacketNumber(++number), *news);
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
  TimePoint began{};
  for (TimePoint now = at(1s); now < at(4s); now += 100ms) {
    (void)other_.ask(now, news());
    const auto others = one_.ask(now, news());
    if (began == TimePoint{}) began = others.emptying;
  }
  EXPECT_GT(began, at(1s) + Siblings::empty_every(50ms));
  EXPECT_LE(began, at(1s) + Siblings::empty_every(50ms) + 300ms);
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
  one_.flow.hear(Client::at_server(at(1100ms)), wire::PacketNumber(0), FlowNewsFrame{.rate = 7});
  EXPECT_FALSE(one_.hear(at(1100ms)));
}

// ------------------------------------------------ on a connection

TEST_F(ConnectionTest, TellsAClientOfTheOthersOfItsHost) {
  auto host = std::make_shared<Siblings>();
  connection_.tell_peer_of(host);
  settle();
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
