// Flows from one server to one host, which tell each other what they know (proto/transport/siblings.h); and
// from one host to one server, which tells them of each other (flow_news.h).
// `tusk-sim --one-server --flows model,model,...` shows more.
#include <algorithm>
#include <cstdio>

#include "tests/simulation/vocabulary.h"
#include "tests/support/sim_network.h"

namespace tusk::simulation {
namespace {

class OneServer : public testing::TestWithParam<Kind> {
 protected:
  OneServer() : network_(options()) { network_.serve_from_one(); }

  static SimOptions options() {
    SimOptions options = symmetric_path(kGbit, 20ms, 0, 100ms, 3);
    options.handshake_rtt = 20ms;
    return options;
  }
  void join(int flows, ByteCount size = 1000 * kGiB) {
    const auto before = network_.pairs().size();
    for (int flow = 0; flow < flows; ++flow) network_.join();
    if (before == 0) let_all_open();
    for (auto flow = before; flow < network_.pairs().size(); ++flow)
      network_.pairs()[flow]->traffic().stream(size, 16 * kMiB, GetParam());
  }
  // As programs do that are started at once, since they share the processors.
  void begin_one_after_another(int flows, ByteCount size, Duration every) {
    for (int flow = 0; flow < flows; ++flow) {
      network_.join().traffic().stream(size, 8 * kMiB, GetParam());
      network_.run_for(every);
    }
  }
  // Who stores has opened a file before, and has heard from the server then.
  void let_all_open() {
    network_.run_for(100ms);
    for (const auto& pair : network_.pairs()) pair->traffic().stream(kKiB, kKiB, Kind::kFetch);
    network_.run_for(100ms);
  }
  static Role sender() { return GetParam() == Kind::kFetch ? Role::kServer : Role::kClient; }
  // Of the others, a round trip after who is told by its own process: more of the first second goes unevenly,
  // and is still being given back.
  static bool hears_late() { return GetParam() == Kind::kStore; }
  static Role receiver() { return GetParam() == Kind::kFetch ? Role::kClient : Role::kServer; }
  std::vector<double> rates_over(Duration time) {
    const Shares shares(network_, receiver());
    network_.run_for(time);
    return shares.rates();
  }

