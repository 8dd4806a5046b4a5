// The controllers that others use behave here as they are known to: what our figures are compared with.
#include "tests/simulation/vocabulary.h"

namespace tusk::simulation {
namespace {

using transport::CongestionKind;

// The share of 100 Mbit/s, 50 ms, with a buffer of 50 ms, that 40 MiB reach.
double share(CongestionKind kind, double loss) {
  constexpr std::uint64_t kRate = 100'000'000;
  constexpr ByteCount kBytes = 40 * kMiB;
  SimOptions options = symmetric_path(kRate, 50ms, loss, 50ms, 3);
  options.connection.congestion = kind;
  options.handshake_rtt = 50ms;
  SimPair pair(options);
  pair.traffic().stream(kBytes, 4 * kMiB, Kind::kFetch);
  EXPECT_TRUE(pair.run_until([&] { return pair.traffic().bytes_done() >= kBytes; }, 600s));
  const Duration took = pair.elapsed();
  EXPECT_TRUE(pair.run_to_rest(took + 60s));
  EXPECT_THAT(pair.complaints(), testing::IsEmpty());
  const double limit = static_cast<double>(kRate) * (1 - loss) * 1434 / 1500;
  return static_cast<double>(kBytes) * 8 / to_seconds(took) / limit;
}

TEST(Controllers, CubicFillsALineThatLosesNothing) { EXPECT_GT(share(CongestionKind::kCubic, 0), 0.75); }

// Mathis et al. 1997: about 1.2 packets per round trip over the root of the loss rate, here 2.9 Mbit/s.
TEST(Controllers, CubicTakesEveryLossForCongestion) { EXPECT_LT(share(CongestionKind::kCubic, 0.01), 0.12); }

TEST(Controllers, BbrFillsALineThatLosesLittle) { EXPECT_GT(share(CongestionKind::kBbr, 0.001), 0.75); }

TEST(Controllers, OursIsBeforeBothOnALineThatLoses) {
  const double ours = share(CongestionKind::kModel, 0.01);
  EXPECT_GT(ours, share(CongestionKind::kBbr, 0.01));
  EXPECT_GT(ours, 0.9);
}

}  // namespace
}  // namespace tusk::simulation
