// Paths for packets of different sizes, and one that changes its mind.
#include "tests/simulation/vocabulary.h"

namespace tusk::simulation {
namespace {

constexpr ByteCount kProbedBytes = 8 * kMiB;
constexpr std::uint32_t kUdpOverhead = SimPath::kIpOverhead;

class PathMtuOf : public testing::TestWithParam<std::uint32_t> {};

TEST_P(PathMtuOf, IsFoundAndUsed) {
  SimOptions options = wan();
  options.path.mtu = GetParam();
  SimPair pair(options);
  stream_both_ways(pair, kProbedBytes);
  expect_well(pair, 2 * at_full_speed(kProbedBytes) + 1s);
  // The candidates leave at most this much of a path unused: 1280 is what IPv6 needs, over IPv4 here.
  const std::uint32_t unused = 20;
  EXPECT_GE(pair.client().stats().datagram_size + kUdpOverhead + unused, GetParam());
  EXPECT_GE(pair.server().stats().datagram_size + kUdpOverhead + unused, GetParam());
}
INSTANTIATE_TEST_SUITE_P(Sizes, PathMtuOf, testing::Values(1280, 1500, 9000),
                         [](const auto& mtu) { return std::to_string(mtu.param); });

TEST(PathMtu, TheTwoDirectionsMayDiffer) {
  SimOptions options = wan();
  options.path.mtu = 9000;
  SimPair pair(options);
  pair.path().add_sieve(Role::kServer, [](std::span<std::byte> datagram) { return datagram.size() < 1400; });
  stream_both_ways(pair, kProbedBytes);
  expect_well(pair, 2 * at_full_speed(kProbedBytes) + 1s);
  EXPECT_LT(pair.client().stats().datagram_size, 1472u);
  EXPECT_EQ(pair.server().stats().datagram_size, 8972u);
}

class Shrinking : public testing::TestWithParam<std::pair<std::uint32_t, std::uint32_t>> {};

TEST_P(Shrinking, IsNoticedWithoutBeingTold) {
  const auto [before, after] = GetParam();
  SimOptions options = wan();
  options.path.mtu = before;
  SimPair pair(options);
  stream_both_ways(pair, 2 * kProbedBytes);
  pair.schedule(TimePoint(700ms), [&, mtu = after] { pair.path().change_mtu(mtu); });
  expect_well(pair, 3 * at_full_speed(2 * kProbedBytes) + 3s);
  EXPECT_LE(pair.server().stats().datagram_size + kUdpOverhead, after);
}
INSTANTIATE_TEST_SUITE_P(Paths, Shrinking,
                         testing::Values(std::pair(1500u, 1280u), std::pair(9000u, 1500u),
                                         std::pair(1500u, 1400u)),
                         [](const auto& sizes) {
                           return std::to_string(sizes.param.first) + "to" +
                                  std::to_string(sizes.param.second);
                         });

TEST(PathMtu, ShrinkingUnderLossIsNoticedToo) {
  // A burst at the least rate that one sender in thirty came down to kept it silent for seconds.
  for (std::uint64_t seed = 1; seed <= (kSanitized ? 8 : 60); ++seed) {
    SCOPED_TRACE(seed);
    SimOptions options = wan_with([](LinkParameters& link) { link.loss = 0.02; });
    options.seed = seed;
    SimPair pair(options);
    stream_both_ways(pair, 2 * kProbedBytes);
    pair.schedule(TimePoint(700ms), [&] { pair.path().change_mtu(1300); });
    expect_well(pair, 3 * at_full_speed(2 * kProbedBytes) + 4s);
  }
}

TEST(PathMtu, RandomLossIsNotTakenForABlackHole) {
  // Several losses in a row are told by the timer, without an acknowledgement between them.
  SimPair pair(wan_with([](LinkParameters& link) { link.loss = 0.05; }));
  stream_both_ways(pair, 2 * kProbedBytes);
  expect_well(pair, 2 * at_full_speed(2 * kProbedBytes) + 2s);
  EXPECT_EQ(pair.server().stats().datagram_size, 1472u);
}

}  // namespace
}  // namespace tusk::simulation
