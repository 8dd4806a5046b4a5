// What reads tell of the reads to come: in order, in steps, by several, by a player, by a prober, and by
// nobody.
#include "fsclient/read_ahead.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "client.h"
#include "fsclient/stream_census.h"
#include "proto/base/random.h"

namespace tusk::client {
namespace {

constexpr ByteCount kFile = 10'000 * kMiB;
constexpr ReadAheadLimits kPlenty{.window_max = 64 * kMiB, .period = 1};

// An open file and what has been fetched of it; a read waits for what is missing, which then is there.
class FileReader {
 public:
  explicit FileReader(ByteCount size = kFile) : size_(size) {}

  ReadAheadAdvice read(ByteCount offset, ByteCount length, ReadAheadLimits limits = kPlenty) {
    const Interval range{offset, std::min(size_, offset + length)};
    waited = !there_.covers(range.begin, range.end);
    const ReadAheadAdvice advice = ahead.observe(range, waited, size_, limits);
    for (const Interval& left : advice.give_up) given_up += there_.remove(left.begin, left.end);
    asked += range.size();
    moved += there_.add(range.begin, range.end);
    for (const Interval& piece : advice.fetch) {
      EXPECT_LE(piece.end, size_);
      moved += there_.add(piece.begin, piece.end);
    }
    waits += waited ? 1 : 0;
    return advice;
  }
  void read_in_order(ByteCount offset, ByteCount length, ByteCount step = 128 * kKiB) {
    for (ByteCount at = offset; at < offset + length; at += step) (void)read(at, step);
  }
  // Nothing was fetched ahead, as on a line so slow that it has not come.
  void forget() { there_.clear(); }

  ReadAhead ahead;
  bool waited = false;
  ByteCount asked = 0;
  ByteCount moved = 0;
  ByteCount given_up = 0;
  std::uint64_t waits = 0;

