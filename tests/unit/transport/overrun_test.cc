// What is known of a line that became narrow at once, and of what is lost newly.
#include "proto/transport/overrun.h"

#include <gtest/gtest.h>

#include "proto/transport/newest_loss.h"
#include "tests/unit/transport/virtual_time.h"

namespace tusk::transport {
namespace {

// ---------------------------------------------------------------- newest loss

constexpr ByteCount kBytes = 500 * kUsualPacket;

TEST(NewestLoss, OfOneWindowOfLossTwoThirdsAreBelieved) {
  NewestLoss loss;
  loss.add({.lost = kBytes});
  EXPECT_NEAR(loss.share(), 1 - std::exp(-1), 1e-9);
}

TEST(NewestLoss, ItDoesNotMatterInHowManyPiecesItIsTold) {
  NewestLoss loss;
  for (int i = 0; i < 500; ++i) loss.add({.lost = kUsualPacket});
  EXPECT_NEAR(loss.share(), 1 - std::exp(-1), 1e-9);
}

TEST(NewestLoss, APathThatHoldsMuchIsLookedAtForLonger) {
  NewestLoss loss;
  loss.add({.lost = kBytes, .bandwidth = 16.0 * kBytes, .round_trip = 1});
  EXPECT_NEAR(loss.share(), 1 - std::exp(-0.5), 1e-9);
}

TEST(NewestLoss, WhatArrivesMakesItLessAndNoNewsChangeNothing) {
  NewestLoss loss;
  loss.add({.lost = 10 * kBytes});
  const double before = loss.share();
  loss.add({});
  EXPECT_EQ(loss.share(), before);
  loss.add({.acked = 10 * kBytes});
  EXPECT_LT(loss.share(), 1e-4);
}

// ---------------------------------------------------------------- overrun

constexpr Duration kQueue = 200ms;

TEST(Overrun, AFreshOneHasNotHappened) {
  const Overrun none;
  EXPECT_FALSE(none.happened());
  EXPECT_FALSE(none.passes(0));
  EXPECT_FALSE(none.drains());
}

TEST(Overrun, PassesUntilTheEndOfTheLastRoundOfWhatWasSentBefore) {
  const Overrun overrun(7, 0, kQueue);
  EXPECT_TRUE(overrun.passes(6));
  EXPECT_TRUE(overrun.passes(7));
  EXPECT_FALSE(overrun.passes(8));
}

TEST(Overrun, WhatComesBetweenTwoAcknowledgementsIsWhatTheLineCarries) {
  Overrun overrun(7, 1'000'000, kQueue);
  overrun.acknowledge(at(1s), 1'010'000);
  EXPECT_FALSE(overrun.heard_enough());
  EXPECT_FALSE(overrun.carried(1'010'000)) << "over no time";
  for (int i = 1; i <= 10; ++i)
    overrun.acknowledge(at(1s + i * 10ms), 1'010'000 + 10'000 * static_cast<ByteCount>(i));
  EXPECT_TRUE(overrun.heard_enough()) << "half of the queue";
  EXPECT_DOUBLE_EQ(overrun.carried(1'110'000).value(), 1e6);
}

TEST(Overrun, AnEighthOfTheQueueIsBelievedIfNothingMoreComes) {
  Overrun overrun(7, 0, kQueue);
  overrun.acknowledge(at(1s), 1);
  overrun.acknowledge(at(1024ms), 24'001);
  EXPECT_FALSE(overrun.carried(24'001));
  overrun.acknowledge(at(1025ms), 25'001);
  EXPECT_DOUBLE_EQ(overrun.carried(25'001).value(), 1e6);
}

TEST(Overrun, AfterALongPauseItIsMeasuredAnew) {
  Overrun overrun(7, 0, kQueue);
  overrun.acknowledge(at(1s), 10'000);
  overrun.acknowledge(at(1080ms), 20'000);
  overrun.acknowledge(at(1281ms), 30'000);
  EXPECT_FALSE(overrun.heard_enough());
  EXPECT_FALSE(overrun.carried(30'000));
  overrun.acknowledge(at(1381ms), 80'000);
  EXPECT_DOUBLE_EQ(overrun.carried(80'000).value(), 5e5);
}

TEST(Overrun, AnAcknowledgementOfNothingNewIsNone) {
  Overrun overrun(7, 10'000, kQueue);
  overrun.acknowledge(at(1s), 10'000);
  overrun.acknowledge(at(2s), 20'000);
  EXPECT_FALSE(overrun.carried(20'000)) << "the first one was at 2 s";
}

TEST(Overrun, DrainsAsLongAsTheRoundTripBecomesShorter) {
  Overrun overrun(7, 0, kQueue);
  overrun.drain();
  EXPECT_TRUE(overrun.drains());
  EXPECT_TRUE(overrun.shortens(300ms)) << "of the round before nothing is known";
  EXPECT_TRUE(overrun.shortens(280ms));
  EXPECT_FALSE(overrun.shortens(270ms)) << "less than a twentieth";
  overrun.end_draining();
  EXPECT_FALSE(overrun.drains());
}

}  // namespace
}  // namespace tusk::transport
