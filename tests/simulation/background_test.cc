// The background priority: alone it uses the line, beside others it is hardly there, two round trips after
// they come.
#include <cstdio>

#include "tests/simulation/vocabulary.h"
#include "tests/support/sim_network.h"

namespace tusk::simulation {
namespace {

using transport::CongestionKind;

constexpr Duration kLineRtt = 50ms;
constexpr std::uint64_t kLineRate = 100 * kMbit;
constexpr ByteCount kForEver = 1000 * kGiB;

SimOptions path_of(std::uint64_t rate, Duration rtt, double loss = 0, double buffer_in_bdp = 1) {
  SimOptions options = symmetric_path(rate, rtt, loss, from_seconds(buffer_in_bdp * to_seconds(rtt)), 5);
  options.handshake_rtt = rtt;
  return options;
}

void fetch(SimPair& pair, ByteCount bytes = kForEver) {
  pair.traffic().stream(bytes, 64 * kMiB, Kind::kFetch);
}

// ---------------------------------------------------------------- alone

struct AloneOn {
  const char* name;
  std::uint64_t rate;
  Duration rtt;
  double loss;
  double buffer;  // in BDP
};

class BackgroundAlone : public testing::TestWithParam<AloneOn> {};

TEST_P(BackgroundAlone, UsesTheLineAndKeepsTheQueueShort) {
  const AloneOn& alone = GetParam();
  SimNetwork network(path_of(alone.rate, alone.rtt, alone.loss, alone.buffer));
  fetch(network.join(CongestionKind::kBackground));
  network.run_for(2s + 30 * alone.rtt);
  Duration longest{};
  const Shares shares(network);
  network.run_for(4s + 10 * alone.rtt, 5ms,
                  [&] { longest = std::max(longest, network.link(Role::kClient).backlog(network.now())); });
  EXPECT_GE(shares.rates()[0], 0.9 * static_cast<double>(alone.rate) * (1 - alone.loss));
  EXPECT_LE(longest, 20ms);
}

INSTANTIATE_TEST_SUITE_P(Lines, BackgroundAlone,
                         testing::Values(AloneOn{"Usual", kLineRate, kLineRtt, 0, 1},
                                         AloneOn{"Near", kLineRate, 2ms, 0, 10},
                                         AloneOn{"Slow", 10 * kMbit, 20ms, 0, 5},
                                         AloneOn{"LongAndFast", 400 * kMbit, 200ms, 0, 0.5},
                                         AloneOn{"Lossy", 200 * kMbit, 100ms, 0.01, 1},
                                         AloneOn{"DeepBuffer", kLineRate, kLineRtt, 0.001, 20}),
                         [](const auto& alone_info) { return std::string(alone_info.param.name); });

// ---------------------------------------------------------------- beside others

struct Other {
  CongestionKind other;
  double buffer;     // in BDP
  double share_max;  // of the line, for the background
};

class BackgroundBeside : public testing::TestWithParam<Other> {};

TEST_P(BackgroundBeside, IsHardlyThere) {
  const Other& other_flow = GetParam();
  SimNetwork network(path_of(kLineRate, kLineRtt, 0, other_flow.buffer));
  fetch(network.join(CongestionKind::kBackground));
  network.run_for(5s);
  fetch(network.join(other_flow.other), 100 * kMiB);
  network.run_for(3s);
  const Shares shares(network);
  network.run_for(4s);
  EXPECT_LE(shares.rates()[0] / kLineRate, other_flow.share_max);
  // What the others do not use in so short a buffer is free.
  EXPECT_GE(shares.rates()[0] + shares.rates()[1], 0.85 * kLineRate);

  // Once they are gone all of it is used again.
  while (network.pairs()[1]->traffic().bytes_done() < 100 * kMiB && network.elapsed() < 60s)
    network.run_for(kLineRtt);
  network.run_for(120 * kLineRtt);
  const Shares after(network);
  network.run_for(3s);
  EXPECT_GE(after.rates()[0] / kLineRate, 0.9);
  for (const auto& pair : network.pairs()) EXPECT_THAT(pair->traffic().complaints(), testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Others, BackgroundBeside,
    testing::Values(Other{CongestionKind::kModel, 0.5, 0.05}, Other{CongestionKind::kModel, 1, 0.05},
                    Other{CongestionKind::kModel, 4, 0.05}, Other{CongestionKind::kCubic, 0.5, 0.1},
                    Other{CongestionKind::kCubic, 1, 0.05}, Other{CongestionKind::kCubic, 4, 0.05},
                    Other{CongestionKind::kBbr, 0.5, 0.05}, Other{CongestionKind::kBbr, 1, 0.05},
                    Other{CongestionKind::kBbr, 4, 0.05}),
    [](const auto& beside_info) {
      const Other& other_flow = beside_info.param;
      return std::string(other_flow.other == CongestionKind::kModel   ? "Model"
                         : other_flow.other == CongestionKind::kCubic ? "Cubic"
                                                                      : "Bbr") +
             std::to_string(static_cast<int>(10 * other_flow.buffer)) + "TenthsBdp";
    });

// The other's start is what fills the line: from its end on.
TEST(Background, YieldsWithinTwoRoundTrips) {
  for (const std::uint64_t rate : {kLineRate, 400 * kMbit})
    for (const Duration rtt : {20ms, 50ms, 100ms, 200ms}) {
      SimNetwork network(path_of(rate, rtt));
      fetch(network.join(CongestionKind::kBackground));
      network.run_for(2s + 30 * rtt);
      SimPair& other = network.join();
      fetch(other);
      while (other.connection(Role::kServer)->stats().congestion_state == "startup") network.run_for(rtt / 8);
      network.run_for(2 * rtt);
      const Shares shares(network);
      network.run_for(4 * rtt);
      const double background = shares.rates()[0] / static_cast<double>(rate);
      const double normal = shares.rates()[1] / static_cast<double>(rate);
      network.run_for(6 * rtt);
      const Shares later(network);
      network.run_for(10 * rtt);
      const double in_the_end = later.rates()[1] / static_cast<double>(rate);
      std::printf("  %lu Mbit/s, %.0f ms: background %.1f %%, normal %.1f %%, later %.1f %%\n", rate / kMbit,
                  to_seconds(rtt) * 1e3, 100 * background, 100 * normal, 100 * in_the_end);
      EXPECT_LE(background, 0.05);
      EXPECT_GE(in_the_end, 0.8);
    }
}

TEST(Background, TwoOfThemShareTheLine) {
  SimNetwork network(path_of(kLineRate, kLineRtt));
  fetch(network.join(CongestionKind::kBackground));
  network.run_for(5s);
  fetch(network.join(CongestionKind::kBackground));
  network.run_for(10s);
  const Shares shares(network);
  network.run_for(10s);
  EXPECT_GE(jain_index(shares.rates()), 0.85);
  EXPECT_GE(shares.rates()[0] + shares.rates()[1], 0.85 * kLineRate);
}

TEST(Background, AShorterLineAndALongerOneAreUsedAgain) {
  SimNetwork network(path_of(kLineRate, kLineRtt));
  fetch(network.join(CongestionKind::kBackground));
  network.run_for(5s);
  const auto change = [&](std::uint64_t rate, Duration rtt) {
    network.change_links([&](LinkParameters& to_server, LinkParameters& to_client) {
      for (LinkParameters* link : {&to_server, &to_client}) {
        link->rate = rate;
        link->delay = rtt / 2;
      }
    });
    // A longer path looks like others until the shorter is forgotten.
    network.run_for(15s);
    const Shares shares(network);
    network.run_for(5s);
    EXPECT_GE(shares.rates()[0], 0.9 * static_cast<double>(rate)) << rate << " " << to_seconds(rtt);
  };
  change(20 * kMbit, kLineRtt);
  change(kLineRate, kLineRtt);
  change(kLineRate, 2 * kLineRtt);
}

}  // namespace
}  // namespace tusk::simulation
