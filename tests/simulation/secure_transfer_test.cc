// Transfers with keys: the same paths as without, keys that change under way, clients that move.
#include "tests/simulation/secure_vocabulary.h"

namespace tusk::simulation {
namespace {

constexpr ByteCount kSecureBytes = 16 * kMiB;

TEST(SecureTransfer, RunsAtFullSpeedBothWays) {
  SecurePair pair(secure_wan());
  ASSERT_TRUE(pair.connect(1s));
  stream_both_ways(pair, kSecureBytes);
  expect_well(pair, from_seconds(1.3 * to_seconds(at_full_speed(kSecureBytes))) + 1s);
}

TEST(SecureTransfer, SurvivesEverythingAPathDoes) {
  SecureOptions options = secure_wan_with([](LinkParameters& link) {
    link.loss = 0.02;
    link.burst_loss = 0.005;
    link.reorder = 0.05;
    link.jitter = 2ms;
    link.duplicate = 0.05;
    link.corrupt = 0.01;
  });
  options.world.path.deliver_damaged = true;
  SecurePair pair(options);
  ASSERT_TRUE(pair.connect(10s));
  stream_both_ways(pair, kSecureBytes);
  expect_well(pair, 10s + 3 * at_full_speed(kSecureBytes));
}

// ------------------------------------------------ key update

crypto::KeyLimits update_every(std::uint64_t packets) {
  return {packets, 2 * packets, std::uint64_t{1} << 36};
}

TEST(SecureTransfer, KeysChangeWithoutALostByte) {
  SecureOptions options = secure_wan();
  options.key_limits = update_every(1500);
  SecurePair pair(options);
  ASSERT_TRUE(pair.connect(1s));
  stream_both_ways(pair, kSecureBytes);
  expect_well(pair, 2 * at_full_speed(kSecureBytes) + 1s);
  EXPECT_GE(pair.client().key_generation(), 6u);
  EXPECT_GE(pair.front().secure()->key_generation(), 6u);
  EXPECT_EQ(pair.client().drops().unauthenticated, 0u);
}

TEST(SecureTransfer, KeysChangeOnABadPath) {
  SecureOptions options = secure_wan_with([](LinkParameters& link) {
    link.loss = 0.03;
    link.reorder = 0.1;
    link.reorder_max = 30ms;
    link.duplicate = 0.05;
    link.corrupt = 0.01;
  });
  options.world.path.deliver_damaged = true;
  options.key_limits = update_every(2000);
  SecurePair pair(options);
  ASSERT_TRUE(pair.connect(10s));
  stream_both_ways(pair, kSecureBytes);
  expect_well(pair, 10s + 4 * at_full_speed(kSecureBytes));
  EXPECT_GE(pair.client().key_generation(), 3u);
}

TEST(SecureTransfer, AKeyIsNotUsedBeyondItsLimit) {
  // Nothing the server acknowledges arrives, so the client may not change its key: it stops.
  SecureOptions options = secure_wan();
  options.key_limits = update_every(20);
  SecurePair pair(options);
  ASSERT_TRUE(pair.connect(1s));
  pair.run_for(200ms);
  pair.change_links([](auto&, auto& to_client) { to_client.outage = true; });
  pair.every(1ms, [&] { pair.store(2000); });
  pair.run_for(20s);
  EXPECT_EQ(first_closed(pair, Role::kClient), ErrorCode::kLimitExceeded);
  EXPECT_LE(pair.client().connection().stats().packets_sent, 100u);
}

// ------------------------------------------------ a client that moves

TEST(SecureTransfer, AMovedClientGoesOn) {
  SecurePair pair(secure_wan());
  ASSERT_TRUE(pair.connect(1s));
  stream_both_ways(pair, kSecureBytes);
  pair.after(500ms, [&] { pair.move_client(); });
  expect_well(pair, 2 * at_full_speed(kSecureBytes) + 2s);
  EXPECT_TRUE(pair.traffic().path_validated());
  EXPECT_EQ(pair.front().client_address(), pair.client_address());
}

TEST(SecureTransfer, AClientThatMovesWhileItOnlyListensGoesOn) {
  SecurePair pair(secure_wan());
  ASSERT_TRUE(pair.connect(1s));
  pair.traffic().stream(kSecureBytes, 8 * kMiB, Kind::kFetch);
  pair.after(500ms, [&] { pair.move_client(); });
  expect_well(pair, 2 * at_full_speed(kSecureBytes) + 3s);
}

TEST(SecureTransfer, AClientThatMovesAllTheTimeGoesOn) {
  SecurePair pair(secure_wan_with([](LinkParameters& link) { link.loss = 0.01; }));
  ASSERT_TRUE(pair.connect(5s));
  stream_both_ways(pair, kSecureBytes);
  pair.every(700ms, [&] { pair.move_client(); });
  expect_well(pair, 10 * at_full_speed(kSecureBytes) + 5s);
}

TEST(SecureTransfer, AnIdleClientThatMovedIsAnsweredSoon) {
  SecurePair pair(secure_wan());
  ASSERT_TRUE(pair.connect(1s));
  pair.run_for(5s);
  pair.move_client();
  const Duration asked = pair.elapsed();
  pair.fetch(100, wire::Priority::kInteractive);
  expect_well(pair, asked + 2s);
  EXPECT_LT(pair.traffic().interactive_latency_max(), 500ms);
}

TEST(SecureTransfer, AStolenAddressGetsLittle) {
  // An attacker in front of the client sends each of its packets first, from an address of its own.
  SecurePair pair(secure_wan());
  ASSERT_TRUE(pair.connect(1s));
  pair.traffic().stream(kSecureBytes, 8 * kMiB, Kind::kFetch);
  pair.run_for(300ms);
  bool stolen = false;
  pair.path().add_sieve(Role::kServer, [&](std::span<std::byte> datagram) {
    if (stolen) return true;
    stolen = true;
    pair.forge(Role::kServer, datagram, 99);
    return false;
  });
  expect_well(pair, 2 * at_full_speed(kSecureBytes) + 3s);
  EXPECT_EQ(pair.front().client_address(), pair.client_address());
}

// ------------------------------------------------ the same again

TEST(SecureTransfer, TheSameSeedGivesTheSameBytes) {
  const auto run = [](std::uint64_t seed) {
    SecureOptions options =
        secure_wan_with([](LinkParameters& link) { link.loss = link.corrupt = 0.02; }, seed);
    options.world.path.deliver_damaged = true;
    SecurePair pair(options);
    const Recorder recorder(pair, Role::kClient);
    EXPECT_TRUE(pair.connect(10s));
    pair.fetch(kMiB);
    expect_well(pair, 20s);
    return std::pair(recorder.datagrams, pair.event_hash());
  };
  const auto first = run(3);
  EXPECT_EQ(first, run(3));
  EXPECT_NE(first, run(4));
}

}  // namespace
}  // namespace tusk::simulation
