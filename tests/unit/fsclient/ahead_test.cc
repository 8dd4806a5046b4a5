// What is fetched ahead of a program: how much, in what order, for how long.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsclient/ahead_window.h"
#include "fsclient/attr_cache.h"
#include "fsclient/export_statistics.h"
#include "fsclient/foresight.h"
#include "fsclient/inode_table.h"
#include "fsclient/tree_walk.h"
#include "fsclient/whole_reads.h"

namespace tusk::client {
namespace {

using std::chrono::seconds;

class AheadWindowTest : public testing::Test {
 protected:
  // So much came of what was asked for.
  std::uint64_t bring(ByteCount bytes) {
    const AheadWindow::Ticket ticket = window.begin(bytes);
    window.end(bytes);
    return window.add(bytes, ticket);
  }
  void miss(std::uint32_t times) {
    while (times-- > 0) (void)window.miss();
  }

  AheadWindow window{1600, 10'000};
};

TEST_F(AheadWindowTest, GrowsWithWhatIsUsed) {
  EXPECT_EQ(window.room(), 1600u);
  const AheadWindow::Ticket ticket = window.begin(600);
  EXPECT_EQ(window.room(), 1000u);
  const auto first = window.add(100, ticket);
  const auto second = window.add(200, ticket);
  window.end(600);
  EXPECT_EQ(window.room(), 1300u);
  window.use(first);
  EXPECT_EQ(window.window(), 2000u);
  EXPECT_EQ(window.room(), 1800u);
  window.use(second);
  EXPECT_EQ(window.window(), 2800u);
}

TEST_F(AheadWindowTest, StaysFullOfWhatNobodyUses) {
  for (int i = 0; i < 16; ++i) bring(100);
  EXPECT_EQ(window.room(), 0u);
  EXPECT_FALSE(window.worth_asking());
}

TEST_F(AheadWindowTest, CountsWhatWasPassedBy) {
  bring(300);
  bring(300);
  const auto third = bring(300);
  window.use(third);
  EXPECT_EQ(window.room(), window.window());
  window.use(third);  // again: nothing more
  EXPECT_EQ(window.window(), 1600u + AheadWindow::kGrowth * 900);
}

TEST_F(AheadWindowTest, HasALimitAndBeginsAnew) {
  window.use(bring(9000));
  EXPECT_EQ(window.window(), 10'000u);
  const auto old = bring(10'000);
  EXPECT_EQ(window.room(), 0u);
  window.restart();
  EXPECT_EQ(window.room(), 1600u);
  window.use(old);  // of before
  EXPECT_EQ(window.room(), 1600u);
}

// A walk in another order than was guessed got nothing for as long as the wrong guess filled the window.
TEST_F(AheadWindowTest, LetsGoOfAWrongGuess) {
  bring(1600);
  EXPECT_FALSE(window.miss());  // one alone may be somebody else's
  EXPECT_EQ(window.room(), 0u);
  EXPECT_TRUE(window.miss());
  EXPECT_EQ(window.room(), 400u);
  EXPECT_TRUE(window.worth_asking());
}

TEST_F(AheadWindowTest, DoesNotCountWhatComesOfAWrongGuess) {
  const AheadWindow::Ticket wrong = window.begin(1600);
  miss(2);
  EXPECT_EQ(window.room(), 0u);  // it is still on its way
  window.end(1600);
  EXPECT_EQ(window.add(1600, wrong), 0u);
  EXPECT_EQ(window.room(), 400u);
}

// Large things come later than small ones that were asked for after them.
TEST_F(AheadWindowTest, CountsInTheOrderInWhichThingsWereAskedFor) {
  const AheadWindow::Ticket large = window.begin(1000, 1);
  const AheadWindow::Ticket small = window.begin(200, 2);
  (void)window.add(100, small, 0);
  (void)window.add(100, small, 1);
  const auto first = window.add(1000, large, 0);
  window.end(1200);
  window.use(first);
  EXPECT_EQ(window.window() - window.room(), 200u);
}

TEST_F(AheadWindowTest, CountsNothingTwice) {
  const AheadWindow::Ticket ticket = window.begin(1000, 1);
  const auto number = window.add(1000, ticket, 0);
  (void)window.add(1000, ticket, 0);
  window.end(1000);
  window.use(number);
  EXPECT_EQ(window.room(), window.window());
}

TEST_F(AheadWindowTest, DoesNotBlameAGuessForMissesBeforeIt) {
  miss(5);
  bring(1600);
  EXPECT_FALSE(window.miss());
  EXPECT_TRUE(window.miss());
}

TEST_F(AheadWindowTest, DoesNotBlameAGuessForWhatWasNotAskedFor) {
  miss(100);
  EXPECT_EQ(window.room(), 1600u);
}

TEST_F(AheadWindowTest, IsForgivenBySomethingThatWasExpected) {
  bring(1600);
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(window.miss());
    window.hit();
  }
}

TEST_F(AheadWindowTest, RisksNextToNothingAsLongAsGuessesAreWrong) {
  ByteCount risked = 0;
  for (int opened = 0; opened < 1000; ++opened) {
    if (window.worth_asking() && !window.doubtful()) {
      risked += window.room();
      bring(window.room());
    } else if (window.worth_asking()) {
      bring(window.room());
      EXPECT_LE(window.window(), 100u);
    }
    (void)window.miss();
  }
  EXPECT_LT(risked, 10'000u);
}

TEST_F(AheadWindowTest, ComesBackAfterAWrongGuess) {
  bring(1600);
  miss(2);
  bring(400);
  miss(2);
  EXPECT_TRUE(window.doubtful());
  window.use(bring(100));
  EXPECT_FALSE(window.doubtful());
  EXPECT_EQ(window.window(), 500u);
}

// ---------------------------------------------------------------- who reads files whole

TEST(WholeReads, BelievesWhoReadALargeOneToItsEnd) {
  WholeReads reads(1000);
  EXPECT_EQ(reads.size_max(), 1000u);
  reads.note_close(900, 900);  // that says nothing
  EXPECT_EQ(reads.size_max(), 1000u);
  reads.note_close(5000, 5000);
  EXPECT_EQ(reads.size_max(), 20'000u);
}

TEST(WholeReads, NoLongerBelievesWhoReadABeginning) {
  WholeReads reads(1000);
  reads.note_close(5000, 5000);
  reads.note_close(4000, 500);
  EXPECT_EQ(reads.size_max(), 2000u);
  reads.note_close(1500, 500);
  EXPECT_EQ(reads.size_max(), 1000u);
}

// A player shows the covers and looks for the titles in the songs.
TEST(WholeReads, TellsSizesApart) {
  WholeReads reads(1000);
  reads.note_close(5000, 5000);
  reads.note_close(100'000, 500);
  EXPECT_EQ(reads.size_max(), 20'000u);
}

TEST(WholeReads, LearnsNothingFromWhatTheKernelHad) {
  WholeReads reads(1000);
  reads.note_close(5000, 5000);
  reads.note_close(5000, 0);
  EXPECT_EQ(reads.size_max(), 20'000u);
}

// ---------------------------------------------------------------- statistics

TEST(ExportStatistics, AreKnownForAMomentAndAskedForAgainByOne) {
  ExportStatistics statistics;
  const TimePoint start{seconds(100)};
  EXPECT_FALSE(statistics.find(start));
  schema::StatFsReply reply;
  reply.set_blocks(42);
  statistics.keep(reply, start);
  EXPECT_EQ(statistics.find(start)->reply.blocks(), 42u);
  EXPECT_FALSE(statistics.find(start)->renew);
  const TimePoint later = start + ExportStatistics::kAgeGood + Duration(1);
  EXPECT_TRUE(statistics.find(later)->renew);
  EXPECT_FALSE(statistics.find(later)->renew);
  EXPECT_FALSE(statistics.find(start + ExportStatistics::kAgeMax + Duration(1)));
}

TEST(ExportStatistics, AreNotThoseOfWhatIsMountedInsideTheExport) {
  EXPECT_TRUE(ExportStatistics::covers(12345));
  EXPECT_FALSE(ExportStatistics::covers((std::uint64_t{1} << 63) | 12345));
}

// ---------------------------------------------------------------- order

class Order : public testing::Test {
 protected:
  // The listing's order: c a d b, made in the order d c b a.
  void SetUp() override {
    int ino = 0;
    for (const char* name : {"d", "c", "b", "a"}) inos[name] = static_cast<std::uint64_t>(++ino);
    for (const char* name : {"c", "a", "d", "b"}) all.push_back({name, inos[name], table.intern(name)});
  }
  const Inode* at(const std::string& name) { return name.empty() ? nullptr : table.find(name).get(); }
  std::string after(const std::string& previous, const std::string& current) {
    std::vector<Sibling> order = all;
    put_in_order(order, guess_order(order, at(previous), at(current)), at(current));
    std::string names;
    for (const Sibling& sibling : order) names += sibling.name;
    return names;
  }

  InodeTable table{"root"};
  std::map<std::string, std::uint64_t> inos;
  std::vector<Sibling> all;
};

TEST_F(Order, IsGuessedFromTheFirst) {
  EXPECT_EQ(after("", "c"), "cadb");  // of the listing
  EXPECT_EQ(after("", "a"), "abcd");  // by name
  EXPECT_EQ(after("", "d"), "dcba");  // by inode number
}

TEST_F(Order, IsGuessedFromAStep) {
  EXPECT_EQ(after("a", "d"), "dbca");  // of the listing, and round
  EXPECT_EQ(after("b", "c"), "cdab");
  EXPECT_EQ(after("c", "b"), "badc");
}

// Two of three files in a directory prove nothing; the order of the directory before does.
TEST_F(Order, IsTheOneOfBeforeIfSeveralFit) {
  all.resize(2);  // c a
  EXPECT_EQ(guess_order(all, at("c"), at("a")), VisitOrder::kListing);
  EXPECT_EQ(guess_order(all, at("c"), at("a"), VisitOrder::kInode), VisitOrder::kInode);
  EXPECT_EQ(guess_order(all, at("a"), at("c"), VisitOrder::kInode), VisitOrder::kName);
}

TEST_F(Order, OfStrangersIsThatOfTheListing) { EXPECT_EQ(after("", "nobody"), "cadb"); }

TEST(TreeWalk, GivesWhatWasPutInFrontFirst) {
  TreeWalk walk;
  walk.put_in_front({{{}, "c", {}, {}}, {{}, "d", {}, {}}});
  walk.put_in_front({{{}, "a", {}, {}}, {{}, "b", {}, {}}});
  std::string names;
  while (!walk.empty()) names += walk.take().name;
  EXPECT_EQ(names, "abcd");
}

TEST(TreeWalk, IsBounded) {
  TreeWalk walk;
  for (int i = 0; i < 3; ++i) walk.put_in_front(std::vector<TreePlace>(TreeWalk::kPlacesMax / 2));
  std::size_t count = 0;
  for (; !walk.empty(); ++count) (void)walk.take();
  EXPECT_EQ(count, TreeWalk::kPlacesMax);
}

// ---------------------------------------------------------------- how long

class Foreseeing : public testing::Test {
 protected:
  Foresight foresight;
  TimePoint now{seconds(1000)};
};

TEST_F(Foreseeing, ServesOnceAndSoon) {
  foresight.note_step(now);
  Ahead ahead = foresight.told(now);
  now += Foresight::kPauseMax;
  EXPECT_TRUE(foresight.take(ahead, now));
  EXPECT_FALSE(foresight.take(ahead, now));
}

TEST_F(Foreseeing, EndsWithItsTime) {
  foresight.note_step(now);
  Ahead ahead = foresight.told(now);
  for (Duration passed{}; passed < Foresight::kAgeMax; passed += seconds(1))
    foresight.note_step(now += seconds(1));
  EXPECT_FALSE(foresight.take(ahead, now));
}

TEST_F(Foreseeing, EndsWithAPauseForGood) {
  foresight.note_step(now);
  Ahead ahead = foresight.told(now);
  now += Foresight::kPauseMax + std::chrono::milliseconds(1);
  EXPECT_FALSE(foresight.take(ahead, now));
  foresight.note_step(now);  // another walk
  EXPECT_FALSE(foresight.take(ahead, now));
}

TEST_F(Foreseeing, ServesNobodyBeforeAWalkBegan) {
  EXPECT_FALSE(foresight.going_on(now));
  Ahead ahead = foresight.told(now);
  EXPECT_FALSE(foresight.take(ahead, now));
}

TEST_F(Foreseeing, IsOverForAttributesThatThisMountChanges) {
  foresight.note_step(now);
  CachedAttributes attributes;
  Attributes attr;
  attr.mode = S_IFREG;
  attributes.accept(attr, now, now);
  attributes.foresee(foresight, now);
  attributes.expire(now += seconds(1));
  attributes.use(foresight, now);
  EXPECT_FALSE(attributes.learnt().ever());
  // Nor does an answer to a question from before bring it back.
  attributes.foresee(foresight, now - seconds(1));
  attributes.use(foresight, now);
  EXPECT_FALSE(attributes.learnt().ever());
}

}  // namespace
}  // namespace tusk::client
