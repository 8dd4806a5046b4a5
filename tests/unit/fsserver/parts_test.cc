// The parts that need no server: worker pool, body budget, compression, handle codec.
#include <atomic>
#include <future>
#include <semaphore>

#include "fsserver/body_budget.h"
#include "fsserver/worker_pool.h"
#include "mount.h"
#include "proto/rpc/compression.h"

namespace tusk::server {
namespace {

TEST(WorkerPool, RunsEverythingBeforeItEnds) {
  std::atomic<int> done{0};
  {
    WorkerPool pool(4);
    for (int i = 0; i < 3000; ++i)
      ASSERT_TRUE(pool.submit(pool.flow("right", "session"), static_cast<Lane>(i % 3), [&] { ++done; }));
  }
  EXPECT_EQ(done, 3000);
}

TEST(WorkerPool, SlowWorkLeavesThreadsToQuickWork) {
  WorkerPool pool(4);
  const auto flow = pool.flow("right", "session");
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  std::counting_semaphore<> started(0);
  const auto wait_for_the_gate = [&started, opened] {
    started.release();
    opened.wait();
  };
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(pool.submit(flow, Lane::kSlow, wait_for_the_gate));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(pool.submit(flow, Lane::kData, wait_for_the_gate));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(started.try_acquire_for(10s));  // all threads but one are taken
  std::promise<void> quick;
  ASSERT_TRUE(pool.submit(flow, Lane::kMetadata, [&] { quick.set_value(); }));
  EXPECT_EQ(quick.get_future().wait_for(10s), std::future_status::ready);
  gate.set_value();
  EXPECT_TRUE(pool.wait_idle(10s));
}

TEST(WorkerPool, RefusesWhoHasTooMuchQueuedAndNobodyElse) {
  WorkerPool pool(2);
  const auto flow = pool.flow("right", "session");
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  bool refused = false;
  for (std::size_t i = 0; i < kQueuedTasksMax + 10 && !refused; ++i)
    refused = !pool.submit(flow, Lane::kMetadata, [opened] { opened.wait(); });
  EXPECT_TRUE(refused);
  std::atomic<bool> ran{false};
  EXPECT_TRUE(pool.submit(pool.flow("right", "another"), Lane::kData, [] {}));
  pool.submit_beyond_bound(flow, Lane::kData, [&ran] { ran = true; });
  EXPECT_FALSE(pool.wait_idle(1ms));
  gate.set_value();
  EXPECT_TRUE(pool.wait_idle(20s));
  EXPECT_TRUE(ran);
}

class BodyBudgetTest : public testing::Test {
 protected:
  using Share = std::shared_ptr<BodyBudget::Share>;
  [[nodiscard]] bool take(int name, const Share& share, ByteCount size) {
    return budget_->reserve(share, size, [this, name](BodyBudget::Reservation reservation) {
      order_.push_back(name);
      held_.emplace(name, std::move(reservation));
    });
  }

  // Those that wait begin then.
  void TearDown() override {
    while (!held_.empty()) std::exchange(held_, {}).clear();
  }
  // What comes next is entered while it ends.
  void give_back(int name) { held_.extract(name); }

