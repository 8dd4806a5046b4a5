// The words that the simulation's scenarios are made of.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/sim_pair.h"

namespace tusk::simulation {

using namespace support;
using transport::Role;
using Kind = SimTraffic::Kind;

constexpr ByteCount kKiB = 1 << 10;
constexpr ByteCount kMiB = 1 << 20;
constexpr ByteCount kGiB = 1 << 30;
constexpr std::uint64_t kMbit = 1'000'000;
constexpr std::uint64_t kGbit = 1'000'000'000;

// Sanitizers make gigabytes slow, and the figures are no different with them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// 100 Mbit/s, 40 ms there and back, 40 ms of queue: a good line to somewhere else.
inline SimOptions wan(std::uint64_t seed = 7) {
  SimOptions options = symmetric_path(100 * kMbit, 40ms, 0, 40ms, seed);
  options.handshake_rtt = 40ms;
  options.server_clock_ahead = 1h;
  return options;
}

template <class Edit>
SimOptions wan_with(Edit&& edit) {
  SimOptions options = wan();
  edit(options.path.to_server);
  edit(options.path.to_client);
  return options;
}

// How long `size` bytes take at full speed.
inline Duration at_full_speed(ByteCount size, std::uint64_t rate = 100 * kMbit) {
  return from_seconds(static_cast<double>(size) * 8 / static_cast<double>(rate));
}

inline void stream_both_ways(SimWorld& world, ByteCount each, ByteCount window = 8 * kMiB) {
  world.traffic().stream(each, window, Kind::kFetch);
  world.traffic().stream(each, window, Kind::kStore);
}

// Everything asked for is answered and forgotten within `limit`, every byte right.
inline void expect_well(SimWorld& world, Duration limit) {
  const bool rested = world.run_to_rest(limit);
  EXPECT_THAT(world.complaints(), testing::IsEmpty());
  EXPECT_TRUE(rested) << "not at rest after " << to_seconds(world.elapsed()) << " s";
}

// Datagrams sent to `receiver` beyond the share that the path itself lost: what was sent twice in vain.
inline double sent_twice(SimWorld& world, Role sender, ByteCount useful) {
  const auto sent = static_cast<double>(world.connection(sender)->stats().bytes_sent);
  return sent / static_cast<double>(useful) - 1;
}

// ------------------------------------------------ packets, by what is in them

template <class Frame>
bool has(std::span<const wire::Frame> frames) {
  return std::ranges::any_of(frames, [](const auto& frame) { return std::holds_alternative<Frame>(frame); });
}
inline bool carries_data(std::span<const wire::Frame> frames) {
  return has<wire::BodyFrame>(frames) || has<wire::MessageHeaderFrame>(frames);
}
inline bool carries_only_ack(std::span<const wire::Frame> frames) {
  return has<wire::AckFrame>(frames) && !carries_data(frames);
}
// The body's last piece.
inline SimPair::Predicate ends_at(ByteCount body_size) {
  return [body_size](std::span<const wire::Frame> frames) {
    return std::ranges::any_of(frames, [&](const auto& frame) {
      const auto* body = std::get_if<wire::BodyFrame>(&frame);
      return body && body->offset + body->data.size() == body_size;
    });
  };
}

}  // namespace tusk::simulation
