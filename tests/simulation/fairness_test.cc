// Who gets what of a line that several flows share, in virtual time. `tusk-sim --flows` shows more.
#include "tests/simulation/vocabulary.h"
#include "tests/support/sim_network.h"

namespace tusk::simulation {
namespace {

constexpr Duration kRtt = 50ms;

SimOptions line(double buffer_in_bdp, std::uint64_t seed = 5) {
  SimOptions options =
      symmetric_path(100 * kMbit, kRtt, 0, from_seconds(buffer_in_bdp * to_seconds(kRtt)), seed);
  options.handshake_rtt = kRtt;
  return options;
}

void fetch_for_ever(SimPair& pair) { pair.traffic().stream(1000 * kGiB, 16 * kMiB, Kind::kFetch); }

TEST(Fairness, TwoFlowsShareTheLineEvenly) {
  SimNetwork network(line(1));
  fetch_for_ever(network.join());
  network.run_for(5s);
  fetch_for_ever(network.join());
  network.run_for(20 * kRtt);
  const Shares shares(network);
  network.run_for(10s);
  EXPECT_GE(jain_index(shares.rates()), 0.95);
}

TEST(Fairness, ALineThatBecomesNarrowKeepsItsQueueInOrder) {
  SimNetwork network(line(1));
  fetch_for_ever(network.join());
  fetch_for_ever(network.join());
  network.run_for(5s);
  network.change_links([](LinkParameters& to_server, LinkParameters& to_client) {
    to_server.rate = to_client.rate = 20 * kMbit;
  });
  network.run_for(5s);
  const Shares shares(network);
  network.run_for(5s);
  const auto rates = shares.rates();
  EXPECT_GT(rates[0] + rates[1], 0.9 * 20 * kMbit);
  for (const auto& pair : network.pairs()) EXPECT_THAT(pair->traffic().complaints(), testing::IsEmpty());
}

TEST(Fairness, TheIndexIsOneForEqualSharesAndOneOverNForOneWhoHasAll) {
  EXPECT_DOUBLE_EQ(jain_index({7, 7, 7}), 1);
  EXPECT_DOUBLE_EQ(jain_index({5, 0, 0, 0}), 0.25);
  EXPECT_DOUBLE_EQ(jain_index({0, 0}), 0);
}

}  // namespace
}  // namespace tusk::simulation
