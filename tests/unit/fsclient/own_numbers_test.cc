#include "fsclient/own_numbers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace tusk::client {
namespace {

constexpr std::uint64_t kAll32Bits = 0xffff'ffff;

TEST(OwnNumbers, Fit32BitsWhereTheServersDo) {
  OwnNumbers numbers;
  numbers.saw(2);
  numbers.saw(1'000'000);
  EXPECT_EQ(numbers.take(1), kAll32Bits);
  EXPECT_EQ(numbers.take(2), kAll32Bits - 1);
}

TEST(OwnNumbers, AreWideOnceTheServersAre) {
  OwnNumbers numbers;
  numbers.saw(kAll32Bits + 1);
  EXPECT_EQ(numbers.take(7), OwnNumbers::wide(7));
}

TEST(OwnNumbers, DoNotHeedOtherFileSystemsInTheExport) {
  OwnNumbers numbers;
  numbers.saw((1ull << 63) | 12345);
  EXPECT_EQ(numbers.take(1), kAll32Bits);
}

TEST(OwnNumbers, StayAboveTheServers) {
  OwnNumbers numbers;
  numbers.saw(kAll32Bits - 2);
  EXPECT_EQ(numbers.take(1), kAll32Bits);
  EXPECT_EQ(numbers.take(2), kAll32Bits - 1);
  EXPECT_EQ(numbers.take(3), OwnNumbers::wide(3));
}

TEST(OwnNumbers, YieldToOneThatTheServerTellsLater) {
  OwnNumbers numbers;
  const std::uint64_t own = numbers.take(1);
  EXPECT_FALSE(numbers.collided(own));
  numbers.saw(own);
  EXPECT_TRUE(numbers.collided(own));
  EXPECT_EQ(numbers.take(2), OwnNumbers::wide(2));
}

// Whichever comes first, no number stays both the server's and our own.
TEST(OwnNumbers, AreNotTheServersWhenBothComeAtOnce) {
  for (int round = 0; round < 200; ++round) {
    OwnNumbers numbers;
    std::vector<std::uint64_t> own;
    std::thread taker([&] {
      for (std::uint64_t i = 0; i < 50; ++i) own.push_back(numbers.take(i));
    });
    const std::uint64_t told = kAll32Bits - 25;
    numbers.saw(told);
    taker.join();
    const bool taken = std::ranges::find(own, told) != own.end();
    EXPECT_TRUE(!taken || numbers.collided(told));
  }
}

}  // namespace
}  // namespace tusk::client
