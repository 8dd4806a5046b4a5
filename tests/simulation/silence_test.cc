// Nothing to say, and nobody there.
#include "tests/simulation/vocabulary.h"

namespace tusk::simulation {
namespace {

TEST(Silence, AnIdleConnectionLivesForAnHour) {
  SimPair pair(wan_with([](LinkParameters& link) { link.loss = 0.01; }));
  pair.fetch(1000);
  expect_well(pair, 1s);
  const auto before = pair.client().stats().packets_sent;
  pair.run_for(1h);
  EXPECT_THAT(pair.complaints(), testing::IsEmpty());
  // A ping every ten seconds, an occasional repair and a search for a larger MTU: not more.
  EXPECT_LT(pair.client().stats().packets_sent - before, 600u);
  pair.fetch(1000);
  expect_well(pair, pair.elapsed() + 1s);
}

TEST(Silence, ASilentServerIsGivenUp) {
  SimPair pair(wan());
  pair.fetch(1000);
  expect_well(pair, 1s);
  pair.change_links([](auto&, auto& to_client) { to_client.outage = true; });
  const Duration silent_since = pair.elapsed();
  pair.run_until([&] { return pair.client().closed(); }, 2min);
  ASSERT_EQ(pair.traffic().closed().size(), 1u);
  EXPECT_EQ(pair.traffic().closed()[0].side, Role::kClient);
  EXPECT_EQ(pair.traffic().closed()[0].code, ErrorCode::kTimedOut);
  EXPECT_GE(pair.elapsed() - silent_since, 29s);
  EXPECT_LE(pair.elapsed() - silent_since, 31s);
}

TEST(Silence, AVanishedClientIsGivenUp) {
  SimPair pair(wan());
  pair.fetch(1000);
  expect_well(pair, 1s);
  pair.change_links([](auto& to_server, auto&) { to_server.outage = true; });
  pair.run_until([&] { return pair.server().closed(); }, 2min);
  ASSERT_FALSE(pair.traffic().closed().empty());
  EXPECT_EQ(pair.traffic().closed()[0].code, ErrorCode::kTimedOut);
}

TEST(Silence, TheShorterPatienceHoldsForBoth) {
  SimOptions options = wan();
  options.connection.idle_timeout = 5s;
  SimPair pair(options);
  pair.run_for(1min + 150ms);  // not while a ping is on its way
  EXPECT_THAT(pair.complaints(), testing::IsEmpty());
  pair.change_links([](auto& to_server, auto& to_client) { to_server.outage = to_client.outage = true; });
  pair.run_for(7s);
  EXPECT_EQ(pair.traffic().closed().size(), 2u);
}

TEST(Silence, GoodbyeIsHeard) {
  SimPair pair(wan());
  pair.fetch(1000);
  expect_well(pair, 1s);
  pair.client().close(ErrorCode::kPeerClosed, "done");
  pair.run_for(1s);
  ASSERT_EQ(pair.traffic().closed().size(), 1u);
  EXPECT_EQ(pair.traffic().closed()[0].side, Role::kServer);
  EXPECT_EQ(pair.traffic().closed()[0].reason, "done");
}

}  // namespace
}  // namespace tusk::simulation
