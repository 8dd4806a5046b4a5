// What share of a line arrives, in virtual time: the figures are the same on every machine.
//
// The limit is rate x (1 - loss) x 1434/1500: of an IP packet of 1500 bytes 1434 are body (of 9000 8934).
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
  std::uint64_t rate = kGbit;
  std::uint32_t mtu = 1500;
  ByteCount size = kGiB;
  int round_trips = 3;  // that it may take beyond what the line does
};

std::string name_of(const Line& line) {
  return std::to_string(line.rtt / 1ms) + "ms" + std::to_string(static_cast<int>(line.loss * 1e4 + 0.5)) +
         "In10000Lost" + (line.kind == Kind::kFetch ? "Fetch" : "Store") +
         (line.mtu == 1500 ? "" : "Mtu" + std::to_string(line.mtu));
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

// Its corners at ten times the rate, where the start takes a round trip more.
std::vector<Line> fast_grid() {
  std::vector<Line> lines;
  for (const std::uint32_t mtu : {1500u, 9000u})
    for (const auto& [rtt, loss] : {std::pair<Duration, double>(50ms, 0.001), {100ms, 0}, {200ms, 0.01}})
      lines.push_back({rtt, loss, Kind::kFetch, 10 * kGbit, mtu, 2 * kGiB, 4});
  return lines;
}

class Throughput : public testing::TestWithParam<Line> {};

TEST_P(Throughput, IsThatOfTheLineButForSomeRoundTrips) {
  if (kSanitized) GTEST_SKIP() << "skipped, because a gigabyte takes too long with sanitizers";
  const Line& line = GetParam();
  SimOptions options = symmetric_path(line.rate, line.rtt, line.loss, 100ms, 11);
  options.path.mtu = line.mtu;
  options.handshake_rtt = line.rtt;
  options.connection.credit.request_bytes_later = kServerCredit;
  SimPair pair(options);
  const Role receiver = line.kind == Kind::kFetch ? Role::kClient : Role::kServer;
  pair.traffic().stream(line.size, 128 * kMiB * (line.rate / kGbit), line.kind);
  Duration queue_late{0};
  pair.every(5ms, [&] {
    if (pair.elapsed() > 2s)
      queue_late = std::max(queue_late, pair.path().link(receiver).backlog(pair.now()));
  });
  const double limit = static_cast<double>(line.rate) * (1 - line.loss) * (line.mtu - 66) / line.mtu;
  const Duration least = from_seconds(static_cast<double>(line.size) * 8 / limit);
  ASSERT_TRUE(pair.run_until([&] { return pair.traffic().bytes_done() >= line.size; }, 60s));
  const Duration took = pair.elapsed();
  const LinkStatistics& link = pair.path().statistics(receiver);
  std::printf(
      "  %5.1f %% of the limit, %.2f round trips over it; queue mean %.2f ms, worst after 2 s %.2f ms\n",
      100 * to_seconds(least) / to_seconds(took), to_seconds(took - least) / to_seconds(line.rtt),
      to_seconds(link.queue_mean()) * 1e3, to_seconds(queue_late) * 1e3);
  // The question and the way of the first answer are a round trip, the start another one at 1 Gbit/s, what
  // empties the queue and what was lost last the third.
  EXPECT_LE(took, std::chrono::duration_cast<Duration>(least / 0.995) + line.round_trips * line.rtt);
  // After the start the queue is the one that the controller means to keep.
  EXPECT_LT(queue_late, std::max<Duration>(line.rtt / 5, line.rtt < 1ms ? 13ms : 9ms));
  EXPECT_LT(link.queue_mean(), std::max<Duration>(line.rtt / 8, line.rtt < 1ms ? 13ms : 9ms));
  EXPECT_EQ(link.drops[static_cast<std::size_t>(DropCause::kQueue)], 0u);
  EXPECT_TRUE(pair.run_to_rest(70s));
  EXPECT_THAT(pair.complaints(), testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(TenGigabits, Throughput, testing::ValuesIn(fast_grid()),
                         [](const auto& line) { return name_of(line.param); });
INSTANTIATE_TEST_SUITE_P(Grid, Throughput, testing::ValuesIn(grid()),
                         [](const auto& line) { return name_of(line.param); });

}  // namespace
}  // namespace tusk::simulation
