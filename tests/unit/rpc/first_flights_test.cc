// Who gets a handshake when there are more first flights than time: turns between kinds of proof and sources,
// a rate for each source, a share of the thread's time.
#include "proto/rpc/first_flights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "proto/rpc/source_rates.h"
#include "proto/rpc/time_share.h"
#include "proto/rpc/unattached.h"

namespace tusk::rpc {
namespace {

const TimePoint kFlightsStart{std::chrono::hours(1)};

io::Address host(int number, std::uint16_t port = 1) {
  return io::Address::v4({10, 0, static_cast<std::uint8_t>(number >> 8), static_cast<std::uint8_t>(number)},
                         port);
}

class FirstFlightsTest : public testing::Test {
 protected:
  bool add(Proof proof, const io::Address& from, TimePoint now = kFlightsStart) {
    wire::ConnectionIdBytes original;
    original.bytes[0] = static_cast<std::byte>(++last_);
    original.bytes[1] = static_cast<std::byte>(last_ >> 8);
    std::array<std::byte, 10> bytes{};
    return flights.add(proof, 0, {from, {}, bytes, 0}, original, now);
  }
  std::string turn(TimePoint now = kFlightsStart) {
    const auto next = flights.next(now);
    if (!next) return "";
    return std::to_string(static_cast<int>(next->proof)) + " " + next->flight.from.to_string();
  }

  FirstFlights flights{1};
  unsigned last_ = 0;
};

TEST_F(FirstFlightsTest, SourcesTakeTurns) {
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(add(Proof::kRetry, host(1)));
  EXPECT_TRUE(add(Proof::kRetry, host(2)));
  EXPECT_EQ(turn(), "1 10.0.0.1:1");
  EXPECT_EQ(turn(), "1 10.0.0.2:1");
  EXPECT_EQ(turn(), "1 10.0.0.1:1");
}

TEST_F(FirstFlightsTest, KindsOfProofTakeTurnsBeforeSources) {
  for (int i = 0; i < 60; ++i) EXPECT_TRUE(add(Proof::kEarlier, host(i)));
  EXPECT_TRUE(add(Proof::kNone, host(100)));
  EXPECT_TRUE(add(Proof::kAdmitted, host(101)));
  std::vector<std::string> first;
  for (int i = 0; i < 4; ++i) first.push_back(turn());
  EXPECT_THAT(first, testing::Contains("0 10.0.0.100:1"));
  EXPECT_THAT(first, testing::Contains("3 10.0.0.101:1"));
}

TEST_F(FirstFlightsTest, ASourceHasFewPlacesAndARepetitionTakesNone) {
  for (std::size_t i = 0; i < FirstFlights::kOfSourceMax; ++i) EXPECT_TRUE(add(Proof::kRetry, host(1)));
  EXPECT_FALSE(add(Proof::kRetry, host(1)));
  EXPECT_TRUE(add(Proof::kRetry, host(2)));
  last_ -= 1;
  EXPECT_TRUE(add(Proof::kRetry, host(2)));
  EXPECT_EQ(flights.count(), FirstFlights::kOfSourceMax + 1);
}

TEST_F(FirstFlightsTest, WhatWaitsIsBounded) {
  for (int source = 0; source < 1000; ++source)
    for (int i = 0; i < 20; ++i) (void)add(static_cast<Proof>(source % 4), host(source));
  EXPECT_LE(flights.count(), kProofs * FirstFlights::kSourcesMax * FirstFlights::kOfSourceMax);
  EXPECT_TRUE(add(Proof::kRetry, host(2000))) << "a newcomer finds a place";
}

TEST_F(FirstFlightsTest, AnOldOneIsNotServed) {
  EXPECT_TRUE(add(Proof::kRetry, host(1)));
  EXPECT_TRUE(add(Proof::kRetry, host(2), kFlightsStart + 3s));
  EXPECT_EQ(turn(kFlightsStart + 3s), "1 10.0.0.2:1");
  EXPECT_TRUE(flights.empty());
}

TEST(SourceRatesTest, LimitASourceAndNoOther) {
  SourceRates rates(10, 20, 1);
  const auto count = [&](const Source& source, Proof proof, TimePoint now) {
    int admitted = 0;
    for (int i = 0; i < 1000; ++i) admitted += rates.admit(source, proof, now);
    return admitted;
  };
  EXPECT_EQ(count(Source(host(1)), Proof::kRetry, kFlightsStart), 20);
  EXPECT_EQ(count(Source(host(1, 9)), Proof::kRetry, kFlightsStart), 0) << "ports are free";
  EXPECT_EQ(count(Source(host(1)), Proof::kEarlier, kFlightsStart), 20);
  EXPECT_EQ(count(Source(host(2)), Proof::kRetry, kFlightsStart), 20);
  EXPECT_EQ(count(Source(host(1)), Proof::kRetry, kFlightsStart + 1s), 10);
}

TEST(SourceRatesTest, OneIpv6NetworkIsOneSource) {
  const Source first(*io::parse("[2001:db8::1]:1")), second(*io::parse("[2001:db8::ffff:1]:2"));
  EXPECT_EQ(first, second);
  EXPECT_NE(first, Source(*io::parse("[2001:db8:0:1::1]:1")));
  EXPECT_NE(Source(host(1)), Source(host(2)));
}

TEST(TimeShareTest, TakesItsShareAndNoMore) {
  TimeShare share(10ms);
  TimePoint now = kFlightsStart;
  Duration taken{};
  for (int i = 0; i < 20'000; ++i, now += 100us) {
    share.earn(now, 0.1);
    if (!share.affordable()) continue;
    share.pay(1400us);
    taken += 1400us;
  }
  EXPECT_NEAR(std::chrono::duration<double>(taken).count(), 0.21, 0.005) << "a tenth of 2 s, and 10 ms";
  share.pay(50ms);
  share.earn(now, 0.5);
  EXPECT_FALSE(share.affordable());
  const TimePoint then = share.affordable_at();
  share.earn(then, 0.5);
  EXPECT_TRUE(share.affordable());
}

TEST(TimeShareTest, OwesNoMoreThanItMaySave) {
  TimeShare share(10ms);
  share.earn(kFlightsStart, 0.1);
  for (int i = 0; i < 10'000; ++i) share.pay(400us);
  EXPECT_FALSE(share.affordable());
  EXPECT_LE(share.affordable_at() - kFlightsStart, 101ms);
}

TEST(UnattachedTest, ASourceLosesItsOwnAndTheLargestLosesFirst) {
  Unattached unattached;
  std::uint64_t last = 0;
  const auto enter = [&](int source) { return unattached.enter(ConnectionId(++last), Source(host(source))); };
  enter(2);
  for (std::size_t i = 0; i < Unattached::kOfSourceMax; ++i) enter(1);
  EXPECT_EQ(unattached.take_surplus(Source(host(1))), std::nullopt);
  enter(1);
  EXPECT_EQ(unattached.take_surplus(Source(host(1))), ConnectionId(2));
  EXPECT_EQ(unattached.take_oldest(), ConnectionId(3)) << "not that of the other source, which is older";
  EXPECT_EQ(unattached.take_surplus(Source(host(2))), std::nullopt);
}

}  // namespace
}  // namespace tusk::rpc
