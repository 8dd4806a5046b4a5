// A path that becomes another one under way (Hagernäs 2015: FASP took 5 s to use a capacity that rose): the
// goodput is near the new limit a second after the change and the drain of what was in flight.
#include <cstdio>

#include "tests/simulation/vocabulary.h"
#include "tests/support/sim_network.h"

namespace tusk::simulation {
namespace {

struct Line {
  std::uint64_t rate;
  Duration rtt;
  double loss;
};

class Handover : public testing::Test {
 protected:
  static SimOptions path(const Line& line) {
    SimOptions options = symmetric_path(line.rate, line.rtt, line.loss, line.rtt, 5);
    options.handshake_rtt = line.rtt;
    return options;
  }

  explicit Handover(const Line& first) : line_(first), network_(path(first)) {
    network_.join().traffic().stream(1000 * kGiB, 512 * kMiB, Kind::kFetch);
    network_.run_for(4s);
  }

  // Afterwards the share of the new limit that arrives is measured for two seconds.
  double share_after(const Line& next) {
    const double drain_s =
        static_cast<double>(line_.rate) * to_seconds(2 * line_.rtt) / static_cast<double>(next.rate);
    network_.change_links([&](LinkParameters& to_server, LinkParameters& to_client) {
      for (LinkParameters* link : {&to_server, &to_client}) {
        link->rate = next.rate;
        link->delay = next.rtt / 2;
        link->queue_time = next.rtt;
        link->loss = next.loss;
      }
    });
    line_ = next;
    network_.run_for(1s + std::min(from_seconds(drain_s), 2 * next.rtt));
    const Shares shares(network_);
    network_.run_for(2s);
    const double share = shares.rates()[0] / (static_cast<double>(next.rate) * (1 - next.loss) * 1434 / 1500);
    std::printf("  %5lu Mbit/s, %.0f ms: %.1f %% of the limit\n", next.rate / kMbit,
                to_seconds(next.rtt) * 1e3, 100 * share);
    return share;
  }

  Line line_;
  SimNetwork network_;
};

constexpr double kShareMin = 0.9;
constexpr double kShareMinOfBoth = 0.8;

struct FromWide : Handover {
  FromWide() : Handover({kGbit, 74ms, 0.0006}) {}
};
TEST_F(FromWide, ToNarrowAndBack) {
  // Narrow and longer at once is understood one after the other.
  EXPECT_GE(share_after({100 * kMbit, 92ms, 0.0013}), kShareMinOfBoth);
  network_.run_for(3s);
  EXPECT_GE(share_after({kGbit, 74ms, 0.0006}), kShareMin);
}

struct FromMiddle : Handover {
  FromMiddle() : Handover({400 * kMbit, 92ms, 0.0006}) {}
};
TEST_F(FromMiddle, DownAndThenTenfold) {
  EXPECT_GE(share_after({100 * kMbit, 92ms, 0.0013}), kShareMin);
  network_.run_for(3s);
  EXPECT_GE(share_after({kGbit, 92ms, 0.0006}), kShareMin);
}

struct Longer : Handover {
  Longer() : Handover({100 * kMbit, 40ms, 0}) {}
};
TEST_F(Longer, TheQueueOfALongerPathIsNone) { EXPECT_GE(share_after({100 * kMbit, 70ms, 0}), kShareMin); }

}  // namespace
}  // namespace tusk::simulation
