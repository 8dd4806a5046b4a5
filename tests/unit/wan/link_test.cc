// The link model in virtual time: exact where it can be, within known bounds where chance decides.
#include "tests/support/link/link.h"

#include <gtest/gtest.h>

#include <vector>

namespace tusk::support {
namespace {

constexpr TimePoint kStart{1s};
constexpr ByteCount kPacket = 1500;
constexpr std::uint64_t kGigabit = 1'000'000'000;

std::uint64_t drops(const Link& link, DropCause cause) {
  return link.statistics().drops[static_cast<std::size_t>(cause)];
}

// Sends `count` packets, one every `gap`.
std::vector<Verdict> send(Link& link, int count, Duration gap, TimePoint from = kStart) {
  std::vector<Verdict> verdicts;
  for (int i = 0; i < count; ++i) verdicts.push_back(link.enqueue(from + i * gap, kPacket));
  return verdicts;
}

TEST(Link, APerfectWireDeliversAtOnce) {
  Link link({}, 1);
  const Verdict verdict = link.enqueue(kStart, kPacket);
  EXPECT_EQ(verdict.copies, 1);
  EXPECT_EQ(verdict.deliver_at[0], kStart);
  EXPECT_FALSE(verdict.corrupted || verdict.congestion_marked || verdict.held_back);
}

TEST(Link, ABurstLeavesAtExactlyTheBottlenecksRate) {
  // 7 Gbit/s: a packet takes 1714.28... ns, which only comes out right if remainders are carried.
  Link link({.rate = 7 * kGigabit}, 1);
  constexpr int kPackets = 700'000;
  Verdict last;
  for (int i = 0; i < kPackets; ++i) last = link.enqueue(kStart, kPacket);
  EXPECT_EQ(last.departs_at - kStart, Duration(1'200'000'000));
}

TEST(Link, AnIdleLinkStartsAfresh) {
  Link link({.rate = kGigabit, .delay = 50ms}, 1);
  EXPECT_EQ(link.enqueue(kStart, kPacket).deliver_at[0], kStart + 12us + 50ms);
  EXPECT_EQ(link.enqueue(kStart + 1s, kPacket).deliver_at[0], kStart + 1s + 12us + 50ms);
  EXPECT_EQ(link.backlog(kStart + 2s), 0ns);
}

TEST(Link, TheQueueLimitHoldsInTime) {
  Link link({.rate = kGigabit, .queue_time = 1200us}, 1);
  const auto verdicts = send(link, 200, 0ns);
  // One in transmission and 100 waiting: the last accepted one waits exactly the limit.
  EXPECT_EQ(drops(link, DropCause::kQueue), 99U);
  EXPECT_EQ(link.statistics().queue_max, 1200us);
  EXPECT_EQ(verdicts[100].copies, 1);
  EXPECT_EQ(verdicts[101].drop, DropCause::kQueue);
  EXPECT_EQ(link.backlog(kStart), 1212us);
}

TEST(Link, TheQueueLimitHoldsInBytes) {
  Link link({.rate = kGigabit, .queue_bytes = 10 * kPacket}, 1);
  send(link, 50, 0ns);
  EXPECT_EQ(drops(link, DropCause::kQueue), 40U);
  EXPECT_EQ(link.backlog_bytes(kStart), 10 * kPacket);
  // A packet larger than the whole queue still crosses an idle link.
  EXPECT_EQ(link.enqueue(kStart + 1s, 60'000).copies, 1);
}

TEST(Link, QueueStatisticsAreWaitingTimes) {
  Link link({.rate = kGigabit}, 1);
  send(link, 3, 0ns);  // wait 0, 12 and 24 µs
  EXPECT_EQ(link.statistics().queue_mean(), 12us);
  EXPECT_EQ(link.statistics().queue_max, 24us);
}

TEST(Link, LosesTheConfiguredShareAndALostPacketHasUsedTheLink) {
  Link link({.rate = kGigabit, .loss = 0.01}, 7);
  const auto verdicts = send(link, 200'000, 0ns);
  // Four standard deviations: 4 * sqrt(200000 * 0.01 * 0.99) = 178.
  EXPECT_NEAR(static_cast<double>(drops(link, DropCause::kLoss)), 2000, 178);
  EXPECT_EQ(link.backlog(kStart), 200'000 * 12us);
}

TEST(Link, BurstsHaveTheConfiguredMeanLengthAndShare) {
  Link link({.burst_loss = 0.02, .burst_length = 10}, 7);
  int lost = 0;
  int bursts = 0;
  bool before = false;
  constexpr int kPackets = 2'000'000;
  for (int i = 0; i < kPackets; ++i) {
    const bool now_lost = link.enqueue(kStart, kPacket).drop == DropCause::kBurstLoss;
    lost += now_lost;
    bursts += now_lost && !before;
    before = now_lost;
  }
  EXPECT_NEAR(static_cast<double>(lost) / kPackets, 0.02, 0.002);
  EXPECT_NEAR(static_cast<double>(lost) / bursts, 10, 1);
}

TEST(Link, APauseEndsABurst) {
  Link link({.burst_loss = 0.5, .burst_length = 1000}, 7);
  TimePoint now = kStart;
  const auto lost = [&] { return link.enqueue(now, kPacket).drop == DropCause::kBurstLoss; };
  for (int burst = 0; burst < 20; ++burst) {
    while (!lost()) {
    }
    now += 900ms;
    int more = 0;
    while (lost()) ++more;
    EXPECT_GT(more, 0) << "the pause was too short";
    while (!lost()) {
    }
    now += 1s;
    EXPECT_FALSE(lost());
  }
}

TEST(Link, JitterVariesTheDelayButKeepsTheOrder) {
  Link link({.delay = 20ms, .jitter = 5ms}, 3);
  Duration least = 1h;
  Duration most{0};
  TimePoint before{};
  const auto verdicts = send(link, 100'000, 100us);
  for (int i = 0; i < 100'000; ++i) {
    const TimePoint due = verdicts[i].deliver_at[0];
    EXPECT_GE(due, before);
    before = due;
    least = std::min(least, due - (kStart + i * 100us));
    most = std::max(most, due - (kStart + i * 100us));
  }
  EXPECT_GE(least, 20ms);
  EXPECT_LT(least, 20500us);
  EXPECT_LE(most, 25ms);
  EXPECT_GT(most, 24500us);
}

TEST(Link, ReorderingHoldsTheConfiguredShareBack) {
  Link link({.delay = 20ms, .reorder = 0.1}, 3);
  for (const Verdict& verdict : send(link, 50'000, 0ns)) {
    const Duration held = verdict.deliver_at[0] - (kStart + 20ms);
    if (verdict.held_back) {
      EXPECT_TRUE(held >= 2ms && held < 10ms);
    } else {
      EXPECT_EQ(held, 0ns);
    }
  }
  EXPECT_NEAR(static_cast<double>(link.statistics().reordered), 5000, 270);
}

TEST(Link, DuplicatesAndCorruptsTheConfiguredShares) {
  Link link({.duplicate = 0.05, .corrupt = 0.02}, 3);
  send(link, 100'000, 0ns);
  const LinkStatistics& statistics = link.statistics();
  EXPECT_NEAR(static_cast<double>(statistics.duplicated), 5000, 276);
  EXPECT_NEAR(static_cast<double>(statistics.corrupted), 2000, 178);
  EXPECT_EQ(statistics.packets_out, 100'000 + statistics.duplicated);
}

TEST(Link, AnOutageDropsAllThatEntersAndLeavesTheQueueAlone) {
  Link link({.rate = kGigabit}, 1);
  send(link, 10, 0ns);
  LinkParameters parameters = link.parameters();
  parameters.outage = true;
  EXPECT_TRUE(link.change(kStart, parameters).changes_nothing());
  EXPECT_EQ(link.enqueue(kStart, kPacket).drop, DropCause::kOutage);
  EXPECT_EQ(link.backlog(kStart), 120us);
}

TEST(Link, MarksPacketsThatWaitLongerThanTheThreshold) {
  Link link({.rate = kGigabit, .ecn_threshold = 24us}, 1);
  const auto verdicts = send(link, 4, 0ns);
  EXPECT_FALSE(verdicts[2].congestion_marked);  // waits 24 µs
  EXPECT_TRUE(verdicts[3].congestion_marked);   // waits 36 µs
}

TEST(Link, ThePolicerPassesItsBurstAndThenItsRateWithoutDelay) {
  Link link({.policer_rate = 12'000'000, .policer_burst = 10 * kPacket}, 1);
  send(link, 20, 0ns);
  EXPECT_EQ(drops(link, DropCause::kPolicer), 10U);
  // 12 Mbit/s is one packet a millisecond; twice as many are offered.
  const auto verdicts = send(link, 2000, 500us, kStart + 500us);
  EXPECT_NEAR(static_cast<double>(drops(link, DropCause::kPolicer)), 1010, 1);
  EXPECT_EQ(verdicts[1].queued, 0ns);
}

TEST(Link, ASlowerRateStretchesTheQueue) {
  Link link({.rate = kGigabit, .delay = 10ms}, 1);
  const auto verdicts = send(link, 100, 0ns);
  LinkParameters parameters = link.parameters();
  parameters.rate = kGigabit / 10;
  const TimePoint now = kStart + 600us;  // half of the packets have left
  const Retiming retiming = link.change(now, parameters);
  EXPECT_EQ(retiming.shift(verdicts[49].departs_at), 0ns);
  EXPECT_EQ(verdicts[50].departs_at + retiming.shift(verdicts[50].departs_at), now + 120us);
  EXPECT_EQ(link.backlog(now), 50 * 120us);
  EXPECT_EQ(link.enqueue(now, kPacket).departs_at, now + 51 * 120us);
}

TEST(Link, AFasterRateShrinksTheQueueAndKeepsTheOrder) {
  Link link({.rate = kGigabit}, 1);
  const auto verdicts = send(link, 100, 0ns);
  LinkParameters parameters = link.parameters();
  parameters.rate = 0;
  const Retiming retiming = link.change(kStart, parameters);
  EXPECT_EQ(verdicts[99].departs_at + retiming.shift(verdicts[99].departs_at), kStart);
  EXPECT_EQ(link.enqueue(kStart, kPacket).departs_at, kStart);
}

TEST(Link, TheSameSeedReplaysTheSameFate) {
  const LinkParameters parameters{.rate = kGigabit,
                                  .queue_time = 1ms,
                                  .loss = 0.05,
                                  .burst_loss = 0.05,
                                  .jitter = 3ms,
                                  .reorder = 0.1,
                                  .duplicate = 0.1,
                                  .corrupt = 0.1};
  Link one(parameters, 42);
  Link two(parameters, 42);
  Link other(parameters, 43);
  bool differs = false;
  for (int i = 0; i < 10'000; ++i) {
    const TimePoint now = kStart + i * 11us;
    const Verdict a = one.enqueue(now, kPacket);
    const Verdict b = two.enqueue(now, kPacket);
    const Verdict c = other.enqueue(now, kPacket);
    ASSERT_EQ(a.drop, b.drop);
    ASSERT_EQ(a.deliver_at, b.deliver_at);
    ASSERT_EQ(a.corrupted, b.corrupted);
    differs = differs || a.drop != c.drop;
  }
  EXPECT_TRUE(differs);
}

TEST(Link, AnotherKindOfChanceDoesNotMoveTheLosses) {
  Link plain({.loss = 0.05}, 42);
  Link rough({.loss = 0.05, .burst_loss = 0.05, .jitter = 3ms, .reorder = 0.1, .duplicate = 0.1}, 42);
  for (int i = 0; i < 10'000; ++i) {
    const Verdict a = plain.enqueue(kStart + i * 11us, kPacket);
    const Verdict b = rough.enqueue(kStart + i * 11us, kPacket);
    if (a.drop == DropCause::kLoss) {
      ASSERT_NE(b.drop, DropCause::kNone);
    }
  }
}

TEST(Link, StatisticsAddUp) {
  Link link({.rate = kGigabit, .queue_time = 1ms, .loss = 0.05, .burst_loss = 0.05, .duplicate = 0.1}, 42);
  send(link, 20'000, 10us);
  const LinkStatistics& statistics = link.statistics();
  EXPECT_EQ(statistics.packets_in, 20'000U);
  EXPECT_EQ(statistics.packets_in - statistics.dropped() + statistics.duplicated, statistics.packets_out);
  EXPECT_EQ(statistics.bytes_out, statistics.packets_out * kPacket);
}

}  // namespace
}  // namespace tusk::support
