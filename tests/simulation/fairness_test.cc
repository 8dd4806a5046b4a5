// Who gets what of a line that several flows share, in virtual time. `tusk-sim --flows` shows more.
#include <cstdio>

#include "tests/simulation/vocabulary.h"
#include "tests/support/sim_network.h"

namespace tusk::simulation {
namespace {

constexpr Duration kRtt = 50ms;

SimOptions line(double buffer_in_bdp, std::uint64_t seed = 5, Duration rtt = kRtt) {
  SimOptions options =
      symmetric_path(100 * kMbit, rtt, 0, from_seconds(buffer_in_bdp * to_seconds(rtt)), seed);
  options.handshake_rtt = rtt;
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

TEST(Fairness, FourFlowsThatJoinOneAfterAnother) {
  SimNetwork network(line(1));
  for (int flow = 0; flow < 4; ++flow) {
    if (flow > 0) network.run_for(2s);
    fetch_for_ever(network.join());
  }
  network.run_for(20 * kRtt);
  const Shares shares(network);
  network.run_for(8s);
  EXPECT_GE(jain_index(shares.rates()), 0.95);
}

// The queue of each that starts is not taken for that of flows that fill every buffer.
TEST(Fairness, EightFlowsThatJoinHalfASecondApart) {
  struct Joined {
    std::uint64_t rate;
    Duration rtt;
    double index_min;
  };
  for (const Joined& joined : {Joined{kGbit, 20ms, 0.95}, Joined{kGbit, 100ms, 0.95}}) {
    if (kSanitized && joined.rtt > 20ms) continue;
    constexpr int kSeeds = kSanitized ? 1 : 3;
    double sum = 0;
    for (int seed = 1; seed <= kSeeds; ++seed) {
      SimOptions options =
          symmetric_path(joined.rate, joined.rtt, 0.0002, joined.rtt, static_cast<std::uint64_t>(seed));
      options.handshake_rtt = joined.rtt;
      SimNetwork network(options);
      for (int flow = 0; flow < 8; ++flow) {
        if (flow > 0) network.run_for(flow == 7 ? 3s : 500ms);
        network.join().traffic().stream(1000 * kGiB, 64 * kMiB, Kind::kFetch);
      }
      network.run_for(20 * joined.rtt);
      const Shares shares(network);
      network.run_for(40 * joined.rtt);
      sum += jain_index(shares.rates());
    }
    std::printf("  %lu Mbit/s, %.0f ms: mean of %d runs %.3f\n", joined.rate / kMbit,
                to_seconds(joined.rtt) * 1e3, kSeeds, sum / kSeeds);
    EXPECT_GE(sum / kSeeds, joined.index_min);
  }
}

// Where eight windows are a good part of what the path holds, and their queues as long as that of a flow that
// fills buffers: nobody insists against the others.
TEST(Fairness, EightFlowsThatJoinOnASlowerLine) {
  for (const Duration rtt : {50ms, 100ms}) {
    constexpr int kSeeds = kSanitized ? 1 : 6;
    double sum = 0;
    for (int seed = 1; seed <= kSeeds; ++seed) {
      SimOptions options =
          symmetric_path(100 * kMbit, rtt, seed % 2 == 0 ? 0.0002 : 0, rtt, static_cast<std::uint64_t>(seed));
      options.handshake_rtt = rtt;
      SimNetwork network(options);
      for (int flow = 0; flow < 8; ++flow) {
        if (flow > 0) network.run_for(450ms + seed * 20ms);
        fetch_for_ever(network.join());
      }
      network.run_for(20 * rtt);
      const Shares shares(network);
      network.run_for(40 * rtt);
      const double index = jain_index(shares.rates());
      EXPECT_GE(index, 0.9) << "seed " << seed;
      sum += index;
    }
    std::printf("  %.0f ms: mean of %d runs %.3f\n", to_seconds(rtt) * 1e3, kSeeds, sum / kSeeds);
    EXPECT_GE(sum / kSeeds, 0.95);
  }
}

// Jain index from 8 to 16 s after all began.
double index_at_once(int flows, int seed) {
  SimOptions options = line(2, static_cast<std::uint64_t>(seed));
  options.path.to_client.loss = 0.0002;  // else all seeds are the same
  SimNetwork network(options);
  // Not within one packet of each other: what becomes of all of them would hang on that one.
  for (int flow = 0; flow < flows; ++flow) {
    fetch_for_ever(network.join());
    network.run_for(std::chrono::microseconds(700 + 100 * seed));
  }
  network.run_for(8s);
  const Shares shares(network);
  network.run_for(8s);
  return jain_index(shares.rates());
}

// The goal is 0.95. In some runs flows insist against the others (docs/CONGESTION.md, "What falls short").
TEST(Fairness, EightFlowsAtOnce) {
  constexpr int kSeeds = kSanitized ? 2 : 12;
  double sum = 0;
  for (int seed = 1; seed <= kSeeds; ++seed) sum += index_at_once(8, seed);
  std::printf("  mean of %d runs: %.3f\n", kSeeds, sum / kSeeds);
  if (kSanitized) return;  // two seeds tell of errors, not of shares
  EXPECT_GE(sum / kSeeds, 0.65);
}

// One run in ten or so is far from even, and any change of the controller makes it another one: few of the
// runs may be.
TEST(Fairness, SixteenFlowsAtOnce) {
  constexpr int kSeeds = kSanitized ? 2 : 16;
  double sum = 0;
  int uneven = 0;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const double index = index_at_once(16, seed);
    sum += index;
    uneven += index < 0.7 ? 1 : 0;
    EXPECT_GE(index, 0.35) << seed;
  }
  std::printf("  mean of %d runs: %.3f; below 0.7: %d\n", kSeeds, sum / kSeeds, uneven);
  EXPECT_LE(uneven, 2);
  EXPECT_GE(sum / kSeeds, 0.9);
}

TEST(Fairness, AloneItKeepsTheQueueShortWhateverTheBuffer) {
  for (const double bdp : {0.5, 1.0, 4.0, 20.0}) {
    SimNetwork network(line(bdp));
    fetch_for_ever(network.join());
    network.run_for(2s);
    Duration longest{};
    network.run_for(10s, 5ms,
                    [&] { longest = std::max(longest, network.link(Role::kClient).backlog(network.now())); });
    EXPECT_LE(longest, 20ms) << bdp << " BDP";
  }
}

// Asks for so much at once, again and again, as a player that jumps does.
class Bursts {
 public:
  static constexpr Duration kInterval = 420ms;

