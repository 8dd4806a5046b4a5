// Many exchanges: small ones by the thousand, cancelled ones, more than credit allows, both ways at once.
#include "tests/simulation/vocabulary.h"

namespace tusk::simulation {
namespace {

// Keeps `parallel` calls of random small sizes going until `total` are done.
class SmallCalls {
 public:
  SmallCalls(SimWorld& world, int total, int parallel) : world_(world), left_(total) {
    for (int i = 0; i < parallel; ++i) next();
  }

 private:
  void next() {
    if (left_-- <= 0) return;
    Random& random = world_.random();
    world_.traffic().call({random.chance(0.5) ? Kind::kFetch : Kind::kStore, random.below(4096),
                           wire::Priority::kInteractive, SimTraffic::kHeaderMin + random.below(300),
                           random.chance(0.1) ? Role::kServer : Role::kClient, [this] { next(); }});
  }

  SimWorld& world_;
  int left_;
};

TEST(Load, ThousandsOfSmallExchanges) {
  SimPair pair(wan());
  const SmallCalls calls(pair, 20'000, 2'000);
  // Ten rounds of 2000 calls, of 40 ms each, and 20 MiB for each direction.
  expect_well(pair, 4s);
  EXPECT_EQ(pair.traffic().calls_done(), 20'000u);
}

TEST(Load, ThousandsOfSmallExchangesOverALossyPath) {
  SimPair pair(wan_with([](LinkParameters& link) {
    link.loss = 0.02;
    link.reorder = 0.02;
    link.duplicate = 0.02;
  }));
  const SmallCalls calls(pair, 20'000, 2'000);
  expect_well(pair, 6s);
}

TEST(Load, MoreExchangesThanThePeerGrantsWait) {
  SimOptions options = wan();
  options.connection.credit.exchanges = 16;
  SimPair pair(options);
  for (int i = 0; i < 2'000; ++i) pair.fetch(100, wire::Priority::kInteractive);
  // At least one round trip for each sixteen, at most two.
  expect_well(pair, 2000 / 16 * 2 * 45ms);
  EXPECT_GT(pair.elapsed(), 2000 / 16 * 40ms / 2);
}

TEST(Load, LargeWritesUseUpTheCreditAndGoOn) {
  SimOptions options = wan_with([](LinkParameters& link) { link.loss = 0.01; });
  options.connection.credit.request_bytes = 5 * kMiB;
  SimPair pair(options);
  for (int i = 0; i < 10; ++i) pair.store(4 * kMiB);
  expect_well(pair, 4 * at_full_speed(40 * kMiB));
  // What waits for credit is not the transport's yet.
  EXPECT_LT(pair.held_max(), 10 * kMiB);
}

TEST(Load, HeldBytesStayWithinTheTrafficsWindow) {
  SimPair pair(wan());
  stream_both_ways(pair, 64 * kMiB, 4 * kMiB);
  expect_well(pair, 2 * at_full_speed(64 * kMiB));
  EXPECT_LT(pair.held_max(), 2 * 4 * kMiB + 2 * kMiB);
}

TEST(Load, LongHeadersTravelInPieces) {
  SimPair pair(wan_with([](LinkParameters& link) {
    link.loss = 0.02;
    link.reorder = 0.1;
  }));
  for (int i = 0; i < 50; ++i)
    pair.traffic().call({i % 2 ? Kind::kFetch : Kind::kStore, 10'000, wire::Priority::kBulk, 100'000});
  expect_well(pair, 6s);
}

TEST(Load, EmptyBodiesAreBodiesToo) {
  SimPair pair(wan());
  for (int i = 0; i < 10; ++i) {
    pair.fetch(0);
    pair.store(0);
  }
  expect_well(pair, 200ms);
}

TEST(Load, TheServerMayAskAsWell) {
  SimPair pair(wan_with([](LinkParameters& link) { link.loss = 0.02; }));
  for (int i = 0; i < 100; ++i)
    for (const Role caller : {Role::kServer, Role::kClient})
      pair.traffic().call(
          {i % 2 ? Kind::kFetch : Kind::kStore, 100 * kKiB, wire::Priority::kBulk, 40, caller});
  expect_well(pair, 6s);
}

TEST(Load, BothDirectionsAtOnceRunAtFullSpeed) {
  SimPair pair(wan());
  stream_both_ways(pair, 64 * kMiB);
  // Each sees the other direction's queue in its round trips.
  expect_well(pair, from_seconds(1.25 * to_seconds(at_full_speed(64 * kMiB))));
}

TEST(Load, SmallCallsOvertakeBulk) {
  SimPair pair(wan());
  stream_both_ways(pair, 32 * kMiB);
  pair.every(10ms, [&] {
    if (pair.elapsed() > 1s && pair.elapsed() < 2s) pair.fetch(1000, wire::Priority::kInteractive);
  });
  expect_well(pair, 2 * at_full_speed(32 * kMiB));
  // The round trip and what stands in the queue, but not behind eight megabytes of bulk (700 ms).
  EXPECT_LT(pair.traffic().interactive_latency_max(), 100ms);
}

// ------------------------------------------------ cancelling

TEST(Load, ACancelStormLeavesNothingBehind) {
  SimPair pair(wan_with([](LinkParameters& link) {
    link.loss = 0.02;
    link.reorder = 0.05;
    link.duplicate = 0.02;
  }));
  pair.traffic().think(15ms);
  pair.every(1ms, [&] {
    if (pair.elapsed() > 3s) return;
    for (int i = 0; i < 4; ++i) {
      const ByteCount size = pair.random().below(64 * kKiB);
      pair.random().chance(0.5) ? pair.fetch(size) : pair.store(size);
    }
    for (int i = 0; i < 3; ++i) pair.traffic().cancel_random(pair.random());
  });
  pair.run_for(3s);
  expect_well(pair, 15s);
  EXPECT_GT(pair.traffic().calls_cancelled(), 5'000u);
  EXPECT_GT(pair.traffic().calls_done(), 1'000u);
}

TEST(Load, CancelledCallsGiveTheirCreditBack) {
  SimOptions options = wan_with([](LinkParameters& link) { link.loss = 0.02; });
  options.connection.credit = {6 * kMiB, 8};
  SimPair pair(options);
  for (int i = 0; i < 100; ++i) {
    pair.store(4 * kMiB);
    pair.fetch(kMiB);
    pair.after(i * 30ms, [&] {
      pair.traffic().cancel_random(pair.random());
      pair.traffic().cancel_oldest();
    });
  }
  pair.run_for(4s);
  for (int i = 0; i < 4; ++i) pair.store(4 * kMiB);
  expect_well(pair, 20s);
}

TEST(Load, CancelledBeforeItIsSentIsNeverServed) {
  SimPair pair(wan());
  pair.fetch(1000);
  pair.traffic().cancel_oldest();
  expect_well(pair, 500ms);
  EXPECT_EQ(pair.traffic().cancellations_seen(), 0u);
}

TEST(Load, TheServerHearsOfACancelledCall) {
  SimPair pair(wan());
  pair.traffic().think(10s);
  pair.fetch(1000);
  pair.after(100ms, [&] { pair.traffic().cancel_oldest(); });
  pair.run_for(1s);
  EXPECT_EQ(pair.traffic().cancellations_seen(), 1u);
  expect_well(pair, 12s);
}

}  // namespace
}  // namespace tusk::simulation
