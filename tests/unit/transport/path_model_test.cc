// The parts of the model of a path: its own loss, the queue of a round trip and the one that we keep, what
// trains tell of the capacity and when they were asked, and whether others fill it.
#include <gtest/gtest.h>

#include "proto/transport/capacity_check.h"
#include "proto/transport/contention.h"
#include "proto/transport/path_loss.h"
#include "proto/transport/round_queue.h"
#include "proto/transport/train_capacity.h"
#include "proto/transport/train_estimator.h"
#include "proto/transport/usual_queue.h"
#include "tests/unit/transport/virtual_time.h"

namespace tusk::transport {
namespace {

// ---------------------------------------------------------------- loss

constexpr PathLoss::Round kUsual{.packets = 1000, .queue_short = true};

void lose(PathLoss& loss, double share, int rounds, PathLoss::Round round = kUsual) {
  round.lost = share;
  for (int i = 0; i < rounds; ++i) loss.end_round(round);
}

void test_with(PathLoss& loss, double share) {
  PathLoss::Round round = kUsual;
  round.test = true;
  lose(loss, share, 1, round);
}

TEST(PathLoss, LearnsWhatThePathLosesByItself) {
  PathLoss loss;
  lose(loss, 0.009, 40);
  EXPECT_NEAR(loss.own(), 0.009, 0.0005);
  EXPECT_FALSE(loss.suspects());
}

TEST(PathLoss, BelievesItsFirstRoundsAndThenForgetsThem) {
  PathLoss loss;
  lose(loss, 0.008, 1);
  lose(loss, 0.004, 1);
  EXPECT_NEAR(loss.own(), 0.006, 1e-9);
  lose(loss, 0.002, 40);
  EXPECT_NEAR(loss.own(), 0.002, 0.0001);
}

// Else all of a policer's loss would be taken for the path's, and no more than that is ever lost.
TEST(PathLoss, DoesNotBelieveAtOnceWhatMayBeAPolicers) {
  PathLoss loss;
  PathLoss::Round unjudged = kUsual;
  unjudged.judged = false;
  lose(loss, 0.12, 1, unjudged);
  EXPECT_LT(loss.own(), 0.011);
  lose(loss, 0.12, 1);
  EXPECT_TRUE(loss.suspects());
}

TEST(PathLoss, ALossThatGrowsIsTestedAndBelievedIfItStays) {
  PathLoss loss;
  lose(loss, 0.05, 2);
  ASSERT_TRUE(loss.suspects());
  test_with(loss, 0.048);
  EXPECT_FALSE(loss.suspects());
  EXPECT_FALSE(loss.content());
  EXPECT_DOUBLE_EQ(loss.own(), 0.048);
}

TEST(PathLoss, ALossThatGoesWhenLessIsSentIsOurs) {
  PathLoss loss;
  lose(loss, 0.05, 2);
  test_with(loss, 0.001);
  EXPECT_TRUE(loss.content());
  EXPECT_TRUE(loss.policed());
  EXPECT_DOUBLE_EQ(loss.own(), 0.001);
}

// Until it was tested, or nothing was lost for a while though more was sent.
TEST(PathLoss, AStartThatLostMuchMakesThePathAPolicedOne) {
  PathLoss loss;
  loss.expect_policer();
  EXPECT_TRUE(loss.policed());
  EXPECT_FALSE(loss.content());
  lose(loss, 0, 8);
  EXPECT_TRUE(loss.policed());
  PathLoss::Round little = kUsual;
  little.packets = 40;  // as a slow line's rounds have
  lose(loss, 0, 1, little);
  EXPECT_FALSE(loss.policed());
}

int content_rounds(PathLoss& loss) {
  int rounds = 0;
  for (; loss.content(); ++rounds) loss.end_content_round();
  return rounds;
}

TEST(PathLoss, IsContentForLongerEachTimeUpToALimit) {
  PathLoss loss;
  int last = 0;
  for (int time = 0; time < 6; ++time) {
    lose(loss, 0.05, 2);
    test_with(loss, 0);
    const int rounds = content_rounds(loss);
    EXPECT_EQ(rounds, time == 0 ? 8 : std::min(2 * last, 64));
    last = rounds;
  }
  lose(loss, 0, 20);
  EXPECT_FALSE(loss.policed()) << "more was sent for long, and no more lost";
}

TEST(PathLoss, OneUnluckyRoundIsNoSuspicionButAnEnormousOneIs) {
  PathLoss loss;
  lose(loss, 0.03, 1);
  EXPECT_FALSE(loss.suspects());
  lose(loss, 0, 5);
  lose(loss, 0.3, 1);
  EXPECT_TRUE(loss.suspects());
}

TEST(PathLoss, FewPacketsSayNothing) {
  PathLoss loss;
  lose(loss, 0.5, 10, {.packets = 50, .queue_short = true});
  EXPECT_EQ(loss.own(), 0);
}

TEST(PathLoss, ATestWithFewPacketsEndsTheSuspicion) {
  PathLoss loss;
  lose(loss, 0.05, 2);
  ASSERT_TRUE(loss.suspects());
  lose(loss, 0, 1, {.packets = 50, .test = true});
  EXPECT_FALSE(loss.suspects());
  EXPECT_FALSE(loss.content());
}

TEST(PathLoss, BehindAQueueNothingIsSuspectedAndOnlySoMuchMadeUpFor) {
  PathLoss loss;
  lose(loss, 0.5, 100, {.packets = 1000, .queue_short = false});
  EXPECT_FALSE(loss.suspects());
  EXPECT_NEAR(loss.own(), 0.08, 0.001);
}

// ---------------------------------------------------------------- queue

TEST(RoundQueue, ToldFromJitterByWhatNoPacketGotRound) {
  RoundQueue queue;
  for (const Duration rtt : {108ms, 110ms, 112ms}) queue.add({.rtt = rtt});
  queue.end_round(100ms, 108ms);
  EXPECT_EQ(queue.queue(), 8ms);
  EXPECT_EQ(queue.wander(), 2ms);
}

TEST(RoundQueue, OnShortPathsIsNoLongerThanTheStandingMinimum) {
  RoundQueue queue;
  queue.add({.rtt = 5ms});
  queue.end_round(200us, 300us);
  EXPECT_EQ(queue.queue(), 100us);
  EXPECT_EQ(queue.wander(), 250us) << "and what comes and goes is at most a quarter of the path, and 200 us";
}

TEST(RoundQueue, ThatComesAndGoesIsMoreThanJitterOnAverage) {
  RoundQueue queue;
  for (const Duration rtt : {200us, 2200us, 4200us}) queue.add({.rtt = rtt});
  queue.end_round(200us, 200us);
  EXPECT_EQ(queue.queue(), 0us);
  EXPECT_EQ(queue.average(), 2ms);
  EXPECT_EQ(queue.longest(), 4ms);
  EXPECT_EQ(queue.wander(), 250us);
}

TEST(RoundQueue, OfWhatComesAndGoesWhatWeAddedOurselvesIsNoJitter) {
  RoundQueue queue;
  queue.add({.rtt = 101ms, .after_pause = true});
  for (const Duration excess : {4ms, 8ms, 12ms}) queue.add({.rtt = 101ms + excess, .own_queue = excess});
  queue.end_round(100ms, 101ms);
  EXPECT_EQ(queue.wander(), 0ms);
  EXPECT_EQ(queue.average(), 7ms);
  // A queue that stays as long is there all the time.
  for (const Duration rtt : {112ms, 116ms}) queue.add({.rtt = rtt, .own_queue = 12ms});
  queue.end_round(100ms, 112ms);
  EXPECT_EQ(queue.queue(), 12ms);
  EXPECT_EQ(queue.wander(), 2ms);
}

TEST(RoundQueue, TheJitterOfARoundWithoutAPauseStaysKnown) {
  RoundQueue queue;
  const auto add_round = [&queue](bool after_pause) {
    queue.add({.rtt = 100ms, .after_pause = after_pause});
    for (const Duration rtt : {116ms, 120ms})
      queue.add({.rtt = rtt, .own_queue = rtt - 100ms, .after_pause = after_pause});
    queue.end_round(100ms, 100ms);
  };
  for (const Duration rtt : {100ms, 103ms, 106ms}) queue.add({.rtt = rtt, .own_queue = rtt - 100ms});
  queue.end_round(100ms, 100ms);
  EXPECT_EQ(queue.wander(), 3ms);
  add_round(true);
  EXPECT_EQ(queue.wander(), 3ms) << "of the 12 all are a queue of our own, and 3 may be jitter";
  add_round(false);
  EXPECT_EQ(queue.wander(), 3ms) << "a pause is felt for two rounds";
  add_round(false);
  EXPECT_EQ(queue.wander(), 12ms);
}

TEST(RoundQueue, ARoundWithoutSamplesKeepsTheLastFigures) {
  RoundQueue queue;
  queue.add({.rtt = 108ms});
  queue.end_round(100ms, 108ms);
  queue.end_round(100ms, 108ms);
  EXPECT_EQ(queue.queue(), 8ms);
}

// ---------------------------------------------------------------- trains

TEST(TrainCapacity, IsUnknownWithoutTrains) {
  const TrainCapacity trains;
  EXPECT_EQ(trains.capacity(), 0);
  EXPECT_EQ(trains.best(), 0);
  EXPECT_FALSE(trains.several());
}

TEST(TrainCapacity, SeveralTellMoreThanOne) {
  TrainCapacity trains;
  trains.add({1, 1'000'000, 10ms});
  EXPECT_LT(trains.safe_rate(), 0.85e8);
  for (std::uint64_t id = 2; id <= 4; ++id) trains.add({id, 1'000'000, 10ms});
  EXPECT_TRUE(trains.several());
  EXPECT_NEAR(trains.capacity(), 1e8, 2e6);
  EXPECT_NEAR(trains.safe_rate(), 0.95e8, 2e6);
}

TEST(TrainCapacity, OfManyLongOnesNothingIsTakenOff) {
  TrainCapacity trains;
  for (std::uint64_t id = 1; id <= 16; ++id) trains.add({id, 200'000, 2ms});
  EXPECT_NEAR(trains.capacity(), 1e8, 1e3);
}

// A receiver that takes them in batches.
TEST(TrainCapacity, OfManyThatArriveAtOnceTheNoiseIsAllThatIsKnown) {
  TrainCapacity trains;
  for (std::uint64_t id = 1; id <= 32; ++id) trains.add({id, 94'208, 0ms});
  EXPECT_LT(trains.capacity(), 32 * 94'208 / 1e-3);
}

TEST(TrainCapacity, ATrainThatGrowsIsOneTrain) {
  TrainCapacity trains;
  for (ByteCount bytes = 100'000; bytes <= 1'000'000; bytes += 100'000)
    trains.add({1, bytes, std::chrono::nanoseconds(bytes * 10)});
  EXPECT_FALSE(trains.several());
}

TEST(TrainCapacity, TheBestIsThatOfTheTrainThatOthersDisturbedLeast) {
  TrainCapacity trains;
  trains.add({1, 1'000'000, 20ms});
  trains.add({2, 1'000'000, 10ms});
  EXPECT_NEAR(trains.best(), 1e8, 3e6);
}

TEST(TrainCapacity, OfALineOnWhichPacketsArriveOneByOneThreeTellAsMuch) {
  TrainCapacity trains;
  for (std::uint64_t id = 1; id <= 3; ++id) {
    EXPECT_FALSE(trains.several());
    trains.add({id, 6'000, 24ms, true});
  }
  EXPECT_TRUE(trains.several());
  EXPECT_NEAR(trains.capacity(), 250e3, 5e3);
  trains.add({3, 6'000, 1ms, false});
  EXPECT_FALSE(trains.several());
}

// Packets of 1500 bytes that left together, from number 100 on.
class TrainTest : public testing::Test {
 protected:
  std::optional<PacketTrain> arrive(std::uint64_t number, Duration at) {
    return estimator_.handle_ack(wire::PacketNumber(number), TimePoint(1s), 1500,
                                 static_cast<std::uint64_t>(at / 1us) + 1'000'000);
  }

 private:
  TrainEstimator estimator_;
};

TEST_F(TrainTest, SixteenPacketsTellTheRateOfAFastLine) {
  EXPECT_FALSE(arrive(100, 0ms));
  EXPECT_FALSE(arrive(115, 180us)) << "a receiver takes them in batches";
  const auto train = arrive(116, 192us);
  ASSERT_TRUE(train);
  EXPECT_EQ(train->bytes, 16 * 1500u);
  EXPECT_EQ(train->spread, 192us);
  EXPECT_FALSE(train->one_by_one);
}

TEST_F(TrainTest, WhereEachArrivesAloneFourTellIt) {
  EXPECT_FALSE(arrive(100, 0ms));
  EXPECT_FALSE(arrive(103, 18ms)) << "three might be a coincidence";
  const auto train = arrive(104, 24ms);
  ASSERT_TRUE(train);
  EXPECT_EQ(train->bytes, 4 * 1500u);
  EXPECT_EQ(train->spread, 24ms);
  EXPECT_TRUE(train->one_by_one);
}

// ---------------------------------------------------------------- contention

class ContentionTest : public testing::Test {
 protected:
  static constexpr Duration kRtt = 50ms;

  // The share to insist on after so many rounds like this.
  std::optional<double> rounds(int count, double got, Duration queue, double loss = 0, double overflow = 0) {
    std::optional<double> share;
    for (int i = 0; i < count; ++i) {
      now_ += kRtt;
      share = contention_.end_round({.now = now_,
                                     .got = got,
                                     .queue = queue,
                                     .usual_queue = 6ms,
                                     .round_trip = kRtt,
                                     .is_short = queue < 9ms,
                                     .empties_in = 24 * kRtt,
                                     .loss = loss,
                                     .overflow = overflow,
                                     .capacity_known = known_});
    }
    return share;
  }

  Contention contention_;
  bool known_ = true;
  TimePoint now_ = at(1s);
};

TEST_F(ContentionTest, IsCalmAloneAndAmongFlowsOfOurs) {
  EXPECT_FALSE(rounds(50, 0.98, 6ms));
  EXPECT_FALSE(rounds(50, 0.5, 9ms)) << "of two";
  EXPECT_FALSE(rounds(50, 1.0 / 16, 24ms)) << "of sixteen: four queues";
}

TEST_F(ContentionTest, InsistsWhenOthersFillTheBuffer) {
  EXPECT_FALSE(rounds(2, 0.2, 45ms));
  const auto share = rounds(20, 0.2, 45ms);
  ASSERT_TRUE(share);
  EXPECT_TRUE(contention_.insists());
  EXPECT_GE(*share, 0.2);
}

TEST_F(ContentionTest, InsistsOnAHalfAtMost) {
  rounds(20, 0.2, 45ms);
  const auto share = rounds(100, 0.45, 45ms);
  ASSERT_TRUE(share);
  EXPECT_GT(*share, 0.4);
  EXPECT_LE(*share, 0.5);
}

TEST_F(ContentionTest, AsksForTheCapacityBeforeItInsists) {
  known_ = false;
  EXPECT_FALSE(rounds(20, 0.2, 45ms));
  EXPECT_TRUE(contention_.doubts_capacity());
  known_ = true;
  EXPECT_TRUE(rounds(1, 0.2, 45ms));
  EXPECT_FALSE(contention_.doubts_capacity());
}

TEST_F(ContentionTest, AQueueThatJumpsUpIsThatOfAStartAtFirst) {
  rounds(10, 0.25, 6ms);
  EXPECT_FALSE(rounds(12, 0.2, 45ms));
  EXPECT_TRUE(rounds(6, 0.2, 45ms)) << "whoever it is is still there";
}

TEST_F(ContentionTest, AQueueThatGrowsIsNoStart) {
  rounds(10, 0.25, 6ms);
  for (const Duration queue : {20ms, 28ms}) EXPECT_FALSE(rounds(2, 0.2, queue));
  EXPECT_TRUE(rounds(6, 0.2, 36ms));
}

// Of 16 flows of ours 24 ms would be usual. But they let it run empty now and then, and lose nothing.
TEST_F(ContentionTest, AQueueThatStaysAndOverflowsIsNotOfOurs) {
  constexpr int kLong = 90;  // rounds
  EXPECT_FALSE(rounds(kLong, 1.0 / 16, 20ms));
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(rounds(1, 1.0 / 16, 5ms));
    EXPECT_FALSE(rounds(kLong / 2, 1.0 / 16, 20ms, 0, 0.002));
  }
  EXPECT_FALSE(rounds(1, 1.0 / 16, 5ms));
  EXPECT_FALSE(rounds(70, 1.0 / 16, 20ms, 0, 0.002));
  EXPECT_TRUE(rounds(20, 1.0 / 16, 20ms, 0, 0.002));
}

// Else flows of ours would hold each other to it for ever.
TEST_F(ContentionTest, WhatWasSoWhileItInsistedDoesNotCountAfterwards) {
  rounds(200, 1.0 / 16, 20ms, 0, 0.002);
  ASSERT_TRUE(contention_.insists());
  for (int i = 0; i < 300 && contention_.insists(); ++i) rounds(1, 0.2, 20ms, 0, 0.002);
  ASSERT_FALSE(contention_.insists());
  EXPECT_FALSE(rounds(60, 1.0 / 16, 20ms)) << "three seconds of it";
}

TEST_F(ContentionTest, APauseIsNoTimeOfALongQueue) {
  EXPECT_FALSE(rounds(40, 1.0 / 16, 20ms, 0, 0.002));
  now_ += 1h;
  EXPECT_FALSE(rounds(20, 1.0 / 16, 20ms, 0, 0.002));
  EXPECT_TRUE(rounds(20, 1.0 / 16, 20ms, 0, 0.002));
}

// So does CUBIC, which overflows a long buffer seldom.
TEST_F(ContentionTest, AQueueThatNeverGoesIsNotOfOurs) {
  EXPECT_FALSE(rounds(200, 1.0 / 16, 20ms));
  EXPECT_TRUE(rounds(60, 1.0 / 16, 20ms));
}

TEST_F(ContentionTest, StopsWhenTheOthersAreGone) {
  rounds(20, 0.3, 45ms);
  ASSERT_TRUE(contention_.insists());
  EXPECT_FALSE(rounds(3, 0.5, 2ms));
  EXPECT_FALSE(contention_.insists());
}

TEST_F(ContentionTest, LossForLongMakesItModest) {
  rounds(20, 0.3, 45ms);
  const auto before = rounds(1, 0.3, 45ms);
  const auto after = rounds(24, 0.2, 45ms, 0.3);
  ASSERT_TRUE(before && after);
  EXPECT_LT(*after, *before);
}

TEST_F(ContentionTest, InsistingToNoEffectMeansASlowerLine) {
  rounds(20, 0.1, 60ms);
  ASSERT_TRUE(contention_.insists());
  bool in_vain = false;
  for (int i = 0; i < 100 && !in_vain; ++i) {
    rounds(1, 0.1, 60ms);
    in_vain = contention_.insisted_in_vain();
  }
  EXPECT_TRUE(in_vain);
  EXPECT_FALSE(contention_.insists());
}

TEST_F(ContentionTest, TriesFromTimeToTimeWhetherOthersAreStillThere) {
  rounds(20, 0.3, 45ms);
  ASSERT_TRUE(contention_.insists());
  bool paused = false;
  for (int i = 0; i < 300 && !paused; ++i) paused = !rounds(1, 0.45, 45ms);
  EXPECT_TRUE(paused);
}

// ---------------------------------------------------------------- our own queue

TEST(UsualQueue, IsAnEighthOfTheRoundTripWithinBounds) {
  EXPECT_EQ(usual_queue_of(64ms), 8ms);
  EXPECT_EQ(usual_queue_of(80ms), 10ms);
  EXPECT_EQ(usual_queue_of(1s), 10ms);
}

TEST(UsualQueue, IsLongerWhereThePathHoldsLittle) {
  EXPECT_EQ(usual_queue_of(0ms), 12ms);
  EXPECT_EQ(usual_queue_of(2ms), 10ms);
  EXPECT_EQ(usual_queue_of(16ms), 7ms);
  EXPECT_EQ(usual_queue_of(40ms), 5500us);
}

// ---------------------------------------------------------------- when trains were asked

TEST(CapacityCheck, IsDueOnceForEachShortQueue) {
  CapacityCheck check;
  EXPECT_FALSE(check.due());
  check.expect(true);
  EXPECT_TRUE(check.due());
  check.pass(7);
  EXPECT_FALSE(check.due());
  check.expect(true);
  check.expect(false);
  EXPECT_FALSE(check.due()) << "the queue is not short any more";
}

TEST(CapacityCheck, FiftyRoundsAreLately) {
  CapacityCheck check;
  check.pass(7);
  EXPECT_TRUE(check.passed_lately(56));
  EXPECT_FALSE(check.passed_lately(57));
}

}  // namespace
}  // namespace tusk::transport
