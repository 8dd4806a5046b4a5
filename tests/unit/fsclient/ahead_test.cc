// What is fetched ahead of a program: how much, in what order, for how long.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsclient/ahead_window.h"
#include "fsclient/attr_cache.h"
#include "fsclient/foresight.h"
#include "fsclient/inode_table.h"
#include "fsclient/tree_walk.h"

namespace tusk::client {
namespace {

using std::chrono::seconds;

TEST(AheadWindow, GrowsWithWhatIsUsed) {
  AheadWindow window(1000, 10'000);
  EXPECT_EQ(window.room(), 1000u);
  window.begin(600);
  EXPECT_EQ(window.room(), 400u);
  const auto first = window.add(100);
  const auto second = window.add(200);
  window.end(600);
  EXPECT_EQ(window.room(), 700u);
  window.use(first);
  EXPECT_EQ(window.window(), 1400u);
  EXPECT_EQ(window.room(), 1200u);
  window.use(second);
  EXPECT_EQ(window.window(), 2200u);
}

TEST(AheadWindow, StaysFullOfWhatNobodyUses) {
  AheadWindow window(1000, 10'000);
  for (int i = 0; i < 10; ++i) window.add(100);
  EXPECT_EQ(window.room(), 0u);
  EXPECT_FALSE(window.worth_asking());
}

TEST(AheadWindow, CountsWhatWasPassedBy) {
  AheadWindow window(1000, 10'000);
  window.add(300);
  window.add(300);
  const auto third = window.add(300);
  window.use(third);
  EXPECT_EQ(window.room(), window.window());
  window.use(third);  // again: nothing more
  EXPECT_EQ(window.window(), 1000u + AheadWindow::kGrowth * 900);
}

TEST(AheadWindow, HasALimitAndBeginsAnew) {
  AheadWindow window(1000, 2000);
  window.use(window.add(900));
  EXPECT_EQ(window.window(), 2000u);
  const auto old = window.add(2000);
  EXPECT_EQ(window.room(), 0u);
  window.restart();
  EXPECT_EQ(window.room(), 1000u);
  window.use(old);  // of before
  EXPECT_EQ(window.room(), 1000u);
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
