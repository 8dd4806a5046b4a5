// How long after the last data packet left a burst is over: half a round trip, whatever gets lost, since what
// ends a burst goes out with parity. In virtual time, over many seeds.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "tests/simulation/vocabulary.h"

namespace tusk::simulation {
namespace {

using transport::CongestionKind;

struct Burst {
  const char* name;
  Duration rtt;
  double loss;
  ByteCount message;
  // Of a round trip's packets, what may be parity; and how long after the way it may be over: that is as long
  // as the parity takes the line, and the queue that the sender keeps.
  double parity = 0.08;
  Duration margin = 40ms;
  Kind kind = Kind::kFetch;
  CongestionKind congestion = CongestionKind::kModel;
};

// What messages of this size, 60 MiB of them, all asked for at once, took.
struct Outcome {
  Duration tail{};  // after the last data packet left
  std::uint64_t parity = 0;
  std::uint64_t packets = 0;
};

constexpr ByteCount kAll = 60 * kMiB;

Outcome run(const Burst& burst, SimOptions options) {
  options.connection.congestion = burst.congestion;
  options.handshake_rtt = burst.rtt;
  SimPair pair(options);
  pair.run_for(1s + 6 * burst.rtt);
  const Role sender = burst.kind == Kind::kFetch ? Role::kServer : Role::kClient;
  for (ByteCount size = 0; size < kAll; size += burst.message)
    pair.traffic().call({burst.kind, burst.message, wire::Priority::kBulk});
  TimePoint unsent_at{};
  const auto watch = [&] {
    if (pair.connection(sender)->unsent_bytes() > 0) unsent_at = pair.now();
  };
  pair.every(100us, watch);
  EXPECT_TRUE(pair.run_until([&] { return pair.traffic().calls_open() == 0; }, 60s));
  const Outcome outcome{pair.now() - unsent_at, pair.connection(sender)->stats().packets_parity,
                        pair.connection(sender)->stats().packets_sent};
  // Who only probes may be silenced for long where many packets in a row get lost.
  pair.change_links([](LinkParameters&, LinkParameters& to_client) { to_client.burst_loss = 0; });
  EXPECT_TRUE(pair.run_to_rest(pair.elapsed() + 30s));
  EXPECT_THAT(pair.complaints(), testing::IsEmpty());
  return outcome;
}

class Tail : public testing::TestWithParam<Burst> {};

TEST_P(Tail, IsAsLongAsTheWay) {
  const Burst& burst = GetParam();
  const Duration way = burst.kind == Kind::kFetch ? burst.rtt / 2 : burst.rtt;
  const int seeds = kSanitized ? 2 : 40;
  std::vector<Duration> tails;
  double parity = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(seed);
    const Outcome outcome =
        run(burst, symmetric_path(kGbit, burst.rtt, burst.loss, 100ms, static_cast<std::uint64_t>(seed)));
    tails.push_back(outcome.tail);
    parity += static_cast<double>(outcome.parity) / seeds;
  }
  std::ranges::sort(tails);
  // Parity is of all that is on its way, which our own queue makes longer.
  const double flight = 1e9 / 8 * to_seconds(burst.rtt + 10ms) / 1500;
  std::printf(
      "  %-20s tail %.1f ms, median %.1f, 95 %% %.1f, worst %.1f; parity %.2f %% of a round trip's and a "
      "queue's packets\n",
      burst.name, to_seconds(tails.front()) * 1e3, to_seconds(tails[tails.size() / 2]) * 1e3,
      to_seconds(tails[tails.size() * 95 / 100 - (seeds == 40 ? 1 : 0)]) * 1e3,
      to_seconds(tails.back()) * 1e3, 100 * parity / flight);
  const auto late = std::ranges::count_if(tails, [&](Duration tail) { return tail > way + burst.margin; });
  // Of eight times as many messages, each protected by itself, more have bad luck.
  const bool small = burst.message < 64 * kKiB;
  // The sanitizers' two seeds look at memory; one of them may be the one in twenty.
  EXPECT_LE(late, std::max(1, seeds / (small ? 10 : 20)));
  EXPECT_LT(parity, burst.parity * flight);
}

INSTANTIATE_TEST_SUITE_P(
    Bursts, Tail,
    testing::Values(Burst{"Lossy", 100ms, 0.001, 256 * kKiB}, Burst{"MoreLossy", 100ms, 0.005, 256 * kKiB},
                    Burst{"VeryLossy", 100ms, 0.01, 256 * kKiB}, Burst{"FarLossy", 200ms, 0.001, 256 * kKiB},
                    Burst{"FarMoreLossy", 200ms, 0.005, 256 * kKiB},
                    Burst{"FarVeryLossy", 200ms, 0.01, 256 * kKiB},
                    Burst{"FarVeryLossyLarge", 200ms, 0.01, kMiB},
                    Burst{"FarLossySmall", 200ms, 0.001, 32 * kKiB, 0.2, 60ms},
                    Burst{"FarVeryLossySmall", 200ms, 0.01, 32 * kKiB, 0.3, 80ms},
                    Burst{"FarVeryLossyStore", 200ms, 0.01, 256 * kKiB, 0.08, 60ms, Kind::kStore},
                    Burst{"FarLossyBackground", 200ms, 0.001, 256 * kKiB, 0.08, 40ms, Kind::kFetch,
                          CongestionKind::kBackground}),
    [](const auto& burst) { return std::string(burst.param.name); });

TEST(TailOfCleanPaths, HasNoParity) {
  const Burst burst{"", 200ms, 0, 256 * kKiB};
  EXPECT_EQ(run(burst, symmetric_path(kGbit, burst.rtt, 0, 100ms, 1)).parity, 0u);
}

TEST(TailOfNearPaths, HasNoParity) {
  const Burst burst{"", 2ms, 0.01, 256 * kKiB};
  EXPECT_EQ(run(burst, symmetric_path(kGbit, burst.rtt, 0.01, 100ms, 1)).parity, 0u);
}

// Where fifty packets in a row get lost no parity suffices: what it costs is bounded, and repairs come as
// ever.
TEST(TailOfBurstyPaths, IsNoLongerThanARepairTakes) {
  const Burst burst{"", 100ms, 0, 256 * kKiB};
  const int seeds = kSanitized ? 2 : 20;
  for (int seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(seed);
    SimOptions options = symmetric_path(kGbit, burst.rtt, 0, 100ms, static_cast<std::uint64_t>(seed));
    options.path.to_client.burst_loss = 0.01;
    options.path.to_client.burst_length = 50;
    const Outcome outcome = run(burst, options);
    EXPECT_LT(outcome.tail, 3 * burst.rtt);
    EXPECT_LT(outcome.parity, outcome.packets / 50);
  }
}

}  // namespace
}  // namespace tusk::simulation
