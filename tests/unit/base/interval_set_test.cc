#include "proto/base/interval_set.h"

#include <gtest/gtest.h>

#include <set>

#include "proto/base/random.h"

namespace tusk {
namespace {

using Intervals = std::vector<Interval>;

TEST(IntervalSet, MergesNeighboursAndOverlaps) {
  IntervalSet set;
  EXPECT_EQ(set.add(10, 20), 10u);
  EXPECT_EQ(set.add(30, 40), 10u);
  EXPECT_EQ(set.add(20, 30), 10u);
  EXPECT_EQ(set.intervals(), (Intervals{{10, 40}}));
  EXPECT_EQ(set.add(5, 50), 15u);
  EXPECT_EQ(set.add(5, 50), 0u);
}

TEST(IntervalSet, RemovingTheMiddleLeavesBothEnds) {
  IntervalSet set;
  set.add(0, 100);
  EXPECT_EQ(set.remove(40, 60), 20u);
  EXPECT_EQ(set.intervals(), (Intervals{{0, 40}, {60, 100}}));
  EXPECT_EQ(set.gaps(30, 70), (Intervals{{40, 60}}));
  EXPECT_EQ(set.overlap(30, 70), (Intervals{{30, 40}, {60, 70}}));
}

TEST(IntervalSet, TellsNoMoreGapsThanWereAskedFor) {
  IntervalSet set;
  set.add(10, 20);
  set.add(30, 40);
  EXPECT_EQ(set.gaps(0, 50, 3), (Intervals{{0, 10}, {20, 30}, {40, 50}}));
  EXPECT_EQ(set.gaps(0, 50, 2), (Intervals{{0, 10}, {20, 30}}));
  EXPECT_EQ(set.gaps(0, 50, 0), Intervals{});
}

TEST(IntervalSet, EmptyRangesAreCoveredByAnything) {
  IntervalSet set;
  EXPECT_TRUE(set.covers(7, 7));
  EXPECT_FALSE(set.covers(7, 8));
  EXPECT_EQ(set.gaps(3, 3), Intervals{});
}

// The model is a plain set of integers.
TEST(IntervalSet, AgreesWithASetOfIntegers) {
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    IntervalSet set;
    std::set<std::uint64_t> model;
    for (int step = 0; step < 60; ++step) {
      const std::uint64_t begin = random.below(64), end = begin + random.below(12);
      std::uint64_t changed = 0;
      const bool adding = random.chance(0.6);
      for (std::uint64_t i = begin; i < end; ++i) changed += adding ? model.insert(i).second : model.erase(i);
      EXPECT_EQ(adding ? set.add(begin, end) : set.remove(begin, end), changed);
      EXPECT_EQ(set.total(), model.size());
      for (std::uint64_t i = 0; i < 80; ++i) ASSERT_EQ(set.contains(i), model.contains(i)) << i;
      std::uint64_t missing = 0;
      for (const Interval& gap : set.gaps(begin, end)) missing += gap.size();
      std::uint64_t held = 0;
      for (const Interval& part : set.overlap(begin, end)) held += part.size();
      ASSERT_EQ(missing + held, end - begin);
      for (std::size_t i = 1; i < set.intervals().size(); ++i)
        ASSERT_LT(set.intervals()[i - 1].end, set.intervals()[i].begin);
    }
  }
}

}  // namespace
}  // namespace tusk
