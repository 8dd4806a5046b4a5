// The search for the largest datagram, on paths of every size, refusing interfaces and black holes.
#include "proto/transport/path_mtu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/transport/virtual_time.h"

namespace tusk::transport {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;
using wire::kDatagramSizeMax;
using wire::kDatagramSizeMin;

// ---------------------------------------------------------------- vocabulary

class PathMtuTest : public testing::Test {
 protected:
  std::vector<std::uint32_t> probes() {
    std::vector<std::uint32_t> sizes;
    while (const auto size = mtu_.poll_probe(now_, kRtt)) sizes.push_back(*size);
    return sizes;
  }
  // One round of probes over a path that carries up to `size`.
  void probe_over(std::uint32_t size) {
    for (const std::uint32_t probe : probes())
      if (probe <= size) mtu_.handle_probe_acked(probe);
  }
  void lose_full_size_packets(int count) {
    for (int i = 0; i < count; ++i) (void)mtu_.handle_full_size_lost(now_);
  }

  static constexpr Duration kRtt = 100ms;
  PathMtu mtu_{kDatagramSizeMax};
  TimePoint now_ = at(1s);
};

// ---------------------------------------------------------------- the search

TEST_F(PathMtuTest, StartsWithWhatEveryPathCarries) { EXPECT_EQ(mtu_.datagram_size(), kDatagramSizeMin); }

TEST_F(PathMtuTest, ProbesAllSizesAtOnceSmallestFirst) {
  EXPECT_THAT(probes(), ElementsAreArray(PathMtu::kCandidates));
  EXPECT_THAT(probes(), IsEmpty()) << "and waits for the answers";
}

TEST_F(PathMtuTest, FindsEverySizeThatPathsHave) {
  for (const std::uint32_t size : PathMtu::kCandidates) {
    mtu_ = PathMtu(kDatagramSizeMax);
    probe_over(size);
    EXPECT_EQ(mtu_.datagram_size(), size);
  }
  mtu_ = PathMtu(kDatagramSizeMax);
  probe_over(1300);
  EXPECT_EQ(mtu_.datagram_size(), kDatagramSizeMin) << "no candidate fits";
}

TEST_F(PathMtuTest, GivesLostProbesThreeRoundsAndThenWaitsLong) {
  EXPECT_EQ(probes().size(), PathMtu::kCandidates.size());
  for (int round = 1; round < PathMtu::kAttemptsMax; ++round) {
    EXPECT_GT(mtu_.next_timeout(), now_ + kRtt);
    now_ = mtu_.next_timeout();
    EXPECT_EQ(probes().size(), PathMtu::kCandidates.size()) << round;
  }
  EXPECT_EQ(mtu_.next_timeout(), now_ + PathMtu::kRaiseAfter);
  now_ = mtu_.next_timeout() - 1ns;
  EXPECT_THAT(probes(), IsEmpty());
  now_ += 1ns;
  EXPECT_EQ(probes().size(), PathMtu::kCandidates.size()) << "the path may have become better";
}

TEST_F(PathMtuTest, ProbesOnlyForMore) {
  probe_over(1472);
  now_ = mtu_.next_timeout();
  EXPECT_THAT(probes(), ElementsAre(8952, 8972));
}

TEST_F(PathMtuTest, AcknowledgementsInAnyOrderKeepTheLargest) {
  (void)probes();
  mtu_.handle_probe_acked(1472);
  mtu_.handle_probe_acked(1312);
  EXPECT_EQ(mtu_.datagram_size(), 1472u);
}

// ---------------------------------------------------------------- limits

TEST_F(PathMtuTest, StaysWithinWhatThePeerReceives) {
  mtu_.limit(1460);
  EXPECT_THAT(probes(), ElementsAre(1312, 1372, 1412, 1440, 1452));
  mtu_.handle_probe_acked(1472);
  EXPECT_EQ(mtu_.datagram_size(), kDatagramSizeMin) << "sent before the limit was known";
  mtu_.limit(8972);
  mtu_.handle_probe_acked(1472);
  EXPECT_EQ(mtu_.datagram_size(), kDatagramSizeMin) << "a limit is never lifted";
}

TEST_F(PathMtuTest, ALimitBelowWhatIsInUseTakesEffect) {
  probe_over(8972);
  mtu_.limit(1472);
  EXPECT_LE(mtu_.datagram_size(), 1472u);
}

TEST_F(PathMtuTest, StaysWithinItsOwnLimit) {
  mtu_ = PathMtu(kDatagramSizeMin);
  EXPECT_THAT(probes(), IsEmpty());
  mtu_ = PathMtu(1440);
  EXPECT_THAT(probes(), ElementsAre(1312, 1372, 1412, 1440));
}

// ---------------------------------------------------------------- refused by the interface

TEST_F(PathMtuTest, AProbeThatTheInterfaceRefusesEndsTheSearchAbove) {
  (void)mtu_.poll_probe(now_, kRtt);
  mtu_.handle_too_big(8952);
  EXPECT_THAT(probes(), ElementsAre(1372, 1412, 1440, 1452, 1464, 1472));
}

TEST_F(PathMtuTest, WhatTheInterfaceRefusedIsTriedAgainWhenAllIs) {
  (void)mtu_.poll_probe(now_, kRtt);
  mtu_.handle_too_big(1412);
  for (int round = 0; round < PathMtu::kAttemptsMax; ++round) {
    probe_over(1372);
    now_ = mtu_.next_timeout();
  }
  EXPECT_EQ(mtu_.datagram_size(), 1372u);
  EXPECT_THAT(probes(), ElementsAre(1412, 1440, 1452, 1464, 1472, 8952, 8972)) << "a tunnel may be gone";
}

TEST_F(PathMtuTest, WhenTheSizeInUseIsRefusedTheSearchBeginsAnewAtOnce) {
  probe_over(1472);
  mtu_.handle_too_big(1472);
  EXPECT_EQ(mtu_.datagram_size(), kDatagramSizeMin);
  // Packets of that size that were still queued are refused as well.
  mtu_.handle_too_big(1472);
  EXPECT_LE(mtu_.next_timeout(), now_);
  EXPECT_THAT(probes(), ElementsAre(1312, 1372, 1412, 1440, 1452, 1464));
}

TEST_F(PathMtuTest, TheMinimumCannotBeRefused) {
  mtu_.handle_too_big(kDatagramSizeMin);
  mtu_.handle_too_big(0);
  EXPECT_EQ(mtu_.datagram_size(), kDatagramSizeMin);
  EXPECT_THAT(probes(), ElementsAreArray(PathMtu::kCandidates));
}

// ---------------------------------------------------------------- black holes

TEST_F(PathMtuTest, FallsBackWhenOnlyFullSizePacketsVanish) {
  probe_over(8972);
  EXPECT_FALSE(mtu_.handle_full_size_lost(now_));
  EXPECT_FALSE(mtu_.handle_full_size_lost(now_));
  EXPECT_EQ(mtu_.datagram_size(), 8972u);
  EXPECT_TRUE(mtu_.handle_full_size_lost(now_));
  EXPECT_EQ(mtu_.datagram_size(), kDatagramSizeMin);
}

TEST_F(PathMtuTest, OrdinaryLossIsNoBlackHole) {
  probe_over(1472);
  for (int i = 0; i < 100; ++i) {
    lose_full_size_packets(PathMtu::kBlackHoleLosses - 1);
    mtu_.handle_full_size_acked();
  }
  EXPECT_EQ(mtu_.datagram_size(), 1472u);
}

TEST_F(PathMtuTest, AtTheMinimumThereIsNoBlackHole) {
  lose_full_size_packets(100);
  EXPECT_EQ(mtu_.datagram_size(), kDatagramSizeMin);
}

TEST_F(PathMtuTest, SearchesAgainAMinuteAfterABlackHole) {
  probe_over(1472);
  lose_full_size_packets(PathMtu::kBlackHoleLosses);
  EXPECT_EQ(mtu_.next_timeout(), now_ + PathMtu::kRetryAfterBlackHole);
  now_ = mtu_.next_timeout() - 1ns;
  EXPECT_THAT(probes(), IsEmpty());
  now_ += 1ns;
  probe_over(1440);
  EXPECT_EQ(mtu_.datagram_size(), 1440u);
}

}  // namespace
}  // namespace tusk::transport
