// A client that acknowledges all but one packet of each answer, so that the server must keep them whole; and
// those that only look like it.
#include <cstdio>

#include "tests/simulation/vocabulary.h"

namespace tusk::simulation {
namespace {

// Of every body the bytes of `missing`, which may change, never arrive at the client.
void leave_out(SimPair& pair, std::shared_ptr<const Interval> missing) {
  pair.lose(Role::kClient, -1, [missing = std::move(missing)](std::span<const wire::Frame> frames) {
    if (missing->empty()) return false;
    return has<wire::ParityFrame>(frames) || std::ranges::any_of(frames, [&](const auto& frame) {
             const auto* body = std::get_if<wire::BodyFrame>(&frame);
             return body && body->offset < missing->end && missing->begin < body->offset + body->data.size();
           });
  });
}
void leave_out_one_packet(SimPair& pair) {
  leave_out(pair, std::make_shared<Interval>(500 * kKiB, 500 * kKiB + 1));
}

// Something else is asked for, and acknowledged, all the time.
void keep_busy(SimPair& pair) {
  pair.every(50ms, [&pair] {
    if (!pair.client().closed() && !pair.server().closed()) pair.fetch(20 * kKiB);
  });
}

void expect_lost_for_too_long(SimPair& pair, Duration after, Duration before) {
  EXPECT_TRUE(pair.run_until([&] { return pair.server().closed() && pair.client().closed(); }, 5min));
  ASSERT_EQ(pair.traffic().closed().size(), 2u);
  for (const auto& closed : pair.traffic().closed()) {
    EXPECT_EQ(closed.code, ErrorCode::kTimedOut);
    EXPECT_THAT(closed.reason, testing::HasSubstr("does not take a part")) << "the client is told, too";
  }
  std::printf("  ended after %.1f s\n", to_seconds(pair.elapsed()));
  EXPECT_GE(pair.elapsed(), after);
  EXPECT_LE(pair.elapsed(), before);
}

class LeftOut : public testing::TestWithParam<Duration> {};

TEST_P(LeftOut, AnswersThatAreNeverWholeEndTheConnection) {
  SimOptions options = symmetric_path(100 * kMbit, GetParam(), 0, 100ms, 7);
  options.handshake_rtt = GetParam();
  SimPair pair(options);
  leave_out_one_packet(pair);
  keep_busy(pair);
  pair.traffic().stream(kGiB, 32 * kMiB, Kind::kFetch);
  // Three seconds for them to be sent, and a round trip or two until the first loss shows.
  expect_lost_for_too_long(pair, 30s, 33s + 3 * GetParam());
}
INSTANTIATE_TEST_SUITE_P(Paths, LeftOut, testing::Values(1ms, 100ms, 1000ms),
                         [](const auto& rtt) { return "Ms" + std::to_string(rtt.param / Duration(1ms)); });

// Something more of each arrives every few seconds, which does not excuse the rest. So much is left out that
// nine tenths of all packets are lost once nothing new may be asked for: that may be chance for longer.
TEST(LeftOut, AnswersThatArriveBitByBitAreNoBetter) {
  SimPair pair(wan());
  const auto missing = std::make_shared<Interval>(500 * kKiB, 520 * kKiB);
  leave_out(pair, missing);
  pair.every(4s, [missing] { missing->end -= std::min<ByteCount>(1500, missing->size() - 1500); });
  keep_busy(pair);
  pair.traffic().stream(kGiB, 32 * kMiB, Kind::kFetch);
  expect_lost_for_too_long(pair, 30s, 45s);
}

// ---------------------------------------------------------------- those that only look like it

TEST(LeftOut, WhatIsTakenInTheEndIsForgiven) {
  SimPair pair(wan());
  const auto missing = std::make_shared<Interval>(500 * kKiB, 500 * kKiB + 1);
  leave_out(pair, missing);
  pair.schedule(TimePoint(20s), [missing] { *missing = {}; });
  pair.traffic().stream(64 * kMiB, 32 * kMiB, Kind::kFetch);
  expect_well(pair, 30s);
}

void expect_lasts(SimPair& pair, Duration duration) {
  pair.traffic().stream(64 * kGiB, 8 * kMiB, Kind::kFetch);
  pair.run_for(duration);
  EXPECT_THAT(pair.traffic().complaints(), testing::IsEmpty());
  std::printf("  %llu MiB\n", static_cast<unsigned long long>(pair.traffic().bytes_done() >> 20));
  EXPECT_GT(pair.traffic().bytes_done(), 0u);
}

class LossByChance : public testing::TestWithParam<std::tuple<double, Duration>> {};

TEST_P(LossByChance, EndsNothing) {
  const auto [loss, rtt] = GetParam();
  SimOptions options = symmetric_path(10 * kMbit, rtt, loss, 100ms, 11);
  options.handshake_rtt = rtt;
  SimPair pair(options);
  expect_lasts(pair, 10min);
}
INSTANTIATE_TEST_SUITE_P(Paths, LossByChance,
                         testing::Combine(testing::Values(0.01, 0.05, 0.2),
                                          testing::Values<Duration>(10ms, 100ms, 1000ms)),
                         [](const auto& path) {
                           return "Percent" + std::to_string(int(100 * std::get<0>(path.param))) + "Ms" +
                                  std::to_string(std::get<1>(path.param) / Duration(1ms));
                         });

TEST(LossByChance, NorDoOutages) {
  SimPair pair(wan_with([](LinkParameters& link) { link.rate = 10 * kMbit, link.loss = 0.05; }));
  for (Duration begin = 5s; begin < 10min; begin += 32s) {
    const auto change = [&pair](bool outage) {
      pair.change_links(
          [&](auto& to_server, auto& to_client) { to_server.outage = to_client.outage = outage; });
    };
    pair.schedule(TimePoint(begin), [change] { change(true); });
    pair.schedule(TimePoint(begin + 25s), [change] { change(false); });
  }
  expect_lasts(pair, 10min);
}

TEST(LossByChance, NorDoesAClientThatStallsAndGoesOn) {
  SimOptions options = wan_with([](LinkParameters& link) { link.rate = 10 * kMbit, link.loss = 0.05; });
  options.stall_every = 3s;
  options.stall_length = 3s;
  SimPair pair(options);
  expect_lasts(pair, 10min);
}

// All that was on its way is lost, and repairs of it wait for each other for a minute.
TEST(LossByChance, NorDoesALineThatBecomesSlow) {
  SimOptions options = symmetric_path(kGbit, 100ms, 0.01, 100ms, 11);
  options.handshake_rtt = 100ms;
  SimPair pair(options);
  pair.schedule(TimePoint(3s), [&pair] {
    pair.change_links([](auto& to_server, auto& to_client) { to_server.rate = to_client.rate = kMbit; });
  });
  pair.traffic().stream(64 * kMiB, 64 * kMiB, Kind::kFetch);
  expect_lasts(pair, 10min);
}

}  // namespace
}  // namespace tusk::simulation