  Bursts(int mebibytes, Duration jitter) : network_(path(jitter)), world_(network_.join()) {
    world_.every(kInterval, [this, mebibytes] {
      for (int i = 0; i < mebibytes; ++i) {
        world_.traffic().call({.kind = Kind::kFetch, .size = kMiB, .done = [this, began = world_.now()] {
                                 if (network_.now() - TimePoint() > kStart)
                                   slowest_ = std::max(slowest_, network_.now() - began);
                               }});
      }
    });
    network_.run_for(kStart);
    network_.run_for(20s, 1ms, [this] {
      queue_ = std::max(queue_, network_.link(Role::kClient).backlog(network_.now()));
    });
    std::printf(
        "  %d MiB each 420 ms, jitter of %.0f ms: queue at most %.1f ms, all of a burst there after %.0f "
        "ms\n",
        mebibytes, to_seconds(jitter) * 1e3, to_seconds(queue_) * 1e3, to_seconds(slowest_) * 1e3);
  }

  [[nodiscard]] Duration queue() const { return queue_; }
  [[nodiscard]] Duration slowest() const { return slowest_; }  // of a burst, its last part

 private:
  static constexpr Duration kStart = 3s;
  static SimOptions path(Duration jitter) {
    SimOptions options = symmetric_path(1000 * kMbit, 100ms, 0, 100ms, 5);
    options.handshake_rtt = 100ms;
    options.path.to_client.jitter = options.path.to_server.jitter = jitter;
    return options;
  }

