// When large answers are made.
#include "proto/rpc/bulk_turns.h"

#include <gtest/gtest.h>

namespace tusk::rpc {
namespace {

constexpr ByteCount kMiB = 1 << 20;

class BulkTurnsTest : public testing::Test {
 protected:
  void ask(std::uint64_t name) {
    turns_.enter(
        {.exchange = wire::ExchangeId(name), .reply_capacity = kMiB, .priority = wire::Priority::kBulk});
  }
  // Those that begin now.
  std::vector<std::uint64_t> begun() {
    std::vector<std::uint64_t> names;
    while (const auto next = turns_.next(connection_)) names.push_back(next->exchange.value());
    return names;
  }

  transport::Connection connection_{transport::Role::kServer, {}, TimePoint(), 20ms};
  BulkTurns turns_;
};

TEST_F(BulkTurnsTest, ConcernLargeAnswers) {
  transport::RequestArrived request{.reply_capacity = kMiB, .priority = wire::Priority::kBulk};
  EXPECT_TRUE(BulkTurns::concerns(request));
  request.priority = wire::Priority::kInteractive;
  EXPECT_FALSE(BulkTurns::concerns(request));
  request.priority = wire::Priority::kBackground;
  request.reply_capacity = 1000;
  EXPECT_FALSE(BulkTurns::concerns(request));
}

TEST_F(BulkTurnsTest, BeginInOrderAsFarAsTheLineWillTakeThem) {
  for (std::uint64_t i = 0; i < 20; ++i) ask(i);
  EXPECT_EQ(begun(), (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_TRUE(begun().empty());
  turns_.handle_answered(wire::ExchangeId(3));
  turns_.handle_answered(wire::ExchangeId(0));
  EXPECT_EQ(begun(), (std::vector<std::uint64_t>{8, 9}));
}

TEST_F(BulkTurnsTest, ThoseThatAreCancelledWhileTheyWaitNeverBegin) {
  for (std::uint64_t i = 0; i < 20; ++i) ask(i);
  (void)begun();
  turns_.handle_cancelled(wire::ExchangeId(8));
  turns_.handle_cancelled(wire::ExchangeId(1));
  EXPECT_EQ(begun(), (std::vector<std::uint64_t>{9}));
}

}  // namespace
}  // namespace tusk::rpc