 private:
  ByteCount size_;
  IntervalSet there_;
};

// ---------------------------------------------------------------- in order

TEST(ReadInOrder, WhoeverBeginsAtTheStartAndWaitsIsBelieved) {
  FileReader file;
  EXPECT_THAT(file.read(0, 4096).fetch, testing::ElementsAre(Interval{4096, 4096 + ReadAhead::kWindowFirst}));
}

TEST(ReadInOrder, AStartThatIsThereAlreadyBringsNothingMore) {
  ReadAhead ahead;  // `file` reads the head of many files; the open brought it
  EXPECT_TRUE(ahead.observe({0, 128 * kKiB}, false, kFile, kPlenty).fetch.empty());
}

TEST(ReadInOrder, TheWindowGrowsForWhoeverWaitsAndNoFurtherThanItsLimit) {
  ReadAhead ahead;
  ByteCount reached = 0;
  for (ByteCount offset = 0; offset < 50 * kMiB; offset += kMiB) {
    const auto advice =
        ahead.observe({offset, offset + kMiB}, true, 1000 * kMiB, {.window_max = 16 * kMiB, .period = 1});
    for (const Interval& next : advice.fetch) {
      EXPECT_GE(next.begin, reached);  // nothing twice
      reached = next.end;
    }
    EXPECT_LE(reached, offset + kMiB + 16 * kMiB);
  }
  EXPECT_EQ(ahead.window(), 16 * kMiB);
  EXPECT_GE(reached, 50 * kMiB + 8 * kMiB);
}

// A line of 1 Gbit/s and 200 ms that loses packets needs a hundred megabytes on their way.
TEST(ReadInOrder, WhoHasReadFarIsBelievedToGoOn) {
  ReadAhead ahead;
  ByteCount reached = 0;
  ByteCount offset = 0;
  for (; reached < offset + 100 * kMiB; offset += kMiB) {
    ASSERT_LT(offset, 30 * kMiB);
    const auto advice =
        ahead.observe({offset, offset + kMiB}, true, kFile, {.window_max = 128 * kMiB, .period = 1});
    for (const Interval& next : advice.fetch) reached = next.end;
    if (offset < ReadAhead::kLongRead) {
      EXPECT_LE(reached, offset + kMiB + ReadAhead::kBurst + ReadAhead::kTrust * (offset + kMiB));
    }
  }
}

// A line of 1 Gbit/s and 200 ms holds 25 MB: what was asked for in steps left it idle for half the first
// second.
TEST(ReadInOrder, WhoBeginsAsACopyIsBelievedAtOnce) {
  constexpr ReadAheadLimits limits{.window_max = 64 * kMiB, .period = 1, .burst = 64 * kMiB};
  FileReader file;
  EXPECT_THAT(file.read(0, ReadAhead::kBulkRead, limits).fetch,
              testing::ElementsAre(Interval{ReadAhead::kBulkRead, ReadAhead::kBulkRead + 64 * kMiB}));
  EXPECT_EQ(file.ahead.bet(), ReadAhead::Bet::kOpen);
  for (ByteCount at = ReadAhead::kBulkRead; at < ReadAhead::kLongRead; at += kMiB) {
    EXPECT_EQ(file.ahead.bet(), ReadAhead::Bet::kOpen) << at;
    (void)file.read(at, kMiB, limits);
  }
  EXPECT_EQ(file.ahead.bet(), ReadAhead::Bet::kWon);
}

// Head, tail, and the rest of the head, as a prober reads.
TEST(ReadInOrder, WhoJumpsAwayAndComesBackIsNotBetOnAgain) {
  constexpr ReadAheadLimits limits{.window_max = 64 * kMiB, .period = 1, .burst = 64 * kMiB};
  FileReader file;
  (void)file.read(0, ReadAhead::kBulkRead, limits);
  const ReadAheadAdvice away = file.read(kFile - kMiB, kMiB, limits);
  EXPECT_THAT(away.give_up,
              testing::ElementsAre(Interval{ReadAhead::kBulkRead, ReadAhead::kBulkRead + 64 * kMiB}));
  const ByteCount before = file.moved;
  (void)file.read(ReadAhead::kBulkRead, kMiB, limits);
  EXPECT_LE(file.moved - before, kMiB + ReadAhead::kWindowFirst);
}

TEST(ReadInOrder, AJumpIntoWhatWasBetOnKeepsWhatItWants) {
  constexpr ReadAheadLimits limits{.window_max = 64 * kMiB, .period = 1, .burst = 64 * kMiB};
  FileReader file;
  (void)file.read(0, ReadAhead::kBulkRead, limits);
  const ReadAheadAdvice into = file.read(40 * kMiB + 1000, 1000, limits);
  EXPECT_FALSE(file.waited);
  EXPECT_THAT(into.give_up, testing::ElementsAre(Interval{ReadAhead::kBulkRead, 40 * kMiB},
                                                 Interval{40 * kMiB + ReadAhead::kGrainInOrder,
                                                          ReadAhead::kBulkRead + 64 * kMiB}));
}

TEST(ReadInOrder, ABetOnAFileThatSoonEndsTellsNothing) {
  constexpr ReadAheadLimits limits{.window_max = 64 * kMiB, .period = 1, .burst = 64 * kMiB};
  FileReader file(2 * kMiB);
  (void)file.read(0, kMiB, limits);
  EXPECT_EQ(file.ahead.bet(), ReadAhead::Bet::kOpen);
  (void)file.read(kMiB, kMiB, limits);
  EXPECT_EQ(file.ahead.bet(), ReadAhead::Bet::kEven);
  FileReader small(ReadAhead::kBulkRead);
  (void)small.read(0, ReadAhead::kBulkRead, limits);
  EXPECT_EQ(small.ahead.bet(), ReadAhead::Bet::kNone);
}

TEST(ReadInOrder, ABetShrinksAsOthersShareAndEndsAfterALongRead) {
  constexpr ReadAheadLimits alone{.window_max = 32 * kMiB, .period = 1, .burst = 64 * kMiB};
  constexpr ReadAheadLimits shared{.window_max = 8 * kMiB, .period = 1, .burst = 16 * kMiB};
  FileReader file;
  (void)file.read(0, ReadAhead::kBulkRead, alone);
  EXPECT_EQ(file.ahead.window(), 64 * kMiB);
  (void)file.read(ReadAhead::kBulkRead, kMiB, shared);
  EXPECT_EQ(file.ahead.window(), 16 * kMiB);
  for (ByteCount at = kMiB + ReadAhead::kBulkRead; at < 2 * ReadAhead::kLongRead; at += kMiB)
    (void)file.read(at, kMiB, shared);
  EXPECT_LE(file.ahead.window(), 8 * kMiB);
}

// While its reader waits for a repair a far line brings more than was bet on at first.
TEST(ReadInOrder, ABetThatComesTrueGrowsWithTheLine) {
  constexpr ReadAheadLimits unknown{.window_max = 32 * kMiB, .period = 1, .burst = 64 * kMiB};
  constexpr ReadAheadLimits known{.window_max = 96 * kMiB, .period = 1, .burst = 96 * kMiB};
  FileReader file;
  (void)file.read(0, ReadAhead::kBulkRead, unknown);
  ByteCount at = ReadAhead::kBulkRead;
  EXPECT_EQ(file.ahead.window(), 64 * kMiB);
  for (; at <= ReadAhead::kLongRead; at += kMiB) {
    file.forget();
    (void)file.read(at, kMiB, known);
  }
  EXPECT_EQ(file.ahead.window(), 96 * kMiB);
}

TEST(ReadInOrder, WhoBeginsWithLittleOrElsewhereIsNotBetOn) {
  constexpr ReadAheadLimits limits{.window_max = 64 * kMiB, .period = 1, .burst = 64 * kMiB};
  for (const auto& [at, length] : {std::pair{ByteCount{0}, 256 * kKiB}, {kMiB, kMiB}}) {
    FileReader file;
    (void)file.read(at, length, limits);
    EXPECT_EQ(file.ahead.bet(), ReadAhead::Bet::kNone);
    EXPECT_LE(file.moved, length + ReadAhead::kWindowFirst);
  }
}

TEST(ReadInOrder, OneThatNeverWaitsKeepsASmallWindow) {
  FileReader file;
  file.read_in_order(0, 100 * kMiB);
  EXPECT_EQ(file.ahead.window(), ReadAhead::kWindowFirst);
  EXPECT_EQ(file.waits, 1u);
  EXPECT_LE(file.moved, file.asked + ReadAhead::kWindowFirst);
}

TEST(ReadInOrder, StopsAtTheEndOfTheFile) {
  FileReader file(10'000);
  EXPECT_THAT(file.read(0, 4096).fetch, testing::ElementsAre(Interval{4096, 10'000}));
  EXPECT_TRUE(file.read(4096, 4096).fetch.empty());
}

TEST(ReadInOrder, InTheMiddleItTakesSomeProof) {
  FileReader file;
  const ByteCount start = 500 * kMiB;
  EXPECT_TRUE(file.read(start, 64 * kKiB).fetch.empty());
  std::vector<Interval> next;
  for (ByteCount read = 64 * kKiB; next.empty() && read < kMiB; read += 64 * kKiB)
    next = file.read(start + read, 64 * kKiB).fetch;
  ASSERT_FALSE(next.empty());
  EXPECT_LE(next.front().begin, start + ReadAhead::kProof + 64 * kKiB);
}

TEST(ReadInOrder, NeighboursInAnyOrderAreOneReader) {
  FileReader file;
  for (const ByteCount at : {1, 0, 3, 2, 5, 4, 7, 6, 11, 10, 9, 8}) {
    EXPECT_EQ(file.read(at * kMiB, kMiB).give_up.size(), 0u);
  }
  file.read_in_order(12 * kMiB, 20 * kMiB);
  EXPECT_TRUE(file.ahead.sequential());
}

// The kernel's batches of four pieces, each from its own thread.
TEST(ReadInOrder, ShuffledPiecesLoseNothing) {
  FileReader file;
  Random random(11);
  for (ByteCount batch = 0; batch < 200; ++batch) {
    std::vector<ByteCount> pieces{0, 1, 2, 3};
    for (std::size_t i = pieces.size() - 1; i > 0; --i) std::swap(pieces[i], pieces[random.below(i + 1)]);
    for (const ByteCount piece : pieces)
      EXPECT_THAT(file.read((batch * 4 + piece) * kMiB, kMiB).give_up, testing::IsEmpty());
  }
  EXPECT_TRUE(file.ahead.sequential());
  EXPECT_LE(file.moved, file.asked + 64 * kMiB);
}

TEST(ReadInOrder, PiecesThatOvertakeOthersAreNoReadersOfTheirOwn) {
  ReadAhead ahead;
  int hungry = 0;
  for (const ByteCount at : {0, 1, 3, 2, 5, 6, 7, 4, 8, 10, 11, 9, 12, 14, 15, 13})
    hungry += ahead.observe({at * kMiB, (at + 1) * kMiB}, true, kFile, kPlenty).hungry ? 1 : 0;
  EXPECT_EQ(hungry, 1);
}

TEST(ReadInOrder, StepsBehindAHeadThatWasReadInOrderAreSeen) {
  FileReader file;
  file.read_in_order(0, kMiB);
  for (ByteCount step = 0; step < 100; ++step) (void)file.read(2 * kMiB + step * kMiB, 64 * kKiB);
  EXPECT_EQ(file.ahead.grain(), ReadAhead::kGrainPage);
  EXPECT_LE(file.moved, 2 * file.asked + 2 * ReadAhead::kBurst);
}

TEST(ReadInOrder, NoRoomNoWindow) {
  FileReader file;
  EXPECT_TRUE(file.read(0, 4096, {.window_max = 0, .period = 1}).fetch.empty());
}

TEST(ReadInOrder, WhatThereWasNoRoomForIsAskedForLater) {
  ReadAhead ahead;
  const auto ask = [&](ByteCount at, ByteCount room) {
    return ahead.observe({at, at + kMiB}, true, kFile, {.window_max = 64 * kMiB, .period = 1, .room = room})
        .fetch;
  };
  EXPECT_THAT(ask(0, 0), testing::IsEmpty());
  EXPECT_THAT(ask(kMiB, 100 * kKiB), testing::IsEmpty());
  EXPECT_THAT(ask(2 * kMiB, 3 * kMiB + 5), testing::ElementsAre(Interval{3 * kMiB, 6 * kMiB}));
  const auto rest = ask(3 * kMiB, kFile);
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest.front().begin, 6 * kMiB);
}

TEST(ReadInOrder, ALittleSkippedIsStillInOrder) {
  FileReader file;
  for (ByteCount i = 0; i < 20; ++i) (void)file.read(300 * kMiB + i * 100 * kKiB, 64 * kKiB);
  EXPECT_TRUE(file.ahead.sequential());
}

// ---------------------------------------------------------------- several

TEST(SeveralReaders, OfOneOpenFileAllRunAhead) {
  FileReader file;
  constexpr ByteCount kReaders = 8;
  for (ByteCount i = 0; i < 100; ++i)
    for (ByteCount reader = 0; reader < kReaders; ++reader) {
      (void)file.read(reader * 1000 * kMiB + i * 128 * kKiB, 128 * kKiB);
      EXPECT_TRUE(i < 4 || file.ahead.sequential());
    }
  // Each beginning may take from those that were not known to come back.
  EXPECT_LE(file.waits, 4 * kReaders);
  EXPECT_LE(file.moved, file.asked + kReaders * 2 * ReadAhead::kWindowFirst);
}

TEST(SeveralReaders, AReaderThatCameBackKeepsWhatIsOnItsWay) {
  FileReader file;
  file.read_in_order(0, 2 * kMiB);
  file.read_in_order(1000 * kMiB, 2 * kMiB);
  file.read_in_order(2 * kMiB, kMiB);  // back
  EXPECT_THAT(file.read(5000 * kMiB, 4096).give_up,
              testing::ElementsAre(testing::Field(&Interval::begin, testing::Ge(1000 * kMiB))));
}

TEST(SeveralReaders, AreCountedAsLongAsTheyWait) {
  StreamCensus census;
  const TimePoint start{std::chrono::hours(5)};
  EXPECT_EQ(census.count(), 1u);
  (void)census.period(start);
  for (int i = 0; i < 8; ++i) census.add();
  EXPECT_EQ(census.count(), 8u);
  (void)census.period(start + StreamCensus::kPeriod);
  EXPECT_EQ(census.count(), 8u);
  for (int i = 0; i < 3; ++i) census.add();
  (void)census.period(start + 2 * StreamCensus::kPeriod);
  EXPECT_EQ(census.count(), 3u);
  (void)census.period(start + 9 * StreamCensus::kPeriod);
  EXPECT_EQ(census.count(), 1u);
}

TEST(SeveralReaders, AStreamCountsOnceAPeriodAndOnlyIfItWaits) {
  ReadAhead ahead;
  const auto hungry = [&](ByteCount at, bool waited, std::uint64_t period) {
    return ahead.observe({at, at + kMiB}, waited, kFile, {.window_max = kMiB, .period = period}).hungry;
  };
  EXPECT_TRUE(hungry(0, true, 7));
  EXPECT_FALSE(hungry(kMiB, true, 7));
  EXPECT_FALSE(hungry(2 * kMiB, false, 8));
  EXPECT_TRUE(hungry(3 * kMiB, true, 8));
}

// ---------------------------------------------------------------- jumps

TEST(Jumps, WhatWasLeftIsGivenUp) {
  FileReader file;
  file.read_in_order(0, 8 * kMiB);
  const auto advice = file.read(3000 * kMiB, 128 * kKiB);
  ASSERT_EQ(advice.give_up.size(), 1u);
  EXPECT_EQ(advice.give_up.front().begin, 8 * kMiB);
  EXPECT_GE(advice.give_up.front().end, 8 * kMiB + ReadAhead::kWindowFirst / 2);
  EXPECT_TRUE(advice.fetch.empty());
  EXPECT_FALSE(file.ahead.sequential());
  EXPECT_EQ(file.ahead.grain(), ReadAhead::kGrainNearby);  // soon here: not whole blocks
}

TEST(Jumps, AJumpIntoWhatComesAnywayIsNone) {
  FileReader file;
  file.read_in_order(0, 8 * kMiB);
  EXPECT_TRUE(file.read(9 * kMiB, 128 * kKiB).give_up.empty());
}

TEST(Jumps, APlayerThatSeeksGetsAWindowAtEachPlace) {
  FileReader file;
  for (const ByteCount place : {0, 500, 200, 900, 100, 700, 300}) {
    file.read_in_order(place * kMiB, 8 * kMiB);
    EXPECT_TRUE(file.ahead.sequential());
  }
  EXPECT_LE(file.moved - file.given_up, file.asked + 2 * ReadAhead::kWindowFirst);
}

TEST(Jumps, AProbersWindowIsNotMuchLongerThanWhatItRead) {
  ReadAhead ahead;  // it waits for every read
  ByteCount furthest = 0;
  for (ByteCount at = 0; at < 5 * kMiB; at += 128 * kKiB) {
    for (const Interval& piece : ahead.observe({at, at + 128 * kKiB}, true, kFile, kPlenty).fetch)
      furthest = std::max(furthest, piece.end);
  }
  EXPECT_LE(furthest, 5 * kMiB + ReadAhead::kBurst + ReadAhead::kTrust * 5 * kMiB);
}

TEST(Jumps, RandomReadsBringNothing) {
  FileReader file;
  Random random(3);
  for (int i = 0; i < 3000; ++i)
    EXPECT_THAT(file.read((1 + random.below(2'000'000)) * 4 * kKiB, 4 * kKiB).fetch, testing::IsEmpty());
  EXPECT_FALSE(file.ahead.sequential());
}

TEST(Jumps, LargeRandomReadsBringNothingEither) {
  FileReader file;
  Random random(4);
  for (int i = 0; i < 300; ++i)
    EXPECT_THAT(file.read((1 + random.below(1000)) * 8 * kMiB, kMiB).fetch, testing::IsEmpty()) << i;
}

TEST(Jumps, SurroundingsAreFetchedAsLongAsTheyAreOfUse) {
  FileReader file;
  Random random(5);
  EXPECT_EQ(file.ahead.grain(), ReadAhead::kGrainNearby);
  for (std::uint32_t i = 0; i <= ReadAhead::kLonelyMax; ++i)
    (void)file.read((1 + random.below(2'000'000)) * 4 * kKiB, 4 * kKiB);
  EXPECT_EQ(file.ahead.grain(), ReadAhead::kGrainPage);
  (void)file.ahead.observe({40 * kMiB, 40 * kMiB + 4 * kKiB}, false, kFile, kPlenty);  // somebody fetched it
  EXPECT_EQ(file.ahead.grain(), ReadAhead::kGrainNearby);
}

// ---------------------------------------------------------------- steps

struct Steps {
  const char* name;
  double distance;
  ByteCount length;
  ByteCount slack = 0;  // bytes for each step, where they do not begin with a page
};

class ReadInSteps : public testing::TestWithParam<Steps> {};

// As the kernel asks: whole pages.
Interval pages_of(double offset, ByteCount length) {
  const auto begin = static_cast<ByteCount>(offset);
  const ByteCount page = ReadSteps::kPage;
  return {begin / page * page, (begin + length + page - 1) / page * page};
}

TEST_P(ReadInSteps, AreFetchedAheadAndWhatLiesBetweenIsNot) {
  FileReader file;
  const double start = static_cast<double>(kFile / 2);
  constexpr int kSteps = 200;
  for (int step = 0; step < kSteps; ++step) {
    const Interval read = pages_of(start + step * GetParam().distance, GetParam().length);
    (void)file.read(read.begin, read.size());
  }
  // Whether they begin with pages is learnt from what was missing.
  EXPECT_LE(file.waits, GetParam().slack == 0 ? ReadSteps::kProof + 1 : 3 * ReadSteps::kProof);
  EXPECT_LE(file.moved, 2 * (file.asked + GetParam().slack * kSteps));
}

TEST_P(ReadInSteps, MoveAtMostTwiceTheBytesWhereverTheyStop) {
  for (int steps = 1; steps < 60; ++steps) {
    ReadAhead ahead;
    IntervalSet moved;
    ByteCount asked = 0;
    for (int step = 0; step < steps; ++step) {
      const Interval read =
          pages_of(static_cast<double>(kFile / 2) + step * GetParam().distance, GetParam().length);
      asked += read.size();
      moved.add(read.begin, read.end);
      for (const Interval& piece : ahead.observe(read, true, kFile, kPlenty).fetch)  // it always waits
        moved.add(piece.begin, piece.end);
    }
    EXPECT_LE(moved.total(), 2 * (asked + GetParam().slack * static_cast<ByteCount>(steps))) << steps;
  }
}

INSTANTIATE_TEST_SUITE_P(Steps, ReadInSteps,
                         testing::Values(Steps{"Forwards", 1024.0 * 1024, 64 * kKiB},
                                         Steps{"Backwards", -1024.0 * 1024, 64 * kKiB},
                                         Steps{"BackwardsWithoutGaps", -65536.0, 64 * kKiB},
                                         Steps{"PagesBackwards", -4096.0, 4 * kKiB},
                                         Steps{"NotOfPages", 1'000'000.0, 30'000, 4 * ReadSteps::kPage},
                                         Steps{"NotOfPagesBackwards", -1'000'000.0, 30'000,
                                               4 * ReadSteps::kPage},
                                         Steps{"Frames", 3'110'400.0, 300'000, 4 * ReadSteps::kPage}),
                         [](const auto& tested) { return tested.param.name; });

TEST(ReadSteps, GrowWithTheReaderThatWaits) {
  ReadAhead ahead;
  ByteCount furthest = 0;
  for (ByteCount step = 0; step < 300; ++step)
    for (const Interval& piece :
         ahead.observe({step * kMiB, step * kMiB + 64 * kKiB}, true, kFile, kPlenty).fetch)
      furthest = std::max(furthest, piece.end);
  EXPECT_GE(furthest, (299 + 150) * kMiB);
  EXPECT_LE(furthest, (299 + ReadSteps::kWindowMax + 1) * kMiB);
}

TEST(ReadSteps, StopAtBothEndsOfTheFile) {
  FileReader file(20 * kMiB);
  for (ByteCount step = 0; step < 20; ++step) (void)file.read(step * kMiB, 64 * kKiB);
  FileReader back(20 * kMiB);
  for (ByteCount step = 20; step-- > 0;) (void)back.read(step * kMiB, 64 * kKiB);
  EXPECT_LE(back.waits, 8u);
}

TEST(ReadSteps, OfSeveralReadersAreToldApart) {
  FileReader file;
  for (ByteCount step = 0; step < 100; ++step) {
    (void)file.read(step * kMiB + 300 * kMiB, 64 * kKiB);
    (void)file.read(5000 * kMiB - step * 3 * kMiB, 16 * kKiB);
    (void)file.read(8000 * kMiB + step * 700 * kKiB, 8 * kKiB);
  }
  EXPECT_LE(file.waits, 3 * (ReadSteps::kProof + 2));
}

TEST(ReadSteps, SharedByThreadsComeInAnyOrder) {
  FileReader file;
  Random random(8);
  for (ByteCount batch = 0; batch < 60; ++batch) {
    std::vector<ByteCount> steps{0, 1, 2, 3};
    if (batch > 2) std::swap(steps[random.below(4)], steps[random.below(4)]);
    for (const ByteCount step : steps) (void)file.read((500 + batch * 4 + step) * kMiB, 64 * kKiB);
  }
  EXPECT_LE(file.waits, 12u);
}

TEST(ReadSteps, DoNotTakeAReaderInOrderForTheirs) {
  FileReader file;
  file.read_in_order(0, 200 * kMiB, kMiB);
  EXPECT_EQ(file.ahead.grain(), ReadAhead::kGrainInOrder);
  EXPECT_LE(file.moved, file.asked + 2 * ReadAhead::kWindowFirst);
}

TEST(ReadSteps, OfManyReadsAreFetchedWhole) {
  FileReader file;
  for (ByteCount step = 0; step < 20; ++step)
    for (ByteCount part = 0; part < 4; ++part)
      (void)file.read(kMiB + step * 64 * kMiB + part * 128 * kKiB, 128 * kKiB);
  EXPECT_LE(file.waits, 30u);
  EXPECT_LE(file.moved, 3 * file.asked);
}

TEST(ReadSteps, ExtremeOffsetsAreHarmless) {
  FileReader file(~ByteCount{0} >> 1);
  for (int round = 0; round < 20; ++round) {
    (void)file.read((~ByteCount{0} >> 1) - (round + 1) * (1ull << 55), 4096);
    (void)file.read(static_cast<ByteCount>(round) * 4096 * 3, 4096);
    (void)file.read((~ByteCount{0} >> 1) - 1, 4096);
  }
}

}  // namespace
}  // namespace tusk::client