  SimNetwork network_;
  SimWorld& world_;
  Duration queue_{};
  Duration slowest_{};
};

// What a player asks for next waits behind the queue of what it wanted before.
TEST(Fairness, WhoSendsNowAndThenKeepsTheQueueAsShort) {
  for (const int mebibytes : {12, 16, 20, 26}) {
    const Bursts bursts(mebibytes, 0ms);
    EXPECT_LE(bursts.queue(), 18ms) << mebibytes;
    EXPECT_LE(bursts.slowest(), 115ms + at_full_speed(mebibytes * kMiB, 950 * kMbit)) << mebibytes;
  }
}

// And jitter does not cost it the line. (With 5 ms each way one burst of 48 ends a round trip later.)
TEST(Fairness, WhoSendsNowAndThenHasRoomForJitter) {
  const Bursts bursts(26, 3ms);
  EXPECT_LE(bursts.slowest(), 130ms + at_full_speed(26 * kMiB, 950 * kMbit));
}

TEST(Fairness, AloneOnASlowLineItKeepsTheQueueShort) {
  SimOptions options = symmetric_path(10 * kMbit, 10ms, 0, 200ms, 5);
  options.handshake_rtt = 10ms;
  SimNetwork network(options);
  fetch_for_ever(network.join());
  network.run_for(15s);
  Duration longest{};
  network.run_for(30s, 5ms,
                  [&] { longest = std::max(longest, network.link(Role::kClient).backlog(network.now())); });
  EXPECT_LE(longest, 40ms);
}

// ---------------------------------------------------------------- beside flows that fill every buffer

struct Beside {
  transport::CongestionKind other;
  double buffer;  // in BDP
  bool other_first;
  Duration rtt = 50ms;
};

class BesideOthers : public testing::TestWithParam<Beside> {};

// The smaller share of the line where the second one joins at `joins`, from ten seconds later on.
double smaller_share(const Beside& beside, Duration joins) {
  SimNetwork network(line(beside.buffer, 5, beside.rtt));
  const auto join = [&](bool other) {
    fetch_for_ever(network.join(other ? beside.other : transport::CongestionKind::kModel));
  };
  join(beside.other_first);
  network.run_for(joins);
  join(!beside.other_first);
  network.run_for(10s);
  const Shares shares(network);
  network.run_for(30s);
  return std::ranges::min(shares.rates()) / (100 * kMbit);
}

// When it joins moves it by a third, so the mean of several joins tells.
TEST_P(BesideOthers, NobodyStarves) {
  constexpr int kJoins = kSanitized ? 1 : 4;
  constexpr double kFair = 0.35;  // of the line, for each side
  double sum = 0;
  for (int i = 0; i < kJoins; ++i) sum += smaller_share(GetParam(), 5s + i * 137ms);
  std::printf("  the smaller share is %.3f of the line\n", sum / kJoins);
  if (kSanitized) return;  // one run tells of errors, not of shares
  EXPECT_GE(sum / kJoins, kFair);
}

INSTANTIATE_TEST_SUITE_P(Buffers, BesideOthers,
                         testing::Values(Beside{transport::CongestionKind::kCubic, 0.5, false},
                                         Beside{transport::CongestionKind::kCubic, 0.5, true},
                                         Beside{transport::CongestionKind::kCubic, 1, false},
                                         Beside{transport::CongestionKind::kCubic, 1, true},
                                         Beside{transport::CongestionKind::kCubic, 4, false},
                                         Beside{transport::CongestionKind::kCubic, 4, true},
                                         Beside{transport::CongestionKind::kBbr, 0.5, false},
                                         Beside{transport::CongestionKind::kBbr, 0.5, true},
                                         Beside{transport::CongestionKind::kBbr, 0.5, true, 100ms},
                                         Beside{transport::CongestionKind::kBbr, 1, false},
                                         Beside{transport::CongestionKind::kBbr, 1, true},
                                         Beside{transport::CongestionKind::kBbr, 4, false},
                                         Beside{transport::CongestionKind::kBbr, 4, true}),
                         [](const auto& beside_info) {
                           const Beside& beside = beside_info.param;
                           const bool bbr = beside.other == transport::CongestionKind::kBbr;
                           return std::string(bbr ? "Bbr" : "Cubic") +
                                  (beside.other_first ? "First" : "Second") +
                                  std::to_string(static_cast<int>(10 * beside.buffer)) + "TenthsBdp" +
                                  std::to_string(beside.rtt / 1ms) + "ms";
                         });

// ---------------------------------------------------------------- changes

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
  Duration longest{};
  network.run_for(5s, 5ms,
                  [&] { longest = std::max(longest, network.link(Role::kClient).backlog(network.now())); });
  const auto rates = shares.rates();
  std::printf("  queue %.1f ms\n", 1e3 * to_seconds(longest));
  EXPECT_GT(rates[0] + rates[1], 0.9 * 20 * kMbit);
  EXPECT_LE(longest, 40ms);
  for (const auto& pair : network.pairs()) EXPECT_THAT(pair->traffic().complaints(), testing::IsEmpty());
}

TEST(Fairness, TheIndexIsOneForEqualSharesAndOneOverNForOneWhoHasAll) {
  EXPECT_DOUBLE_EQ(jain_index({7, 7, 7}), 1);
  EXPECT_DOUBLE_EQ(jain_index({5, 0, 0, 0}), 0.25);
  EXPECT_DOUBLE_EQ(jain_index({0, 0}), 0);
}

}  // namespace
}  // namespace tusk::simulation
