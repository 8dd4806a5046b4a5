#include "proto/transport/base_doubt.h"

#include <gtest/gtest.h>

namespace tusk::transport {
namespace {

constexpr BaseDoubt::Round kLong{.queue = 30ms, .usual_queue = 10ms};

// How many rounds it takes until the queue is put to the test; 0: none of many is.
int rounds_until_test(BaseDoubt& base, const BaseDoubt::Round& round = kLong) {
  for (int i = 1; i <= 200; ++i)
    if (base.end_round(round)) return i;
  return 0;
}

TEST(BaseDoubt, AQueueThatStaysIsTestedAfterFourRounds) {
  BaseDoubt base;
  EXPECT_EQ(rounds_until_test(base), 1 + 4) << "the first one is there to compare with";
  EXPECT_TRUE(base.tests());
}

TEST(BaseDoubt, EachTestTakesTwiceThePatienceUpToABound) {
  BaseDoubt base;
  EXPECT_EQ(rounds_until_test(base), 5);
  for (const int rounds : {8, 16, 32, 64, 64}) EXPECT_EQ(rounds_until_test(base), rounds);
}

TEST(BaseDoubt, PatienceIsForgottenWhenTheQueueIsAsItShouldBe) {
  BaseDoubt base;
  EXPECT_EQ(rounds_until_test(base), 5);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(base.end_round({.queue = 10ms, .usual_queue = 10ms}));
  EXPECT_EQ(rounds_until_test(base), 5);
}

TEST(BaseDoubt, AfterAChangeOfTheLineHalfThePatienceIsEnough) {
  BaseDoubt base;
  base.expect_change();
  EXPECT_EQ(rounds_until_test(base), 1 + 2);
}

TEST(BaseDoubt, AQueueThatChangesIsOne) {
  BaseDoubt base;
  for (int i = 0; i < 100; ++i)
    EXPECT_FALSE(base.end_round({.queue = i % 2 == 0 ? 30ms : 33ms, .usual_queue = 10ms}));
}

TEST(BaseDoubt, WhatFlowsOfOursKeepIsNotTested) {
  BaseDoubt base;
  EXPECT_EQ(rounds_until_test(base, {.queue = 14ms, .usual_queue = 10ms}), 0);
  EXPECT_EQ(rounds_until_test(base, {.queue = 29ms, .usual_queue = 10ms, .share = 0.25}), 0)
      << "1.5 times 20";
  EXPECT_NE(rounds_until_test(base, {.queue = 31ms, .usual_queue = 10ms, .share = 0.25}), 0);
  EXPECT_NE(rounds_until_test(base, {.queue = 70ms, .usual_queue = 10ms, .share = 0}), 0)
      << "whatever the share";
}

TEST(BaseDoubt, WhatSiblingsExplainIsNotTested) {
  BaseDoubt base;
  EXPECT_EQ(rounds_until_test(base, {.queue = 30ms, .usual_queue = 10ms, .explained = true}), 0);
}

TEST(BaseDoubt, AQueueThatAnEmptyingLeavesAsItWasIsNone) {
  BaseDoubt base;
  ASSERT_NE(rounds_until_test(base), 0);
  EXPECT_TRUE(base.judge(29ms, 100ms));
  EXPECT_FALSE(base.tests());
  EXPECT_FALSE(base.judge(29ms, 100ms)) << "it was put to the test once";
}

TEST(BaseDoubt, AQueueThatBecomesShorterIsOne) {
  BaseDoubt base;
  ASSERT_NE(rounds_until_test(base), 0);
  EXPECT_FALSE(base.judge(20ms, 100ms));
}

TEST(BaseDoubt, AnAbandonedTestProvesNothing) {
  BaseDoubt base;
  ASSERT_NE(rounds_until_test(base), 0);
  base.abandon_test();
  EXPECT_FALSE(base.judge(30ms, 100ms));
}

TEST(BaseDoubt, ABaseThatWasFoundBehindAQueueIsDoubtedAsLongAsEmptyingsChangeIt) {
  BaseDoubt base;
  EXPECT_FALSE(base.doubtful());
  base.lengthen(150ms);
  EXPECT_TRUE(base.doubtful());
  EXPECT_FALSE(base.judge(0ms, 135ms));
  EXPECT_TRUE(base.doubtful()) << "an emptying made it shorter: the next one may, too";
  EXPECT_FALSE(base.judge(0ms, 135ms));
  EXPECT_FALSE(base.doubtful());
}

TEST(BaseDoubt, ATrustedBaseIsNotInDoubt) {
  BaseDoubt base;
  ASSERT_NE(rounds_until_test(base), 0);
  base.lengthen(150ms);
  base.trust();
  EXPECT_FALSE(base.doubtful());
  EXPECT_FALSE(base.tests());
}

}  // namespace
}  // namespace tusk::transport
