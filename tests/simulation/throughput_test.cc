// What share of a line arrives, in virtual time: the figures are the same on every machine.
//
// The limit is rate x (1 - loss) x 1434/1500: of an IP packet of 1500 bytes 1434 are body.
#include <cstdio>

#include "tests/simulation/vocabulary.h"

namespace tusk::simulation {
namespace {

struct Line {
  const char* name;
  Duration rtt;
  double loss;
  Kind kind;
};

class Throughput : public testing::TestWithParam<Line> {};

TEST_P(Throughput, OfOneGibibyteAtOneGigabit) {
  if (kSanitized) GTEST_SKIP() << "skipped, because a gigabyte takes too long with sanitizers";
  constexpr double kShareMin = 0.96;  // a gigabyte with its start
  const Line& line = GetParam();
  SimOptions options = symmetric_path(kGbit, line.rtt, line.loss, 100ms, 11);
  options.handshake_rtt = line.rtt;
  SimPair pair(options);
  const Role receiver = line.kind == Kind::kFetch ? Role::kClient : Role::kServer;
  pair.traffic().stream(kGiB, 48 * kMiB, line.kind);
  Duration queue_late{0};
  pair.every(5ms, [&] {
    if (pair.elapsed() > 2s)
      queue_late = std::max(queue_late, pair.path().link(receiver).backlog(pair.now()));
  });
  const double limit = static_cast<double>(kGbit) * (1 - line.loss) * 1434 / 1500;
  ASSERT_TRUE(pair.run_until([&] { return pair.traffic().bytes_done() >= kGiB; }, 60s));
  const double rate = static_cast<double>(kGiB) * 8 / to_seconds(pair.elapsed());
  const LinkStatistics& link = pair.path().statistics(receiver);
  std::printf("  %-22s %6.1f Mbit/s, %5.1f %% of the limit; queue mean %.2f ms, worst after 2 s %.2f ms\n",
              line.name, rate / 1e6, 100 * rate / limit, to_seconds(link.queue_mean()) * 1e3,
              to_seconds(queue_late) * 1e3);
  EXPECT_GE(rate, kShareMin * limit);
  // After the start the queue is the one that the controller means to keep.
  EXPECT_LT(queue_late, std::max<Duration>(line.rtt / 5, 9ms));
  EXPECT_LT(link.queue_mean(), std::max<Duration>(line.rtt / 8, 9ms));
  EXPECT_TRUE(pair.run_to_rest(70s));
  EXPECT_THAT(pair.complaints(), testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Lines, Throughput,
                         testing::Values(Line{"Far", 100ms, 0, Kind::kFetch},
                                         Line{"FarStore", 100ms, 0, Kind::kStore},
                                         Line{"FarLossy", 100ms, 0.001, Kind::kFetch},
                                         Line{"FarLossyStore", 100ms, 0.001, Kind::kStore},
                                         Line{"FarVeryLossy", 100ms, 0.01, Kind::kFetch},
                                         Line{"FarVeryLossyStore", 100ms, 0.01, Kind::kStore},
                                         Line{"Near", 200us, 0, Kind::kFetch},
                                         Line{"NearStore", 200us, 0, Kind::kStore},
                                         Line{"NearVeryLossy", 200us, 0.01, Kind::kFetch}),
                         [](const auto& line) { return std::string(line.param.name); });

}  // namespace
}  // namespace tusk::simulation
