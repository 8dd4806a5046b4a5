// How soon a path that nobody knows anything about is full: from the first request of a mount that has just
// come about to the end of the first round trip that carried nine tenths of the capacity. In virtual time.
#include <algorithm>
#include <cstdio>
#include <deque>
#include <string>

#include "tests/simulation/vocabulary.h"

namespace tusk::simulation {
namespace {

struct Path {
  std::uint64_t rate;
  Duration rtt;
  double loss;
  Kind kind;
};

std::string name_of(const Path& path) {
  return std::to_string(path.rate / kMbit) + "Mbit" + std::to_string(path.rtt / 1ms) + "ms" +
         std::to_string(static_cast<int>(path.loss * 1e4 + 0.5)) + "In10000Lost" +
         (path.kind == Kind::kFetch ? "Fetch" : "Store");
}

// The cells of Kachan and Siemens, both ways; the widest and the longest besides.
std::vector<Path> paths() {
  std::vector<Path> paths;
  for (const Kind kind : {Kind::kFetch, Kind::kStore}) {
    for (const Duration rtt :
         {Duration(200us), Duration(50ms), Duration(100ms), Duration(150ms), Duration(200ms)})
      for (const double loss : {0.0, 0.001, 0.003, 0.005, 0.01}) paths.push_back({kGbit, rtt, loss, kind});
    paths.push_back({10 * kGbit, 100ms, 0.001, kind});
    paths.push_back({10 * kGbit, 200ms, 0.01, kind});
    paths.push_back({100 * kMbit, 1000ms, 0.001, kind});
  }
  return paths;
}

class FastStart : public testing::TestWithParam<Path> {};

TEST_P(FastStart, IsFullWithinSixRoundTrips) {
  const Path& path = GetParam();
  if (kSanitized && path.rate > kGbit)
    GTEST_SKIP() << "skipped, because a gigabyte takes too long with sanitizers";
  SimOptions options = symmetric_path(path.rate, path.rtt, path.loss, 100ms, 11);
  options.handshake_rtt = path.rtt;
  options.connection.credit.request_bytes_later = kServerCredit;
  SimPair pair(options);
  const Role receiver = path.kind == Kind::kFetch ? Role::kClient : Role::kServer;
  // Below some milliseconds the first train alone fills a round trip.
  const Duration looked_at = std::max<Duration>(path.rtt, 20ms);
  const double nine_tenths =
      0.9 * (1 - path.loss) * static_cast<double>(path.rate) / 8 * to_seconds(looked_at) * 1472 / 1500;
  // What had arrived at each of the last kLooks times.
  constexpr std::size_t kLooks = 40;
  std::deque<ByteCount> arrived;
  Duration full{};
  pair.every(looked_at / kLooks, [&] {
    arrived.push_back(pair.connection(receiver)->stats().bytes_received);
    if (arrived.size() <= kLooks) return;
    if (full == Duration(0) && static_cast<double>(arrived.back() - arrived.front()) >= nine_tenths)
      full = pair.elapsed();
    arrived.pop_front();
  });
  pair.traffic().stream(1000 * kGiB, 2 * kGiB, path.kind);
  const Duration limit = std::max<Duration>(6 * path.rtt, path.rtt + looked_at + 12ms);
  EXPECT_TRUE(pair.run_until([&] { return full > Duration(0); }, 2 * limit));
  std::printf("  %.1f ms, %.1f round trips\n", to_seconds(full) * 1e3,
              to_seconds(full) / to_seconds(path.rtt));
  EXPECT_LE(full, limit);
  // And it stays so, and has overrun nothing.
  const ByteCount before = pair.connection(receiver)->stats().bytes_received;
  pair.run_for(3 * looked_at);
  EXPECT_GE(static_cast<double>(pair.connection(receiver)->stats().bytes_received - before),
            0.95 * 3 * nine_tenths);
  EXPECT_EQ(pair.path().statistics(receiver).drops[static_cast<std::size_t>(DropCause::kQueue)], 0u);
}

// What nobody asked for, behind which the first answers would stand: 94 KB are 75 ms of 10 Mbit/s.
TEST(FastStartOfASlowLine, IsProbedByOneTrain) {
  for (const std::uint64_t rate : {kMbit, 10 * kMbit, 50 * kMbit})
    for (const Duration rtt : {1ms, 10ms, 20ms, 50ms, 100ms}) {
      SCOPED_TRACE(testing::Message() << rate / kMbit << " Mbit/s, " << rtt / 1ms << " ms");
      SimOptions options = symmetric_path(rate, rtt, 0, 2s, 11);
      options.handshake_rtt = rtt;
      SimPair pair(options);
      pair.run_for(10s);
      for (const Role role : {Role::kClient, Role::kServer})
        EXPECT_LT(pair.connection(role)->stats().bytes_sent, 2 * 94'208u);  // packet sizes are tried, too
    }
}

INSTANTIATE_TEST_SUITE_P(Paths, FastStart, testing::ValuesIn(paths()),
                         [](const auto& path) { return name_of(path.param); });

}  // namespace
}  // namespace tusk::simulation
