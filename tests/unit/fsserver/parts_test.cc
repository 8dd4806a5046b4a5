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
    for (int i = 0; i < 3000; ++i) ASSERT_TRUE(pool.submit(static_cast<Lane>(i % 3), [&] { ++done; }));
  }
  EXPECT_EQ(done, 3000);
}

TEST(WorkerPool, SlowWorkLeavesThreadsToQuickWork) {
  WorkerPool pool(4);
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  std::counting_semaphore<> started(0);
  const auto wait_for_the_gate = [&started, opened] {
    started.release();
    opened.wait();
  };
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(pool.submit(Lane::kSlow, wait_for_the_gate));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(pool.submit(Lane::kData, wait_for_the_gate));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(started.try_acquire_for(10s));  // all threads but one are taken
  std::promise<void> quick;
  ASSERT_TRUE(pool.submit(Lane::kMetadata, [&] { quick.set_value(); }));
  EXPECT_EQ(quick.get_future().wait_for(10s), std::future_status::ready);
  gate.set_value();
  EXPECT_TRUE(pool.wait_idle(10s));
}

TEST(WorkerPool, RefusesMoreThanItsQueueHolds) {
  WorkerPool pool(2);
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  bool refused = false;
  for (std::size_t i = 0; i < kQueuedTasksMax + 10 && !refused; ++i)
    refused = !pool.submit(Lane::kMetadata, [opened] { opened.wait(); });
  EXPECT_TRUE(refused);
  std::atomic<bool> ran{false};
  pool.submit_beyond_bound(Lane::kData, [&ran] { ran = true; });
  EXPECT_FALSE(pool.wait_idle(1ms));
  gate.set_value();
  EXPECT_TRUE(pool.wait_idle(20s));
  EXPECT_TRUE(ran);
}

TEST(BodyBudget, ServesInTurn) {
  const auto budget = std::make_shared<BodyBudget>(100);
  std::vector<BodyBudget::Reservation> held;
  std::vector<int> order;
  const auto take = [&](int name, ByteCount size) {
    return budget->reserve(size, [&, name](BodyBudget::Reservation reservation) {
      order.push_back(name);
      held.push_back(std::move(reservation));
    });
  };
  EXPECT_TRUE(take(1, 60));
  EXPECT_TRUE(take(2, 60));  // waits
  EXPECT_TRUE(take(3, 10));  // would fit, but comes later
  EXPECT_EQ(order, (std::vector{1}));
  std::exchange(held, {}).clear();
  EXPECT_EQ(order, (std::vector{1, 2, 3}));
  EXPECT_EQ(budget->used(), 70u);
  std::exchange(held, {}).clear();
  EXPECT_EQ(budget->used(), 0u);
}

TEST(BodyBudget, LetsTheTooLargeThroughAlone) {
  const auto budget = std::make_shared<BodyBudget>(100);
  bool started = false;
  EXPECT_TRUE(budget->reserve(1000, [&](BodyBudget::Reservation) { started = true; }));
  EXPECT_TRUE(started);
}

TEST(BodyBudget, RefusesMoreThanMayWait) {
  const auto budget = std::make_shared<BodyBudget>(1);
  std::vector<BodyBudget::Reservation> held;
  ASSERT_TRUE(budget->reserve(
      1, [&](BodyBudget::Reservation reservation) { held.push_back(std::move(reservation)); }));
  for (std::size_t i = 0; i < kParkedReadsMax; ++i)
    ASSERT_TRUE(budget->reserve(1, [](BodyBudget::Reservation) {}));
  EXPECT_FALSE(budget->reserve(1, [](BodyBudget::Reservation) {}));
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
