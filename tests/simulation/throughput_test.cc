// What share of a line arrives, in virtual time: the figures are the same on every machine.
//
// The limit is rate x (1 - loss) x 1434/1500: of an IP packet of 1500 bytes 1434 are body.
#include <cstdio>
#include <string>
#include <vector>

#include "tests/simulation/vocabulary.h"

namespace tusk::simulation {
namespace {

struct Line {
  Duration rtt;
  double loss;
  Kind kind;
};

std::string name_of(const Line& line) {
  return std::to_string(line.rtt / 1ms) + "ms" + std::to_string(static_cast<int>(line.loss * 1e4 + 0.5)) +
         "In10000Lost" + (line.kind == Kind::kFetch ? "Fetch" : "Store");
}

// The grid of Kachan and Siemens (ICNS 2013), one way and the other in turns.
std::vector<Line> grid() {
  std::vector<Line> lines;
  for (const Duration rtt :
       {Duration(200us), Duration(50ms), Duration(100ms), Duration(150ms), Duration(200ms)})
    for (const double loss : {0.0, 0.001, 0.003, 0.005, 0.01})
      lines.push_back({rtt, loss, lines.size() % 2 == 0 ? Kind::kFetch : Kind::kStore});
  return lines;
}

class Throughput : public testing::TestWithParam<Line> {};

TEST_P(Throughput, OfOneGibibyteAtOneGigabit) {
  if (kSanitized) GTEST_SKIP() << "skipped, because a gigabyte takes too long with sanitizers";
  const Line& line = GetParam();
  SimOptions options = symmetric_path(kGbit, line.rtt, line.loss, 100ms, 11);
  options.handshake_rtt = line.rtt;
  options.connection.credit.request_bytes_later = kServerCredit;
  SimPair pair(options);
  const Role receiver = line.kind == Kind::kFetch ? Role::kClient : Role::kServer;
  pair.traffic().stream(kGiB, 128 * kMiB, line.kind);
  Duration queue_late{0};
  pair.every(5ms, [&] {
    if (pair.elapsed() > 2s)
      queue_late = std::max(queue_late, pair.path().link(receiver).backlog(pair.now()));
  });
  const double limit = static_cast<double>(kGbit) * (1 - line.loss) * 1434 / 1500;
  const Duration least = from_seconds(static_cast<double>(kGiB) * 8 / limit);
  ASSERT_TRUE(pair.run_until([&] { return pair.traffic().bytes_done() >= kGiB; }, 60s));
  const Duration took = pair.elapsed();
  const LinkStatistics& link = pair.path().statistics(receiver);
  std::printf(
      "  %5.1f %% of the limit, %.2f round trips over it; queue mean %.2f ms, worst after 2 s %.2f ms\n",
      100 * to_seconds(least) / to_seconds(took), to_seconds(took - least) / to_seconds(line.rtt),
      to_seconds(link.queue_mean()) * 1e3, to_seconds(queue_late) * 1e3);
  // The question and the way of the first answer are a round trip, the start another one, what empties the
  // queue and what was lost last the third.
  EXPECT_LE(took, std::chrono::duration_cast<Duration>(least / 0.995) + 3 * line.rtt);
  // After the start the queue is the one that the controller means to keep.
  EXPECT_LT(queue_late, std::max<Duration>(line.rtt / 5, line.rtt < 1ms ? 13ms : 9ms));
  EXPECT_LT(link.queue_mean(), std::max<Duration>(line.rtt / 8, line.rtt < 1ms ? 13ms : 9ms));
  EXPECT_EQ(link.drops[static_cast<std::size_t>(DropCause::kQueue)], 0u);
  EXPECT_TRUE(pair.run_to_rest(70s));
  EXPECT_THAT(pair.complaints(), testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Grid, Throughput, testing::ValuesIn(grid()),
                         [](const auto& line) { return name_of(line.param); });

}  // namespace
}  // namespace tusk::simulation