  const std::shared_ptr<BodyBudget> budget_ = std::make_shared<BodyBudget>(200, 80);
  const Share one_ = std::make_shared<BodyBudget::Share>();
  const Share other_ = std::make_shared<BodyBudget::Share>();
  const Share third_ = std::make_shared<BodyBudget::Share>();
  std::map<int, BodyBudget::Reservation> held_;
  std::vector<int> order_;
};

TEST_F(BodyBudgetTest, ServesOneClientInTurn) {
  EXPECT_TRUE(take(1, one_, 60));
  EXPECT_TRUE(take(2, one_, 60));  // waits
  EXPECT_TRUE(take(3, one_, 10));  // would fit, but comes later
  EXPECT_EQ(order_, (std::vector{1}));
  give_back(1);
  EXPECT_EQ(order_, (std::vector{1, 2, 3}));
  EXPECT_EQ(budget_->used(), 70u);
  std::exchange(held_, {}).clear();
  EXPECT_EQ(budget_->used(), 0u);
}

TEST_F(BodyBudgetTest, OneClientLeavesRoomForOthers) {
  EXPECT_TRUE(take(1, one_, 50));
  EXPECT_TRUE(take(2, one_, 40));  // more than one may have
  EXPECT_TRUE(take(3, other_, 50));
  EXPECT_EQ(order_, (std::vector{1, 3}));
}

TEST_F(BodyBudgetTest, WhoHoldsLeastIsNextHoweverMuchOthersHaveAskedForBefore) {
  EXPECT_TRUE(take(0, third_, 100));
  for (int i = 1; i < 5; ++i) EXPECT_TRUE(take(i, one_, 10));
  for (int i = 101; i < 104; ++i) EXPECT_TRUE(take(i, other_, 10));
  EXPECT_EQ(order_, (std::vector{0, 1, 2, 3, 101}));
  give_back(0);
  EXPECT_EQ(order_, (std::vector{0, 1, 2, 3, 101, 102, 103, 4}));
}

// By who of them was served longest ago: each of six, of whom four hold one, has its turn.
TEST_F(BodyBudgetTest, OfThoseThatHoldAsMuchEachHasItsTurn) {
  std::vector<Share> clients;
  while (clients.size() < 6) clients.push_back(std::make_shared<BodyBudget::Share>());
  for (int i = 0; i < 30; ++i)
    for (int client = 0; client < 6; ++client)
      EXPECT_TRUE(take(100 * client + i, clients[static_cast<std::size_t>(client)], 50));
  for (std::size_t given = 0; order_.size() < 60; ++given) give_back(order_[given]);
  for (int client = 0; client < 6; ++client)
    EXPECT_GE(std::ranges::count_if(order_, [&](int name) { return name / 100 == client; }), 8) << client;
}

// Else small ones would keep a large one waiting for ever.
TEST_F(BodyBudgetTest, NobodyOvertakesWhoIsNext) {
  EXPECT_TRUE(take(1, one_, 10));
  give_back(1);
  EXPECT_TRUE(take(2, third_, 150));
  EXPECT_TRUE(take(3, other_, 60));  // waits, and was never served
  EXPECT_TRUE(take(4, one_, 10));
  EXPECT_EQ(order_, (std::vector{1, 2}));
  give_back(2);
  EXPECT_EQ(order_, (std::vector{1, 2, 3, 4}));
}

// A client that keeps its answers for long keeps them from itself.
TEST_F(BodyBudgetTest, ClientsThatGiveNothingBackLeaveSomethingToWhoComesThen) {
  int name = 0;
  for (ByteCount clients = 1; clients <= 12; ++clients) {
    const auto share = std::make_shared<BodyBudget::Share>();
    const std::size_t before = order_.size();
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(take(++name, share, 1));
    EXPECT_GT(order_.size(), before) << "the " << clients << "th";
    EXPECT_GE(200 - budget_->used(), 200 / (clients + 1));
  }
}

TEST_F(BodyBudgetTest, LetsTheTooLargeThroughAlone) {
  EXPECT_TRUE(take(1, one_, 1000));
  EXPECT_EQ(order_, (std::vector{1}));
}

TEST_F(BodyBudgetTest, RefusesMoreThanMayWait) {
  ASSERT_TRUE(take(0, one_, 80));
  for (std::size_t i = 0; i < kParkedReadsMax; ++i) ASSERT_TRUE(take(1, one_, 1));
  EXPECT_FALSE(take(2, one_, 1));
  EXPECT_TRUE(take(3, other_, 1));
}

// What is given back is mostly given back by another thread.
TEST_F(BodyBudgetTest, ServesThreadsAtOnce) {
  std::atomic<int> begun = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      const auto share = std::make_shared<BodyBudget::Share>();
      for (int i = 0; i < 1000; ++i)
        EXPECT_TRUE(budget_->reserve(share, 40, [&](BodyBudget::Reservation) { ++begun; }));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(begun, 4000);
  EXPECT_EQ(budget_->used(), 0u);
}

TEST(Compression, OnlyWhenItPays) {
  EXPECT_FALSE(rpc::compress_if_it_helps(as_byte_span("short")).has_value());
  const std::string zeros(1 << 20, '\0');
  const auto frame = rpc::compress_if_it_helps(as_byte_span(zeros));
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(as_text(rpc::decompress(frame->bytes, zeros.size()).value().bytes), zeros);
}

TEST(Compression, RefusesEveryCutAndEveryFlip) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "line " + std::to_string(i) + "\n";
  const SharedBytes frame = rpc::compress_if_it_helps(as_byte_span(text)).value();
  for (std::size_t cut = 0; cut < frame.size(); cut += 7)
    EXPECT_FALSE(rpc::decompress(frame.subspan(0, cut).bytes, text.size()).has_value());
  EXPECT_FALSE(rpc::decompress(frame.bytes, text.size() - 1).has_value());
  EXPECT_FALSE(rpc::decompress(frame.bytes, text.size() + 1).has_value());
  for (std::size_t at = 0; at < frame.size(); at += 3) {
    std::vector<std::byte> bent(frame.bytes.begin(), frame.bytes.end());
    bent[at] ^= std::byte{0x10};
    (void)rpc::decompress(bent, text.size());  // any answer, but no crash and no byte too many
  }
}

TEST(HandleCodec, ReadsBackItsOwn) {
  const FileIdentity root{.kind = FileIdentity::Kind::kOpenable, .device = 0, .type = 1, .bytes = "root"};
  const HandleCodec codec(test_secret(), "data", root);
  FileIdentity identity{.kind = FileIdentity::Kind::kOpenable, .device = 77, .type = -3, .bytes = "\x01\x02"};
  EXPECT_EQ(codec.decode(codec.encode(identity)).value(), identity);
  identity.bytes.assign(FileIdentity::kBytesMax, 'x');
  EXPECT_EQ(codec.encode(identity).size(), kHandleBytesMax);
  EXPECT_EQ(codec.decode(codec.encode(identity)).value(), identity);
  EXPECT_FALSE(HandleCodec(test_secret(), "other", root).decode(codec.encode(identity)).has_value());
  EXPECT_FALSE(
      HandleCodec(crypto::Secret::random(), "data", root).decode(codec.encode(identity)).has_value());
}

}  // namespace
}  // namespace tusk::server
