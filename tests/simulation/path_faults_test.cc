// What a path can do to packets, one thing at a time: the bytes arrive all the same, in time, and little
// is sent twice.
#include "tests/simulation/vocabulary.h"

namespace tusk::simulation {
namespace {

constexpr ByteCount kFaultyBytes = 16 * kMiB;

// 16 MiB each way in `times` of what the line alone would take; returns the world for more questions.
void expect_fast(SimPair& pair, double times) {
  stream_both_ways(pair, kFaultyBytes);
  expect_well(pair, from_seconds(times * to_seconds(at_full_speed(kFaultyBytes))) + 1s);
}

TEST(PathFaults, NoneNeedNoRepair) {
  SimPair pair(wan());
  expect_fast(pair, 1.3);
  EXPECT_EQ(pair.client().stats().packets_spurious, 0u);
}

class RandomLoss : public testing::TestWithParam<double> {};

TEST_P(RandomLoss, CostsLittleMoreThanItself) {
  SimPair pair(wan_with([](LinkParameters& link) { link.loss = GetParam(); }));
  expect_fast(pair, 1.4 + 2 * GetParam());
  // A queue overrun at the start-up costs a little as well.
  EXPECT_LT(sent_twice(pair, Role::kServer, kFaultyBytes), GetParam() * 1.3 + 0.12);
}
INSTANTIATE_TEST_SUITE_P(Shares, RandomLoss, testing::Values(0.001, 0.01, 0.05), [](const auto& share) {
  return "Permille" + std::to_string(int(share.param * 1000));
});

TEST(PathFaults, LossInBursts) {
  SimPair pair(wan_with([](LinkParameters& link) {
    link.burst_loss = 0.02;
    link.burst_length = 12;
  }));
  expect_fast(pair, 1.6);
}

TEST(PathFaults, ReorderingIsNotTakenForLoss) {
  SimPair pair(wan_with([](LinkParameters& link) { link.reorder = 0.05; }));
  expect_fast(pair, 1.4);
  // The window is learnt from the first mistakes.
  const auto stats = pair.server().stats();
  EXPECT_LT(static_cast<double>(stats.packets_spurious) / static_cast<double>(stats.packets_sent), 0.005);
}

TEST(PathFaults, LittleJitterIsNotTakenForAQueue) {
  SimPair pair(wan_with([](LinkParameters& link) { link.jitter = 1ms; }));
  expect_fast(pair, 1.4);
}

TEST(PathFaults, MuchJitterSlowsButDoesNotStall) {
  // A delay that wanders by half a round trip looks like a queue.
  SimPair pair(wan_with([](LinkParameters& link) { link.jitter = 10ms; }));
  expect_fast(pair, 3);
}

TEST(PathFaults, DuplicatesAreHarmless) {
  SimPair pair(wan_with([](LinkParameters& link) { link.duplicate = 0.2; }));
  expect_fast(pair, 1.4);
}

TEST(PathFaults, DamagedPacketsCountAsLost) {
  SimPair pair(wan_with([](LinkParameters& link) { link.corrupt = 0.01; }));
  expect_fast(pair, 1.5);
}

TEST(PathFaults, EverythingAtOnce) {
  SimPair pair(wan_with([](LinkParameters& link) {
    link.loss = 0.01;
    link.burst_loss = 0.01;
    link.reorder = 0.03;
    link.jitter = 5ms;
    link.duplicate = 0.03;
    link.corrupt = 0.005;
  }));
  expect_fast(pair, 2.5);
}

TEST(PathFaults, AnOutageIsSurvived) {
  SimPair pair(wan());
  pair.traffic().stream(4 * kFaultyBytes, 8 * kMiB, Kind::kFetch);
  pair.schedule(TimePoint(2s), [&] {
    pair.change_links([](auto& to_server, auto& to_client) { to_server.outage = to_client.outage = true; });
  });
  pair.schedule(TimePoint(7s), [&] {
    pair.change_links([](auto& to_server, auto& to_client) { to_server.outage = to_client.outage = false; });
  });
  // 5.4 s of transfer, 5 s of nothing, and a little to notice that it is over.
  expect_well(pair, 5s + at_full_speed(4 * kFaultyBytes) + 4s);
  EXPECT_LT(sent_twice(pair, Role::kServer, 4 * kFaultyBytes), 0.12);
}

TEST(PathFaults, AnOutageOfTheWayBackIsSurvived) {
  SimPair pair(wan());
  pair.traffic().stream(2 * kFaultyBytes, 8 * kMiB, Kind::kFetch);
  pair.schedule(TimePoint(1s),
                [&] { pair.change_links([](auto& to_server, auto&) { to_server.outage = true; }); });
  pair.schedule(TimePoint(4s),
                [&] { pair.change_links([](auto& to_server, auto&) { to_server.outage = false; }); });
  expect_well(pair, 3s + at_full_speed(2 * kFaultyBytes) + 4s);
}

TEST(PathFaults, TheLastPacketLostIsFoundByAProbe) {
  // Nothing follows the tail to reveal the gap: only the probe timer can.
  SimPair pair(wan());
  // 60 KiB are one flight: a round trip, the probe's timeout (a young connection's variation is still half
  // a round trip), half a round trip.
  pair.lose(Role::kClient, 1, ends_at(60 * kKiB));
  pair.fetch(60 * kKiB);
  expect_well(pair, 600ms);
  EXPECT_LT(pair.elapsed(), 420ms);
}

TEST(PathFaults, TheLastPacketOfARequestLostIsFoundByAProbe) {
  SimPair pair(wan());
  pair.lose(Role::kServer, 1, ends_at(100 * kKiB));
  pair.store(100 * kKiB);
  expect_well(pair, 600ms);
  EXPECT_LT(pair.elapsed(), 400ms);
}

TEST(PathFaults, AProbeLostIsProbedAgain) {
  SimPair pair(wan());
  pair.lose(Role::kClient, 4, carries_data);
  pair.fetch(1000);
  expect_well(pair, 3s);
}

TEST(PathFaults, LostAcknowledgementsAreMadeUpByLaterOnes) {
  SimPair pair(wan());
  pair.schedule(TimePoint(500ms), [&] { pair.lose(Role::kServer, 12, carries_only_ack); });
  pair.traffic().stream(kFaultyBytes, 8 * kMiB, Kind::kFetch);
  expect_well(pair, 2 * at_full_speed(kFaultyBytes) + 1s);
  EXPECT_LT(sent_twice(pair, Role::kServer, kFaultyBytes), 0.15);
}

TEST(PathFaults, MostAcknowledgementsLostStillSuffice) {
  SimOptions options = wan();
  options.path.to_server.loss = 0.5;
  SimPair pair(options);
  pair.traffic().stream(kFaultyBytes, 8 * kMiB, Kind::kFetch);
  expect_well(pair, 3 * at_full_speed(kFaultyBytes) + 2s);
  EXPECT_LT(sent_twice(pair, Role::kServer, kFaultyBytes), 0.25);
}

TEST(PathFaults, AReturnPathOfOnePercentSuffices) {
  SimOptions options = wan();
  options.path.to_server.rate = options.path.to_client.rate / 100;
  options.path.to_server.queue_time = 200ms;
  SimPair pair(options);
  pair.traffic().stream(kFaultyBytes, 8 * kMiB, Kind::kFetch);
  expect_well(pair, from_seconds(1.5 * to_seconds(at_full_speed(kFaultyBytes))) + 1s);
}

TEST(PathFaults, ALongerPathIsNotTakenForAQueueForEver) {
  SimPair pair(wan());
  pair.traffic().stream(8 * kFaultyBytes, 16 * kMiB, Kind::kFetch);
  pair.schedule(TimePoint(2s), [&] {
    pair.change_links([](auto& to_server, auto& to_client) { to_server.delay = to_client.delay = 60ms; });
  });
  expect_well(pair, 3 * at_full_speed(8 * kFaultyBytes));
}

TEST(PathFaults, ACollapsedPathIsFollowed) {
  SimPair pair(wan());
  pair.traffic().stream(kFaultyBytes, 8 * kMiB, Kind::kFetch);
  pair.schedule(TimePoint(500ms), [&] {
    pair.change_links([](auto&, auto& to_client) {
      to_client.rate = 10 * kMbit;
      to_client.queue_time = 400ms;
    });
  });
  expect_well(pair, 2 * at_full_speed(kFaultyBytes, 10 * kMbit) + 2s);
}

TEST(PathFaults, ARisenPathIsUsed) {
  SimOptions options = wan();
  options.path.to_client.rate = 10 * kMbit;
  SimPair pair(options);
  pair.traffic().stream(4 * kFaultyBytes, 16 * kMiB, Kind::kFetch);
  pair.schedule(TimePoint(3s),
                [&] { pair.change_links([](auto&, auto& to_client) { to_client.rate = 100 * kMbit; }); });
  expect_well(pair, 3s + 2 * at_full_speed(4 * kFaultyBytes) + 3s);
}

}  // namespace
}  // namespace tusk::simulation
