// Flows from one server to one host, which tell each other what they know (proto/transport/siblings.h).
// `tusk-sim --one-server --flows model,model,...` shows more.
#include <algorithm>
#include <cstdio>

#include "tests/simulation/vocabulary.h"
#include "tests/support/sim_network.h"

namespace tusk::simulation {
namespace {

class OneServer : public testing::Test {
 protected:
  OneServer() : network_(options()) { network_.serve_from_one(); }

  static SimOptions options() {
    SimOptions options = symmetric_path(kGbit, 20ms, 0, 100ms, 3);
    options.handshake_rtt = 20ms;
    return options;
  }
  void join(int flows) {
    for (int flow = 0; flow < flows; ++flow)
      network_.join().traffic().stream(1000 * kGiB, 16 * kMiB, Kind::kFetch);
  }
  std::vector<double> rates_over(Duration time) {
    const Shares shares(network_);
    network_.run_for(time);
    return shares.rates();
  }

  SimNetwork network_;
};

double least_to_most(const std::vector<double>& rates) {
  return std::ranges::min(rates) / std::ranges::max(rates);
}

double sum_of(const std::vector<double>& rates) {
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

// Sixteen that did not know of each other took the line for sixteen times what it carries, lost 24,000
// packets, and had 2 to 12 MB of the first second.
TEST_F(OneServer, SixteenAtOnceShareFromTheFirstSecondOn) {
  join(16);
  network_.run_for(1s);
  const auto rates = rates_over(kSanitized ? 2s : 6s);
  std::printf("  Jain %.4f, least to most %.3f, together %.1f %%\n", jain_index(rates), least_to_most(rates),
              sum_of(rates) / 1e7);
  EXPECT_GE(jain_index(rates), 0.999);
  EXPECT_GE(least_to_most(rates), 0.9);
  EXPECT_GE(sum_of(rates), 0.94 * kGbit);
}

TEST_F(OneServer, SixtyFourShare) {
  if (kSanitized) GTEST_SKIP() << "skipped, because it takes long; sixteen do the same";
  join(64);
  network_.run_for(4s);
  const auto rates = rates_over(10s);
  std::printf("  Jain %.4f, least to most %.3f, together %.1f %%\n", jain_index(rates), least_to_most(rates),
              sum_of(rates) / 1e7);
  EXPECT_GE(jain_index(rates), 0.99);
  EXPECT_GE(least_to_most(rates), 0.6);
  EXPECT_GE(sum_of(rates), 0.93 * kGbit);
}

TEST_F(OneServer, WhoJoinsHasItsPartSoon) {
  join(3);
  network_.run_for(3s);
  join(1);
  network_.run_for(1s);
  EXPECT_GE(jain_index(rates_over(2s)), 0.99);
}

}  // namespace
}  // namespace tusk::simulation