  // When the first and when the last has all that it asked for.
  std::pair<Duration, Duration> ends() {
    std::vector<Duration> ends(network_.pairs().size());
    while (std::ranges::count(ends, Duration(0)) > 0 && network_.elapsed() < 60s)
      network_.run_for(10ms, 10ms, [&] {
        for (std::size_t flow = 0; flow < ends.size(); ++flow)
          if (ends[flow] == Duration(0) && network_.pairs()[flow]->traffic().idle())
            ends[flow] = network_.elapsed();
      });
    const auto [first, last] = std::ranges::minmax(ends);
    EXPECT_GT(first, Duration(0)) << "not all have ended";
    std::printf("  the first after %.2f s, the last after %.2f s\n", to_seconds(first), to_seconds(last));
    return {first, last};
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
TEST_P(OneServer, SixteenAtOnceShareFromTheFirstSecondOn) {
  join(16);
  network_.run_for(1s);
  const auto rates = rates_over(6s);
  std::printf("  Jain %.4f, least to most %.3f, together %.1f %%\n", jain_index(rates), least_to_most(rates),
              sum_of(rates) / 1e7);
  EXPECT_GE(jain_index(rates), 0.999);
  EXPECT_GE(least_to_most(rates), 0.9);
  EXPECT_GE(sum_of(rates), 0.94 * kGbit);
}

TEST_P(OneServer, SixtyFourShare) {
  if (kSanitized) GTEST_SKIP() << "skipped, because it takes long; sixteen do the same";
  join(64);
  network_.run_for(4s);
  const auto rates = rates_over(10s);
  std::printf("  Jain %.4f, least to most %.3f, together %.1f %%\n", jain_index(rates), least_to_most(rates),
              sum_of(rates) / 1e7);
  EXPECT_GE(jain_index(rates), 0.999);
  EXPECT_GE(least_to_most(rates), hears_late() ? 0.85 : 0.93);
  EXPECT_GE(sum_of(rates), 0.95 * kGbit);
}

// Rates that are equal in the end are not enough: who had less of the first second is given it back.
TEST_P(OneServer, WhoBeginTogetherEndTogether) {
  const int flows = kSanitized ? 16 : 64;
  for (int flow = 0; flow < flows; ++flow) network_.join().traffic().stream(16 * kMiB, 8 * kMiB, GetParam());
  const auto [first, last] = ends();
  // Of sixteen the last is there after two seconds, of which the first one is much.
  EXPECT_LE(last - first, last / (kSanitized ? 3 : hears_late() ? 5 : 25));
}

TEST_P(OneServer, WhoBeginsALittleLaterEndsWithTheOthers) {
  begin_one_after_another(8, 128 * kMiB, 80ms);
  const auto [first, last] = ends();
  EXPECT_LE(last - first, last / 30);
}

// Many that are started at once on a busy machine ask over many seconds.
TEST_P(OneServer, WhoBeginsMuchLaterInACrowdEndsWithTheOthers) {
  if (kSanitized) GTEST_SKIP() << "skipped, because it takes long; a few that begin later do the same";
  begin_one_after_another(16, 320 * kMiB, 300ms);
  const auto [first, last] = ends();
  EXPECT_LE(last - first, last / 20);
}

// Four seconds later it is owed nothing of what the others had before it came.
TEST_P(OneServer, WhoComesLateIsOwedNothing) {
  join(3);
  network_.run_for(4s);
  join(1);
  network_.run_for(1s);
  const auto rates = rates_over(3s);
  std::printf("  the late one has %.3f of what the others have\n",
              3 * rates[3] / (rates[0] + rates[1] + rates[2]));
  EXPECT_LE(3 * rates[3], 1.1 * (rates[0] + rates[1] + rates[2]));
  EXPECT_GE(3 * rates[3], 0.9 * (rates[0] + rates[1] + rates[2]));
}

// One that takes what it needs, and no more than that, is owed nothing for the rest, which the other one has.
TEST(SomeOfOneServer, WhoAsksForLittleHoldsNobodyBack) {
  SimOptions options = symmetric_path(100 * kMbit, 100ms, 0, 100ms, 3);
  options.handshake_rtt = 100ms;
  SimNetwork network(options);
  network.serve_from_one();
  network.join().traffic().stream(1000 * kGiB, 16 * kMiB, Kind::kFetch);
  SimTraffic& little = network.join().traffic();
  // 1 MiB every 300 ms, 28 Mbit/s.
  const auto ask = [&little] { little.stream(kMiB, kMiB, Kind::kFetch); };
  network.run_for(4s, 300ms, ask);
  const Shares shares(network);
  network.run_for(kSanitized ? 6s : 20s, 300ms, ask);
  const auto rates = shares.rates();
  std::printf("  the copy has %.1f Mbit/s beside %.1f\n", rates[0] / 1e6, rates[1] / 1e6);
  EXPECT_GE(rates[1], 26 * kMbit);
  EXPECT_GE(rates[0] + rates[1], (kSanitized ? 80 : 84) * kMbit);  // 89 if they did not know of each other
}

// Beside a stranger they are one together: each fighting for a half of the line had four of them 5 to 40 % of
// it, and BBR the fifth of it that was left.
struct BesideStranger {
  double ours = 0;  // bits/s, together
  double theirs = 0;
  double evenness = 0;  // of ours
};

BesideStranger four_beside(transport::CongestionKind other, std::uint64_t seed) {
  SimOptions options = symmetric_path(100 * kMbit, 50ms, 0, 50ms, seed);
  options.handshake_rtt = 50ms;
  SimNetwork network(options);
  network.serve_from_one();
  const auto join = [&](transport::CongestionKind kind) {
    network.join(kind).traffic().stream(1000 * kGiB, 16 * kMiB, Kind::kFetch);
  };
  for (int flow = 0; flow < 4; ++flow) join(transport::CongestionKind::kModel);
  network.run_for(3s + 41ms * seed);
  join(other);
  network.run_for(12s);
  const Shares shares(network);
  network.run_for(20s);
  std::vector<double> ours = shares.rates();
  const double theirs = ours.back();
  ours.pop_back();
  return {.ours = sum_of(ours), .theirs = theirs, .evenness = least_to_most(ours)};
}

// Of one run chance decides much: the mean of several.
TEST(SomeOfOneServer, BesideAStrangerTheyHaveAHalfTogetherAndEachTheSame) {
  if (kSanitized) GTEST_SKIP() << "skipped, because minutes of five flows take too long with sanitizers";
  constexpr int kRuns = 6;
  for (const auto other : {transport::CongestionKind::kBbr, transport::CongestionKind::kCubic}) {
    double smaller = 0;
    for (std::uint64_t seed = 0; seed < kRuns; ++seed) {
      const BesideStranger shares = four_beside(other, seed);
      std::printf("  ours %.1f Mbit/s together, the least %.2f of the most; the other %.1f\n",
                  shares.ours / 1e6, shares.evenness, shares.theirs / 1e6);
      smaller += std::min(shares.ours, shares.theirs) / kRuns;
      EXPECT_GE(shares.evenness, 0.6);
    }
    EXPECT_GE(smaller, 30 * kMbit);
  }
}

// All see the bare path when the queue is emptied, however many they are.
TEST_P(OneServer, TheBaseRoundTripStaysWhatItIs) {
  join(kSanitized ? 8 : 64);
  network_.run_for(kSanitized ? 4s : 15s);
  for (const auto& pair : network_.pairs()) {
    const auto& connection = *pair->connection(sender());
    EXPECT_LE(connection.rtt().minimum(), 22ms);
  }
}

TEST_P(OneServer, WhoJoinsHasItsPartSoon) {
  join(3);
  network_.run_for(4s);
  join(1);
  network_.run_for(1s);
  EXPECT_GE(jain_index(rates_over(2s)), 0.99);
}

INSTANTIATE_TEST_SUITE_P(BothWays, OneServer, testing::Values(Kind::kFetch, Kind::kStore),
                         [](const auto& each) { return each.param == Kind::kFetch ? "Out" : "Into"; });

}  // namespace
}  // namespace tusk::simulation
