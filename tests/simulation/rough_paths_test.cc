// Paths that are not as they should be: what arrives of their limit at 1 Gbit/s and 100 ms, start included.
#include <cstdio>
#include <functional>

#include "tests/simulation/vocabulary.h"

namespace tusk::simulation {
namespace {

struct Rough {
  const char* name;
  std::function<void(LinkParameters&)> make;
  double limit = 1;     // share of the line that the path lets through
  double share = 0.9;   // of that, at least
  double harm = 0.03;   // share of packets that may be lost beyond what the path loses by itself
  double own_loss = 0;  // that
};

class RoughPath : public testing::TestWithParam<Rough> {};

TEST_P(RoughPath, CarriesNineTenthsOfItsLimit) {
  if (kSanitized) GTEST_SKIP() << "skipped, because a gigabyte takes too long with sanitizers";
  const Rough& rough = GetParam();
  SimOptions options = symmetric_path(kGbit, 100ms, 0, 100ms, 11);
  options.handshake_rtt = 100ms;
  rough.make(options.path.to_client);
  rough.make(options.path.to_server);
  SimPair pair(options);
  pair.run_for(1600ms);  // a mount that is in use: its probe has been answered
  const Duration start = pair.elapsed();
  constexpr ByteCount kSize = 2 * kGiB;
  pair.traffic().stream(kSize, 64 * kMiB, Kind::kFetch);
  ASSERT_TRUE(pair.run_until([&] { return pair.traffic().bytes_done() >= kSize; }, 120s));
  const double rate = static_cast<double>(kSize) * 8 / to_seconds(pair.elapsed() - start);
  const double limit = static_cast<double>(kGbit) * rough.limit * (1 - rough.own_loss) * 1434 / 1500;
  const auto stats = pair.server().stats();
  const double lost = static_cast<double>(pair.path().statistics(Role::kClient).dropped()) /
                      static_cast<double>(stats.packets_sent);
  const double resent = static_cast<double>(stats.packets_spurious) / static_cast<double>(stats.packets_sent);
  std::printf("  %-20s %5.1f %% of the limit, %.2f %% lost, %.2f %% sent again in vain\n", rough.name,
              100 * rate / limit, 100 * lost, 100 * resent);
  EXPECT_GE(rate, rough.share * limit);
  EXPECT_LE(lost, rough.own_loss + rough.harm);
  EXPECT_LE(resent, 0.01);
  EXPECT_THAT(pair.traffic().complaints(), testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Paths, RoughPath,
    testing::Values(
        Rough{.name = "BurstsOf8",
              .make = [](LinkParameters& link) { link.burst_loss = 0.01; },
              .own_loss = 0.01},
        Rough{.name = "BurstsOf50",
              .make = [](LinkParameters& link) { link.burst_loss = 0.01, link.burst_length = 50; },
              .own_loss = 0.01},
        Rough{.name = "Reordering", .make = [](LinkParameters& link) { link.reorder = 0.05; }},
        Rough{.name = "Jitter", .make = [](LinkParameters& link) { link.jitter = 10ms; }},
        Rough{.name = "Duplicates", .make = [](LinkParameters& link) { link.duplicate = 0.01; }},
        Rough{.name = "Corruption",
              .make = [](LinkParameters& link) { link.corrupt = 0.001; },
              .own_loss = 0.001},
        Rough{.name = "ShortBuffer", .make = [](LinkParameters& link) { link.queue_time = 10ms; }},
        Rough{
            .name = "Policer",
            .make = [](LinkParameters& link) { link.policer_rate = 500 * kMbit, link.policer_burst = kMiB; },
            .limit = 0.5,
            .share = 0.97,
            .harm = 0.012},
        // What trains say of the line is hardly more than it lets pass.
        Rough{
            .name = "WidePolicer",
            .make = [](LinkParameters& link) { link.policer_rate = 880 * kMbit, link.policer_burst = kMiB; },
            .limit = 0.88,
            .share = 0.97,
            .harm = 0.012}),
    [](const auto& rough) { return std::string(rough.param.name); });

// What a mount that is in use gets of a gigabyte, bit/s; its probe has been answered.
double rate_of_a_gigabyte(const SimOptions& options) {
  SimPair pair(options);
  pair.run_for(std::max<Duration>(1600ms, 3 * options.handshake_rtt));
  const Duration start = pair.elapsed();
  pair.traffic().stream(kGiB, 64 * kMiB, Kind::kFetch);
  EXPECT_TRUE(pair.run_until([&] { return pair.traffic().bytes_done() >= kGiB; }, 120s));
  return static_cast<double>(kGiB) * 8 / to_seconds(pair.elapsed() - start);
}

TEST(RoughPath, AReturnChannelOfAHundredthIsEnough) {
  if (kSanitized) GTEST_SKIP() << "skipped, because a gigabyte takes too long with sanitizers";
  SimOptions options = symmetric_path(kGbit, 100ms, 0, 100ms, 11);
  options.handshake_rtt = 100ms;
  options.path.to_server.rate = kGbit / 100;
  EXPECT_GE(rate_of_a_gigabyte(options), 0.9 * static_cast<double>(kGbit) * 1434 / 1500);
}

// TIXway stayed flat up to 1000 ms and over a satellite whose return channel is narrow (IRT 2012).
TEST(RoughPath, ASatelliteIsFull) {
  if (kSanitized) GTEST_SKIP() << "skipped, because a gigabyte takes too long with sanitizers";
  for (const std::uint64_t back : {100 * kMbit, kMbit}) {
    SimOptions options = symmetric_path(100 * kMbit, 1000ms, 0.001, 100ms, 11);
    options.handshake_rtt = 1000ms;
    options.path.to_server.rate = back;
    const double share = rate_of_a_gigabyte(options) / (100e6 * 0.999 * 1434 / 1500);
    std::printf("  return channel of %lu Mbit/s: %.1f %% of the limit\n", back / kMbit, 100 * share);
    EXPECT_GE(share, 0.9);
  }
}

// A switch's buffer may be shorter than the queue that we mean to keep.
TEST(RoughPath, AShortBufferIsLearntAndNotOverrunForEver) {
  if (kSanitized) GTEST_SKIP() << "skipped, because a gigabyte takes too long with sanitizers";
  struct Short {
    Duration rtt;
    Duration buffer;
    double lost_max;
    std::uint64_t rate = kGbit;
  };
  for (const Short& path :
       {Short{200us, 1ms, 0.02}, Short{200us, 2ms, 0.01}, Short{200us, 3ms, 0.01}, Short{200us, 4ms, 0.01},
        Short{200us, 6ms, 0.01}, Short{2ms, 2ms, 0.01}, Short{5ms, 2ms, 0.01}, Short{20ms, 2ms, 0.01},
        Short{200us, 1ms, 0.04, kGbit / 10}, Short{200us, 4ms, 0.04, kGbit / 10}}) {
    SimOptions options = symmetric_path(path.rate, path.rtt, 0, path.buffer, 11);
    options.handshake_rtt = path.rtt;
    SimPair pair(options);
    const ByteCount size = kGiB / (kGbit / path.rate);
    pair.traffic().stream(size, 32 * kMiB, Kind::kFetch);
    ASSERT_TRUE(pair.run_until([&] { return pair.traffic().bytes_done() >= size; }, 60s));
    const double rate = static_cast<double>(size) * 8 / to_seconds(pair.elapsed());
    const double limit = static_cast<double>(path.rate) * 1434 / 1500;
    const double lost = static_cast<double>(pair.path().statistics(Role::kClient).dropped()) /
                        static_cast<double>(pair.server().stats().packets_sent);
    std::printf("  %lu Mbit/s, %.1f ms, a buffer of %.1f ms: %.1f %% of the limit, %.2f %% lost\n",
                path.rate / kMbit, to_seconds(path.rtt) * 1e3, to_seconds(path.buffer) * 1e3,
                100 * rate / limit, 100 * lost);
    EXPECT_GE(rate, 0.95 * limit);
    EXPECT_LE(lost, path.lost_max);
  }
}

// Programs that a busy machine keeps from running for 5 ms ten times a second, and longer now and then: what
// they could not send in time is no sign of a slower line.
TEST(RoughPath, BusyMachinesCostLittleMoreThanTheirTime) {
  if (kSanitized) GTEST_SKIP() << "skipped, because a gigabyte takes too long with sanitizers";
  struct Busy {
    Duration length;
    double share;
  };
  for (const Busy& busy : {Busy{5ms, 0.96}, Busy{10ms, 0.93}}) {
    SimOptions options = symmetric_path(kGbit, 100ms, 0.001, 100ms, 11);
    options.handshake_rtt = 100ms;
    options.stall_every = 100ms;
    options.stall_length = busy.length;
    const double rate = rate_of_a_gigabyte(options);
    const double limit = static_cast<double>(kGbit) * 0.999 * 1434 / 1500;
    std::printf("  stalls of %.0f ms: %.1f %% of the limit\n", to_seconds(busy.length) * 1e3,
                100 * rate / limit);
    EXPECT_GE(rate, busy.share * limit);
  }
}

// They send late, and so in bursts, of which a policer takes a part: that is no sign of a slower one.
struct Priority {
  transport::CongestionKind kind;
  double share;  // of what the policer lets pass, at least
};

class BusyBehindAPolicer : public testing::TestWithParam<Priority> {};

TEST_P(BusyBehindAPolicer, HasWhatItLetsPass) {
  if (kSanitized) GTEST_SKIP() << "skipped, because gigabytes take too long with sanitizers";
  for (const std::uint64_t seed : {11, 12, 13}) {
    SimOptions options = symmetric_path(kGbit, 100ms, 0, 100ms, seed);
    options.handshake_rtt = 100ms;
    options.connection.congestion = GetParam().kind;
    options.path.to_client.policer_rate = 500 * kMbit;
    options.path.to_client.policer_burst = kMiB;
    options.stall_every = 100ms;
    options.stall_length = 3ms;
    SimPair pair(options);
    constexpr ByteCount kSize = 1536 * kMiB;
    pair.traffic().stream(kSize, 64 * kMiB, Kind::kFetch);
    ASSERT_TRUE(pair.run_until([&] { return pair.traffic().bytes_done() >= kSize; }, 120s));
    const double rate = static_cast<double>(kSize) * 8 / to_seconds(pair.elapsed());
    const double lost = static_cast<double>(pair.path().statistics(Role::kClient).dropped()) /
                        static_cast<double>(pair.server().stats().packets_sent);
    const double share = rate / (500e6 * 1434 / 1500);
    std::printf("  %.1f %% of what it lets pass, %.2f %% lost\n", 100 * share, 100 * lost);
    EXPECT_GE(share, GetParam().share);
    EXPECT_LE(lost, 0.015);
  }
}

// What a burst of its own leaves behind is a queue of others for a background flow, which yields.
INSTANTIATE_TEST_SUITE_P(Priorities, BusyBehindAPolicer,
                         testing::Values(Priority{transport::CongestionKind::kModel, 0.95},
                                         Priority{transport::CongestionKind::kBackground, 0.9}));

}  // namespace
}  // namespace tusk::simulation
