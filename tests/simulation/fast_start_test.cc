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
  Duration stalls{};  // of both programs, so long on average, every 40 ms
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

// A connection that has just come about, and begins to move a file.
class Start {
 public:
  Start(const Path& path, std::uint64_t seed) : path_(path), pair_(options(path, seed)) {
    pair_.traffic().stream(1000 * kGiB, 2 * kGiB, path.kind);
  }

  // Until the end of the first round trip that carried nine tenths; `limit` if there is none before.
  Duration full_after(Duration limit) {
    // What had arrived at each of the last kLooks times.
    constexpr std::size_t kLooks = 40;
    std::deque<ByteCount> arrived;
    while (pair_.elapsed() < limit) {
      pair_.run_for(looked_at() / kLooks);
      arrived.push_back(received());
      if (arrived.size() <= kLooks) continue;
      if (static_cast<double>(arrived.back() - arrived.front()) >= nine_tenths()) return pair_.elapsed();
      arrived.pop_front();
    }
    return limit;
  }
  // Of what that is, in the next three.
  double kept() {
    const ByteCount before = received();
    pair_.run_for(3 * looked_at());
    return static_cast<double>(received() - before) / (3 * nine_tenths());
  }
  std::uint64_t dropped_by_the_queue() {
    return pair_.path().statistics(receiver()).drops[static_cast<std::size_t>(DropCause::kQueue)];
  }
  // Below some milliseconds the first train alone fills a round trip.
  [[nodiscard]] Duration looked_at() const { return std::max<Duration>(path_.rtt, 20ms); }

 private:
  static SimOptions options(const Path& path, std::uint64_t seed) {
    SimOptions options = symmetric_path(path.rate, path.rtt, path.loss, 100ms, seed);
    options.handshake_rtt = path.rtt;
    options.connection.credit.request_bytes_later = kServerCredit;
    if (path.stalls > Duration(0)) options.stall_every = 40ms;
    options.stall_length = path.stalls;
    return options;
  }
  [[nodiscard]] Role receiver() const { return path_.kind == Kind::kFetch ? Role::kClient : Role::kServer; }
  ByteCount received() { return pair_.connection(receiver())->stats().bytes_received; }
  [[nodiscard]] double nine_tenths() const {
    return 0.9 * (1 - path_.loss) * static_cast<double>(path_.rate) / 8 * to_seconds(looked_at()) * 1472 /
           1500;
  }

  Path path_;
  SimPair pair_;
};

class FastStart : public testing::TestWithParam<Path> {};

TEST_P(FastStart, IsFullWithinSixRoundTrips) {
  const Path& path = GetParam();
  if (kSanitized && path.rate > kGbit)
    GTEST_SKIP() << "skipped, because a gigabyte takes too long with sanitizers";
  Start start(path, 11);
  const Duration limit = std::max<Duration>(6 * path.rtt, path.rtt + start.looked_at() + 12ms);
  const Duration full = start.full_after(2 * limit);
  std::printf("  %.1f ms, %.1f round trips\n", to_seconds(full) * 1e3,
              to_seconds(full) / to_seconds(path.rtt));
  EXPECT_LE(full, limit);
  // And it stays so, and has overrun nothing.
  EXPECT_GE(start.kept(), 0.95);
  EXPECT_EQ(start.dropped_by_the_queue(), 0u);
}

// Of the starts of many seeds, in round trips.
double slowest_start(const Path& path) {
  std::vector<double> round_trips;
  for (std::uint64_t seed = 1; seed <= (kSanitized ? 4 : 40); ++seed)
    round_trips.push_back(to_seconds(Start(path, seed).full_after(12 * path.rtt)) / to_seconds(path.rtt));
  std::ranges::sort(round_trips);
  std::printf("  %s: %.2f round trips in the median, %.2f at most\n", name_of(path).c_str(),
              round_trips[round_trips.size() / 2], round_trips.back());
  return round_trips.back();
}

// Whatever is lost of the first packets: the cell where most is lost, and longest waited for.
TEST(FastStarts, AreFullWithinSixRoundTripsWhateverIsLost) {
  for (const Kind kind : {Kind::kFetch, Kind::kStore})
    EXPECT_LE(slowest_start({kGbit, 200ms, 0.01, kind}), 6);
}

// A program that was kept from running for some ms finds everything late that came meanwhile, which is no
// queue.
TEST(FastStarts, ABusyMachineDoesNotEndThem) {
  for (const Kind kind : {Kind::kFetch, Kind::kStore})
    EXPECT_LE(slowest_start({kGbit, 50ms, 0, kind, 10ms}), 8);
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
