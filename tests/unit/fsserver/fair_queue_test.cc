// Whose work is next, and what a right may have.
#include "fsserver/fair_queue.h"

#include <chrono>
#include <future>
#include <map>

#include "fsserver/rights_quota.h"
#include "fsserver/worker_pool.h"
#include "mount.h"

namespace tusk::server {
namespace {

constexpr LaneSet kAll{true, true, true, true};

class FairQueueTest : public testing::Test {
 protected:
  void add(const FairQueue::FlowPointer& flow, const std::string& name, Lane lane = Lane::kData) {
    queue_.push_back(flow, lane, [this, name] { ran_.push_back(name); });
  }
  // What ran, with what each task cost.
  void run(std::size_t tasks, Cost cost, LaneSet allowed = kAll) {
    for (std::size_t i = 0; i < tasks; ++i) {
      auto next = queue_.pop(allowed, 8);
      if (!next) return;
      next->task();
      queue_.finished(*next->flow, cost);
    }
  }
  [[nodiscard]] long count(const std::string& name) const { return std::ranges::count(ran_, name); }

  FairQueue queue_;
  std::vector<std::string> ran_;
};

TEST_F(FairQueueTest, OneTaskOfAnotherRightPassesThousands) {
  const auto hostile = queue_.flow("hostile", "1");
  for (int i = 0; i < 4000; ++i) add(hostile, "much");
  run(10, 50'000);
  add(queue_.flow("honest", "1"), "little");
  run(2, 50'000);
  EXPECT_EQ(count("little"), 1);
}

TEST_F(FairQueueTest, RightsShareEquallyHoweverManySessionsTheyHave) {
  std::vector<FairQueue::FlowPointer> flows{queue_.flow("one", "only")};
  for (int i = 0; i < 20; ++i) flows.push_back(queue_.flow("many", std::to_string(i)));
  for (const auto& flow : flows)
    for (int i = 0; i < 1000; ++i) add(flow, flow == flows.front() ? "one" : "many");
  run(1000, kTurnCost);
  EXPECT_NEAR(static_cast<double>(count("one")), 500, 25);
}

TEST_F(FairQueueTest, SessionsOfARightShareEquallyByCost) {
  const auto dear = queue_.flow("right", "dear");
  const auto cheap = queue_.flow("right", "cheap");
  for (int i = 0; i < 10'000; ++i) {
    add(dear, "dear");
    add(cheap, "cheap");
  }
  std::map<std::string, Cost> cost;
  for (int i = 0; i < 5000; ++i) {
    auto next = queue_.pop(kAll, 8);
    next->task();
    const Cost spent = ran_.back() == "dear" ? 400 : 20;
    cost[ran_.back()] += spent + kTaskCost;
    queue_.finished(*next->flow, spent);
  }
  EXPECT_NEAR(static_cast<double>(cost["dear"]), static_cast<double>(cost["cheap"]),
              static_cast<double>(3 * kTurnCost));
}

TEST_F(FairQueueTest, WhatYieldedGoesOnBeforeTheRestOfItsFlow) {
  const auto flow = queue_.flow("right", "session");
  add(flow, "second");
  queue_.push_front(flow, Lane::kData, [this] { ran_.emplace_back("first"); });
  run(2, 0);
  EXPECT_EQ(ran_, (std::vector<std::string>{"first", "second"}));
}

TEST_F(FairQueueTest, ALaneThatIsFullHoldsUpNoOther) {
  for (int i = 0; i < 100; ++i) add(queue_.flow("right", std::to_string(i)), "slow", Lane::kSlow);
  const auto other = queue_.flow("right", "other");
  add(other, "quick", Lane::kMetadata);
  run(5, 0, {true, true, true, false});
  EXPECT_EQ(ran_, std::vector<std::string>{"quick"});
  EXPECT_EQ(queue_.size(), 100u - 0u);
}

TEST_F(FairQueueTest, NoRightRunsMoreThanItMay) {
  const auto one = queue_.flow("one", "1");
  for (int i = 0; i < 10; ++i) add(one, "one");
  std::vector<FairQueue::Next> running;
  for (int i = 0; i < 3; ++i) running.push_back(*queue_.pop(kAll, 3));
  EXPECT_FALSE(queue_.pop(kAll, 3));
  add(queue_.flow("other", "1"), "other");
  auto next = queue_.pop(kAll, 3);
  ASSERT_TRUE(next);
  next->task();
  EXPECT_EQ(ran_, std::vector<std::string>{"other"});
}

TEST(WorkerPool, ATurnIsOverOnlyWhenOthersWait) {
  WorkerPool pool(2);
  const auto flow = pool.flow("right", "session");
  std::promise<std::pair<bool, bool>> seen;
  std::promise<void> blocked;
  ASSERT_TRUE(pool.submit(flow, Lane::kMetadata, [&] { blocked.get_future().wait(); }));
  ASSERT_TRUE(pool.submit(flow, Lane::kMetadata, [&] {
    this_turn().spend(kTurnCost);
    const bool alone = this_turn().over();
    EXPECT_TRUE(pool.submit(flow, Lane::kMetadata, [] {}));
    seen.set_value({alone, this_turn().over()});
  }));
  EXPECT_EQ(seen.get_future().get(), std::pair(false, true));
  blocked.set_value();
  EXPECT_TRUE(pool.wait_idle(10s));
}

TEST(Quota, ARightThatTakesAllItCanLeavesTheNextItsPart) {
  const auto pool = std::make_shared<QuotaPool>(4096);
  std::vector<Quota::Place> taken;
  std::size_t least = 4096;
  for (int right = 0; right < 10; ++right) {
    const auto quota = std::make_shared<Quota>(pool);
    std::size_t own = 0;
    for (auto place = quota->take(); place; place = quota->take(), ++own) taken.push_back(std::move(*place));
    least = std::min(least, own);
    if (right == 0) EXPECT_EQ(own, 4096 / 16 * 9u);
  }
  EXPECT_GE(least, 30u);
}

TEST(Quota, WhatIsGivenBackOthersMayTake) {
  const auto pool = std::make_shared<QuotaPool>(4);
  const auto one = std::make_shared<Quota>(pool);
  const auto other = std::make_shared<Quota>(pool);
  auto first = one->take(2);
  ASSERT_TRUE(first);
  EXPECT_FALSE(one->take());
  auto second = other->take();
  ASSERT_TRUE(second);
  EXPECT_FALSE(other->take());
  first.reset();
  EXPECT_TRUE(other->take());
}

}  // namespace
}  // namespace tusk::server
