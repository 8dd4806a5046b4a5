// A direction between two ends in memory, in virtual time.
#include "tests/system/wan/direction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

namespace tusk::wan {
namespace {

constexpr TimePoint kStart{1s};
constexpr std::size_t kMtu = 1500;
constexpr ByteCount kMemory = 1 << 20;

using Bytes = std::vector<std::byte>;

struct MemorySource : PacketSource {
  std::deque<Bytes> packets;

  std::size_t receive(std::span<std::byte> buffer) override {
    if (packets.empty()) return 0;
    const Bytes packet = packets.front();
    packets.pop_front();
    std::ranges::copy(packet, buffer.begin());
    return packet.size();
  }
  void add(int count, std::size_t size = 1000) {
    for (int i = 0; i < count; ++i) packets.emplace_back(size, static_cast<std::byte>(i));
  }
};

struct MemorySink : PacketSink {
  std::vector<Bytes> packets;
  bool refusing = false;

  bool send(std::span<const std::byte> packet) override {
    if (!refusing) packets.emplace_back(packet.begin(), packet.end());
    return !refusing;
  }
};

struct Ends {
  MemorySource source;
  MemorySink sink;
};

ReadClock at(TimePoint now) {
  return [now] { return now; };
}

TEST(Direction, DeliversWhenDueAndSaysWhenThatIs) {
  Ends ends;
  Direction direction({.delay = 20ms}, 1, kMtu, kMemory);
  ends.source.add(3);
  const Direction::Pumped pumped = direction.pump(at(kStart), ends.source, ends.sink);
  EXPECT_EQ(pumped.handled, 3U);
  EXPECT_EQ(pumped.next_due, kStart + 20ms);
  EXPECT_EQ(direction.statistics(kStart).under_way, 3U);
  direction.pump(at(kStart + 20ms - 1ns), ends.source, ends.sink);
  EXPECT_TRUE(ends.sink.packets.empty());
  EXPECT_EQ(direction.pump(at(kStart + 20ms), ends.source, ends.sink).next_due, kNever);
  ASSERT_EQ(ends.sink.packets.size(), 3U);
  EXPECT_EQ(ends.sink.packets[2], Bytes(1000, std::byte{2}));
}

// A busy machine: the processor is somewhere else while packets are taken in, of which the last came then.
TEST(Direction, WhatCameDuringItHasTheWholeDelay) {
  Ends ends;
  Direction direction({.delay = 20ms}, 1, kMtu, kMemory);
  ends.source.add(2);
  TimePoint now = kStart;
  direction.pump([&] { return std::exchange(now, now + 7ms); }, ends.source, ends.sink);
  direction.pump(at(kStart + 7ms + 20ms), ends.source, ends.sink);
  EXPECT_EQ(ends.sink.packets.size(), 1U);
  direction.pump(at(kStart + 14ms + 20ms), ends.source, ends.sink);
  EXPECT_EQ(ends.sink.packets.size(), 2U);
}

TEST(Direction, StopsAtABatchAndAsksToBeCalledAgain) {
  Ends ends;
  Direction direction({}, 1, kMtu, kMemory);
  ends.source.add(Direction::kBatch + 1);
  EXPECT_TRUE(direction.pump(at(kStart), ends.source, ends.sink).more);
  EXPECT_TRUE(direction.pump(at(kStart), ends.source, ends.sink).more);
  EXPECT_FALSE(direction.pump(at(kStart), ends.source, ends.sink).more);
  EXPECT_EQ(ends.sink.packets.size(), Direction::kBatch + 1);
}

TEST(Direction, DuplicatesAreWholePackets) {
  Ends ends;
  Direction direction({.duplicate = 1}, 1, kMtu, kMemory);
  ends.source.add(2);
  direction.pump(at(kStart), ends.source, ends.sink);
  direction.pump(at(kStart), ends.source, ends.sink);
  ASSERT_EQ(ends.sink.packets.size(), 4U);
  EXPECT_EQ(ends.sink.packets[0], ends.sink.packets[1]);
  EXPECT_EQ(ends.sink.packets[3], Bytes(1000, std::byte{1}));
}

TEST(Direction, WithoutMemoryPacketsAreLostAndCounted) {
  Ends ends;
  Direction direction({.delay = 1s}, 1, kMtu, 4 * 1536);
  ends.source.add(10);
  direction.pump(at(kStart), ends.source, ends.sink);
  const DirectionStatistics statistics = direction.statistics(kStart);
  EXPECT_EQ(statistics.under_way, 3U);  // one slot is for receiving
  EXPECT_EQ(statistics.overflowed, 7U);
  direction.pump(at(kStart + 1s), ends.source, ends.sink);
  EXPECT_EQ(ends.sink.packets.size(), 3U);
}

TEST(Direction, CountsWhatTheSinkRefuses) {
  Ends ends;
  ends.sink.refusing = true;
  Direction direction({}, 1, kMtu, kMemory);
  ends.source.add(5);
  direction.pump(at(kStart), ends.source, ends.sink);
  direction.pump(at(kStart), ends.source, ends.sink);
  EXPECT_EQ(direction.statistics(kStart).refused, 5U);
  EXPECT_EQ(direction.statistics(kStart).delivered_packets, 0U);
}

TEST(Direction, AChangedRateMovesThePacketsInTheQueue) {
  Ends ends;
  Direction direction({.rate = 8'000'000}, 1, kMtu, kMemory);  // a packet a millisecond
  ends.source.add(10);
  direction.pump(at(kStart), ends.source, ends.sink);
  EXPECT_EQ(direction.statistics(kStart).bottleneck_free, kStart + 10ms);
  direction.change(kStart, {.rate = 80'000'000});
  direction.pump(at(kStart + 1ms), ends.source, ends.sink);
  EXPECT_EQ(ends.sink.packets.size(), 10U);
}

}  // namespace
}  // namespace tusk::wan
