#include "tests/system/wan/delivery_queue.h"

#include <gtest/gtest.h>

#include <vector>

#include "proto/base/random.h"

namespace tusk::wan {
namespace {

constexpr std::size_t kCapacity = 1000;

std::vector<std::uint32_t> drain(DeliveryQueue& queue) {
  std::vector<std::uint32_t> slots;
  while (!queue.empty()) {
    slots.push_back(queue.front().slot);
    queue.pop();
  }
  return slots;
}

TEST(DeliveryQueue, EmptyIsNeverDue) {
  const DeliveryQueue queue(kCapacity);
  EXPECT_EQ(queue.next_due(), kNever);
}

TEST(DeliveryQueue, EqualTimesKeepTheOrderOfArrival) {
  DeliveryQueue queue(kCapacity);
  for (std::uint32_t slot : {1, 2, 3}) queue.push(TimePoint(5ms), TimePoint(0ms), slot);
  EXPECT_EQ(drain(queue), (std::vector<std::uint32_t>{1, 2, 3}));
}

TEST(DeliveryQueue, APacketHeldBackIsOvertakenAndOneWithAShorterWayOvertakes) {
  DeliveryQueue queue(kCapacity);
  queue.push(TimePoint(15ms), TimePoint(0ms), 1);
  queue.push(TimePoint(6ms), TimePoint(1ms), 2);
  queue.push(TimePoint(7ms), TimePoint(2ms), 3);
  EXPECT_EQ(queue.next_due(), TimePoint(6ms));
  EXPECT_EQ(drain(queue), (std::vector<std::uint32_t>{2, 3, 1}));
}

TEST(DeliveryQueue, AnyMixComesOutSorted) {
  DeliveryQueue queue(kCapacity);
  Random random(5);
  for (int round = 0; round < 50; ++round) {
    while (queue.size() < kCapacity) {
      const TimePoint due(Duration(static_cast<Duration::rep>(random.below(1'000'000'000))));
      queue.push(due, TimePoint(0ms), 0);
    }
    TimePoint before{};
    for (std::size_t i = 0; i < kCapacity / 2; ++i) {
      ASSERT_GE(queue.front().due, before);
      before = queue.front().due;
      queue.pop();
    }
  }
}

TEST(DeliveryQueue, RetimingStretchesWhatStillQueues) {
  DeliveryQueue queue(kCapacity);
  queue.push(TimePoint(11ms), TimePoint(1ms), 1);  // has left the bottleneck already
  queue.push(TimePoint(14ms), TimePoint(4ms), 2);
  queue.push(TimePoint(30ms), TimePoint(4ms), 3);  // held back: in the heap once the next one comes
  queue.push(TimePoint(16ms), TimePoint(6ms), 4);
  queue.retime(support::Retiming(TimePoint(2ms), 1000, 100));
  EXPECT_EQ(queue.front().due, TimePoint(11ms));
  queue.pop();
  EXPECT_EQ(queue.front().due, TimePoint(32ms));
  queue.pop();
  EXPECT_EQ(queue.front().due, TimePoint(48ms));
  EXPECT_EQ(queue.front().slot, 3U);
  queue.pop();
  EXPECT_EQ(queue.front().due, TimePoint(52ms));
  EXPECT_EQ(queue.front().departs_at, TimePoint(42ms));
}

}  // namespace
}  // namespace tusk::wan
