// What somebody waits for: small reads on a path that loses packets come as if it did not.
#include <algorithm>
#include <cstdio>

#include "tests/simulation/vocabulary.h"

namespace tusk::simulation {
namespace {

// Keeps `parallel` small reads going until `total` are done, and remembers how long each took.
class SmallReads {
 public:
  SmallReads(SimWorld& world, int total, int parallel) : world_(world), left_(total) {
    for (int i = 0; i < parallel; ++i) next();
  }

  [[nodiscard]] double percentile_ms(double percent) {
    std::sort(took_.begin(), took_.end());
    const auto rank = static_cast<std::size_t>(percent / 100 * static_cast<double>(took_.size()));
    return to_seconds(took_[std::min(rank, took_.size() - 1)]) * 1e3;
  }

 private:
  void next() {
    if (left_-- <= 0) return;
    world_.traffic().call({.kind = Kind::kFetch,
                           .size = 4096,
                           .priority = wire::Priority::kInteractive,
                           .done = [this, began = world_.now()] {
                             took_.push_back(world_.now() - began);
                             next();
                           }});
  }

  SimWorld& world_;
  int left_;
  std::vector<Duration> took_;
};

TEST(Latency, SmallReadsOnALossyPathTakeOneRoundTrip) {
  constexpr double kRttMs = 100;
  SimPair pair(symmetric_path(kGbit, 100ms, 0.01, 100ms, 11));
  SmallReads reads(pair, 20'000, 32);
  expect_well(pair, 80s);
  const double half = reads.percentile_ms(50), p99 = reads.percentile_ms(99),
               p999 = reads.percentile_ms(99.9);
  std::printf("  p50 %.1f ms, p99 %.1f ms, p99.9 %.1f ms\n", half, p99, p999);
  EXPECT_LE(half, kRttMs + 2);
  EXPECT_LE(p99, 1.3 * kRttMs);
  EXPECT_LE(p999, 2.5 * kRttMs);
}

// A line that is full has no room for copies of everything, and the transfer must not pay for them.
TEST(Latency, SmallReadsBesideALargeTransferOnALossyPath) {
  SimPair pair(symmetric_path(kGbit, 100ms, 0.01, 100ms, 12));
  pair.traffic().stream(1 * kGiB, 64 * kMiB, Kind::kFetch);
  SmallReads reads(pair, 100, 1);
  expect_well(pair, 20s);
  const double half = reads.percentile_ms(50), p99 = reads.percentile_ms(99);
  std::printf("  p50 %.1f ms, p99 %.1f ms\n", half, p99);
  EXPECT_LE(half, 130);
  EXPECT_LE(p99, 250);
}

}  // namespace
}  // namespace tusk::simulation
