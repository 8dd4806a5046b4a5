// Several connections of one mount have together what one would have (docs/CONGESTION.md, "Several
// connections of a mount"), in virtual time. `tusk-sim --flows 'model*2,cubic@5s'` shows more.
#include <cstdio>

#include "tests/simulation/vocabulary.h"
#include "tests/support/sim_network.h"

namespace tusk::simulation {
namespace {

constexpr ByteCount kEndless = 1000 * kGiB;
// Between two that a mount opens.
constexpr Duration kApart = 3s;

struct SharedLine {
  std::uint64_t rate;
  Duration rtt;
  double loss = 0.0002;  // some, else all seeds are the same
};

SimNetwork network_on(const SharedLine& line, std::uint64_t seed) {
  // The buffer is one bandwidth-delay product.
  SimOptions options = symmetric_path(line.rate, line.rtt, line.loss, line.rtt, seed);
  options.handshake_rtt = line.rtt;
  return SimNetwork(options);
}

void download(SimPair& pair, ByteCount size = kEndless) {
  pair.traffic().stream(size, 32 * kMiB, Kind::kFetch);
}

SimPair& join_mount(SimNetwork& network, int connections) {
  SimPair& first = network.join();
  download(first);
  for (int lane = 1; lane < connections; ++lane) {
    network.run_for(kApart);
    download(network.join_mount_of(first));
  }
  return first;
}

double total(const std::vector<double>& values) {
  double all = 0;
  for (const double value : values) all += value;
  return all;
}

TEST(Lanes, AMountOfSeveralSharesTheLineEvenlyWithOneOfOne) {
  for (const int connections : {2, 4})
    for (const bool first : {true, false}) {
      if (kSanitized && connections > 2) continue;
      SimNetwork network = network_on({kGbit, 20ms}, 3);
      join_mount(network, first ? connections : 1);
      network.run_for(3s);
      join_mount(network, first ? 1 : connections);
      network.run_for(3s);
      const Shares shares(network);
      network.run_for(5s);
      const auto mounts = shares.rates_of_mounts();
      std::printf("  %d connections, %s: %.1f and %.1f %%\n", connections, first ? "first" : "second",
                  100 * mounts[first ? 0 : 1] / kGbit, 100 * mounts[first ? 1 : 0] / kGbit);
      EXPECT_GE(jain_index(mounts), 0.95) << connections << first;
      EXPECT_GE(total(mounts), 0.93 * kGbit) << connections << first;
    }
}

// With packets of a hundredth of what is on its way rates are known less well: that is the mount's loss.
TEST(Lanes, OnASlowLineTheMountOfSeveralDoesNotGetMore) {
  for (const bool first : {true, false}) {
    SimNetwork network = network_on({100 * kMbit, 50ms}, 5);
    join_mount(network, first ? 2 : 1);
    network.run_for(5s);
    join_mount(network, first ? 1 : 2);
    network.run_for(5s);
    const Shares shares(network);
    network.run_for(20s);
    EXPECT_GE(jain_index(shares.rates_of_mounts()), 0.95) << first;
    EXPECT_LE(shares.rates_of_mounts()[first ? 0 : 1], 0.52 * 100 * kMbit) << first;
  }
}

struct BesideMount {
  transport::CongestionKind other;
  bool other_first;
  double mount_min;
};

constexpr double kFairShare = 0.35;
// In two runs of three a connection that joins beside BBR and its own mount's first one never gets its part.
constexpr double kFairShareBehindBbr = 0.25;

class LanesBesideOthers : public testing::TestWithParam<BesideMount> {};

TEST_P(LanesBesideOthers, NobodyStarves) {
  const BesideMount& beside = GetParam();
  constexpr int kSeeds = kSanitized ? 1 : 3;
  double mount = 0, others = 0;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    // CUBIC would have next to nothing if a packet in 5000 got lost.
    const double loss = beside.other == transport::CongestionKind::kCubic ? 0 : 0.0001;
    SimNetwork network = network_on({100 * kMbit, 50ms, loss}, static_cast<std::uint64_t>(seed));
    const auto join = [&](bool other) {
      if (other)
        download(network.join(beside.other));
      else
        join_mount(network, 2);
    };
    join(beside.other_first);
    network.run_for(5s);
    join(!beside.other_first);
    network.run_for(40s);
    const Shares shares(network);
    network.run_for(60s);
    const auto rates = shares.rates_of_mounts();
    mount += rates[beside.other_first ? 1 : 0] / (100 * kMbit) / kSeeds;
    others += rates[beside.other_first ? 0 : 1] / (100 * kMbit) / kSeeds;
  }
  std::printf("  the mount: %.1f %%, the other: %.1f %%\n", 100 * mount, 100 * others);
  EXPECT_GE(mount, beside.mount_min);
  EXPECT_GE(others, kFairShare);
}

INSTANTIATE_TEST_SUITE_P(Others, LanesBesideOthers,
                         testing::Values(BesideMount{transport::CongestionKind::kCubic, false, kFairShare},
                                         BesideMount{transport::CongestionKind::kCubic, true, kFairShare},
                                         BesideMount{transport::CongestionKind::kBbr, false, kFairShare},
                                         BesideMount{transport::CongestionKind::kBbr, true,
                                                     kFairShareBehindBbr}),
                         [](const auto& beside_info) {
                           const bool bbr = beside_info.param.other == transport::CongestionKind::kBbr;
                           return std::string(bbr ? "Bbr" : "Cubic") +
                                  (beside_info.param.other_first ? "First" : "Second");
                         });

TEST(Lanes, AloneTheyKeepOneQueueTogether) {
  for (const int connections : {2, 4}) {
    SimNetwork network = network_on({kGbit, 20ms}, 7);
    join_mount(network, connections);
    network.run_for(3s);
    const Shares shares(network);
    Duration longest{};
    network.run_for(5s, 5ms,
                    [&] { longest = std::max(longest, network.link(Role::kClient).backlog(network.now())); });
    EXPECT_LE(longest, 20ms) << connections;
    EXPECT_GE(total(shares.rates()), 0.95 * kGbit) << connections;
    EXPECT_GE(jain_index(shares.rates()), 0.9) << connections;
  }
}

TEST(Lanes, ALineThatBecomesNarrowIsNarrowForThemTogether) {
  for (const int connections : {2, 4}) {
    constexpr std::uint64_t kNarrow = 50 * kMbit;
    SimNetwork network = network_on({kGbit, 50ms}, 11);
    join_mount(network, connections);
    network.run_for(3s);
    network.change_links([](LinkParameters& to_server, LinkParameters& to_client) {
      for (LinkParameters* link : {&to_server, &to_client}) link->rate = kNarrow;
    });
    // The queue of before leaves, and what was lost is sent again.
    network.run_for(2s);
    const Shares shares(network, Role::kClient, Shares::Of::kBodies);
    Duration longest{};
    network.run_for(2s, 5ms,
                    [&] { longest = std::max(longest, network.link(Role::kClient).backlog(network.now())); });
    std::printf("  %d connections: %.1f %%, queue %.1f ms\n", connections,
                100 * total(shares.rates()) / kNarrow, 1e3 * to_seconds(longest));
    EXPECT_GE(total(shares.rates()), 0.9 * kNarrow * 1434 / 1500) << connections;
    EXPECT_LE(longest, 25ms) << connections;
  }
}

TEST(Lanes, WhoIsLeftAloneHasTheLine) {
  SimNetwork network = network_on({kGbit, 20ms}, 9);
  SimPair& first = network.join();
  download(first);
  SimPair& second = network.join_mount_of(first);
  download(second, 100 * kMiB);
  network.run_for(5s);
  ASSERT_TRUE(second.traffic().idle());
  first.client().share_with(1);
  network.run_for(1s);
  const Shares shares(network);
  network.run_for(2s);
  EXPECT_GE(shares.rates()[0], 0.95 * kGbit);
  EXPECT_LT(first.server().stats().rtt_smoothed, 40ms);
}

}  // namespace
}  // namespace tusk::simulation
