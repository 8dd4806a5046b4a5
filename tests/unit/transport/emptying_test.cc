#include "proto/transport/emptying.h"

#include <gtest/gtest.h>

#include "tests/unit/transport/virtual_time.h"

namespace tusk::transport {
namespace {

// 100 ms at 10 MB/s hold a megabyte.
constexpr Emptying::Path kPath{
    .round_trip = 0.1, .rate = 9e6, .best_rate = 10e6, .extra = 10'000, .noise = 1e-3, .packet = 1000};

TEST(Emptying, AloneATwentiethOfTheRoundTripIsLeftOutOfTheBestRate) {
  Emptying::Path path = kPath;
  path.round_trip = 0.05;
  EXPECT_NEAR(Emptying().window(path), 0.95 * 10e6 * 0.05, 1);
}

TEST(Emptying, OfAFarPathNoMoreThanSomeMillisecondsBeyondItsNoise) {
  Emptying::Path path = kPath;
  path.round_trip = 0.5;
  EXPECT_NEAR(Emptying().window(path), 10e6 * (0.5 - 5e-3), 1);
}

TEST(Emptying, APolicersBurstsAreNoMeasure) {
  Emptying::Path path = kPath;
  path.tests_loss = true;
  EXPECT_NEAR(Emptying().window(path), 9e6 * (0.1 - 5e-3), 1);
}

TEST(Emptying, WithOthersAHalfIsLeftOut) {
  Emptying::Path path = kPath;
  path.shared = true;
  EXPECT_NEAR(Emptying().window(path), 0.5 * 9e6 * 0.1, 1);
  path.shared = false;
  path.tests_base = true;
  EXPECT_NEAR(Emptying().window(path), 0.5 * 9e6 * 0.1, 1);
}

TEST(Emptying, WhoHasLittleLeavesRoomForATrain) {
  Emptying::Path path = kPath;
  path.shared = true;
  path.rate = 300e3;  // 30 packets in a round trip
  EXPECT_NEAR(Emptying().window(path), 30'000 - 24'000, 1);
  path.rate = 100e3;
  EXPECT_NEAR(Emptying().window(path), 5'000, 1) << "half, of which a train is left for a slow line";
  path.rate = 200e3;
  EXPECT_NEAR(Emptying().window(path), 6'000, 1);
}

TEST(Emptying, ABaseInDoubtHasAQuarterLeftOut) {
  Emptying::Path path = kPath;
  path.base_doubtful = true;
  EXPECT_NEAR(Emptying().window(path), 0.75 * 9e6 * 0.1, 1);
}

TEST(Emptying, SiblingsAllLeaveAFifthOutOfWhatTheyHadAndWhatTheyAdd) {
  Emptying emptying;
  emptying.begin({.together = true, .goodput = 4e6});
  Emptying::Path path = kPath;
  path.shared = true;  // with each other
  EXPECT_NEAR(emptying.window(path), 0.8 * 4e6 * 0.1 - 10'000, 1);
  emptying.begin({.together = true, .goodput = 1e3});
  EXPECT_EQ(emptying.window(path), 0);
}

TEST(Emptying, LastsUntilAllHaveHeardOfIt) {
  Emptying emptying;
  EXPECT_TRUE(emptying.may_end(at(1s)));
  emptying.announce(at(1s), at(1200ms));
  EXPECT_EQ(emptying.announced(), at(1s));
  EXPECT_FALSE(emptying.may_end(at(1199ms)));
  EXPECT_TRUE(emptying.may_end(at(1200ms)));
}

TEST(Emptying, IsDueMoreOftenBesideOthers) {
  EXPECT_EQ(Emptying::every(false, 100ms), 4s);
  EXPECT_EQ(Emptying::every(true, 1ms), 600ms);
  EXPECT_EQ(Emptying::every(true, 100ms), 1600ms);
}

TEST(Emptying, TheWindowOfATestIsTakenBackOnce) {
  Emptying emptying;
  EXPECT_EQ(emptying.take_kept(), 0);
  emptying.keep(1e6);
  EXPECT_EQ(emptying.take_kept(), 1e6);
  EXPECT_EQ(emptying.take_kept(), 0);
  emptying.keep(1e6);
  emptying.forget_kept();
  EXPECT_EQ(emptying.take_kept(), 0);
}

}  // namespace
}  // namespace tusk::transport
