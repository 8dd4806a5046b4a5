// The same bytes lost again and again: not by chance, not by an outage, and not where nearly all is lost.
#include "proto/transport/repeated_losses.h"

#include <gtest/gtest.h>

#include "proto/base/random.h"
#include "tests/unit/transport/virtual_time.h"

namespace tusk::transport {
namespace {

using Verdict = RepeatedLosses::Verdict;

constexpr Interval kPiece{1000, 2400};

class RepeatedLossesTest : public testing::Test {
 protected:
  [[nodiscard]] Verdict verdict(const Interval& piece = kPiece) {
    return losses_.note({now_, round_trip_, 30s, acked_, lost_}, piece);
  }
  [[nodiscard]] bool lose(const Interval& piece = kPiece) { return verdict(piece) == Verdict::kTooLong; }
  // A round trip, in which a thousand packets are settled.
  void pass(Duration round_trip = 100ms) {
    round_trip_ = round_trip;
    now_ += round_trip;
    lost_ += lost_of_thousand_;
    acked_ += 1000 - lost_of_thousand_;
  }
  // How long it is lost once in each round trip until that is too long.
  Duration too_long_after(Duration round_trip, const Interval& piece = kPiece) {
    const TimePoint since = now_;
    for (int i = 0; i < 100'000; ++i, pass(round_trip))
      if (lose(piece)) return now_ - since;
    return Duration::max();
  }

  RepeatedLosses losses_;
  TimePoint now_ = at(1s);
  Duration round_trip_ = 100ms;
  std::uint64_t lost_of_thousand_ = 1;
  std::uint64_t acked_ = 0;
  std::uint64_t lost_ = 0;
};

TEST_F(RepeatedLossesTest, LastForAsLongAsOnesPatience) { EXPECT_EQ(too_long_after(100ms), 30s); }

TEST_F(RepeatedLossesTest, AreTriedAtOtherMomentsOnceTheyAreUnlikely) {
  for (int i = 1; i < 10; ++i, pass())
    EXPECT_EQ(verdict(), i < 3 ? Verdict::kChance : Verdict::kUnlikely) << i;
  losses_.handle_acked(kPiece.begin, kPiece.end);
  lost_of_thousand_ = 200;
  for (int i = 1; i < 16; ++i, pass())
    EXPECT_EQ(verdict(), i < 9 ? Verdict::kChance : Verdict::kUnlikely) << i;
}

TEST_F(RepeatedLossesTest, AreSomeOnALongPath) { EXPECT_EQ(too_long_after(10s), 7 * 10s); }

TEST_F(RepeatedLossesTest, AreMoreWhereMuchIsLost) {
  lost_of_thousand_ = 200;
  EXPECT_EQ(too_long_after(10s), 16 * 10s);
  losses_ = {};
  lost_of_thousand_ = 500;
  EXPECT_EQ(too_long_after(10s), 37 * 10s);
}

TEST_F(RepeatedLossesTest, ProveNothingWhereAllIsLost) {
  lost_of_thousand_ = 999;
  EXPECT_GT(too_long_after(100ms), 30min);
  losses_ = {};
  lost_of_thousand_ = 1000;
  EXPECT_EQ(too_long_after(100ms), Duration::max());
}

TEST_F(RepeatedLossesTest, CountOnceForAllThatWasOnItsWayTogether) {
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(lose());
    now_ += 1ms;
    acked_ += 1000;
  }
  now_ += 60s;
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(lose()) << "an outage, and what was sent into it";
}

TEST_F(RepeatedLossesTest, AreForgottenOnceItArrives) {
  for (int i = 0; i < 1000; ++i, pass()) {
    EXPECT_FALSE(lose());
    if (i % 200 == 199) losses_.handle_acked(0, 5000);
  }
}

TEST_F(RepeatedLossesTest, OfOthersAreOthers) {
  for (int i = 0; i < 300; ++i, pass()) EXPECT_FALSE(lose());
  EXPECT_FALSE(lose({2400, 2500}));
  EXPECT_FALSE(lose({0, 1000}));
  losses_.handle_acked(0, 1000);
  losses_.handle_acked(2400, 5000);
  EXPECT_TRUE(lose());
}

// A packet of another size, or one that carries something else as well, cuts it elsewhere.
TEST_F(RepeatedLossesTest, AreFoundHoweverItIsCut) {
  bool too_long = false;
  const TimePoint since = now_;
  for (int i = 0; !too_long && i < 1000; ++i, pass()) {
    const std::uint64_t cut = 1000 + 100 * static_cast<std::uint64_t>(i % 14);
    if (cut > kPiece.begin) too_long |= lose({kPiece.begin, cut});
    too_long |= lose({cut, kPiece.end});
  }
  EXPECT_TRUE(too_long);
  EXPECT_LE(now_ - since, 31s);
}

// What is acknowledged bit by bit.
TEST_F(RepeatedLossesTest, AreFoundInWhatIsLeft) {
  EXPECT_FALSE(lose());
  for (std::uint64_t begin = kPiece.begin; begin < 2300; begin += 100, pass()) {
    losses_.handle_acked(begin, begin + 100);
    EXPECT_FALSE(lose({begin + 100, kPiece.end}));
  }
  EXPECT_EQ(too_long_after(100ms, {2300, kPiece.end}), 30s - 100ms);
}

// Every fifth packet is lost, both that which carries a piece and that which carries its repair, of which
// there may be few.
TEST(RepeatedLosses, ByChanceAreNeverTooMany) {
  for (const Duration round_trip : {Duration(100ms), Duration(1s), Duration(5s)})
    for (const std::uint64_t others : {0, 1, 4, 100}) {
      Random random(7);
      RepeatedLosses losses;
      TimePoint now = at(1s);
      std::uint64_t settled[2] = {};  // acked, lost
      for (std::uint64_t piece = 0; piece < 200'000; ++piece) {
        const Interval bytes{piece * 1434, (piece + 1) * 1434};
        for (; random.chance(0.2); now += round_trip) {
          ++settled[1];
          for (std::uint64_t i = 0; i < others; ++i) ++settled[random.chance(0.2)];
          ASSERT_NE(losses.note({now, round_trip, 30s, settled[0], settled[1]}, bytes), Verdict::kTooLong);
        }
        losses.handle_acked(bytes.begin, bytes.end);
      }
    }
}

}  // namespace
}  // namespace tusk::transport
