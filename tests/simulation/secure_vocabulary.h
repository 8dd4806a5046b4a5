// The words for scenarios with keys, and what an attacker needs.
#pragma once

#include <vector>

#include "tests/simulation/vocabulary.h"
#include "tests/support/sim_secure_pair.h"

namespace tusk::simulation {

using Datagram = std::vector<std::byte>;

inline SecureOptions secure_wan(std::uint64_t seed = 7) { return {.world = wan(seed)}; }

template <class Edit>
SecureOptions secure_wan_with(Edit&& edit, std::uint64_t seed = 7) {
  SecureOptions options = secure_wan(seed);
  edit(options.world.path.to_server);
  edit(options.world.path.to_client);
  return options;
}

// Keeps a copy of what passes by.
class Recorder {
 public:
  Recorder(SimWorld& world, Role receiver) {
    world.path().add_sieve(receiver, [this](std::span<std::byte> datagram) {
      datagrams.emplace_back(datagram.begin(), datagram.end());
      return true;
    });
  }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  std::vector<Datagram> datagrams;
};

inline Datagram random_datagram(Random& random, std::size_t size) {
  Datagram datagram(size);
  for (std::byte& byte : datagram) byte = static_cast<std::byte>(random.below(256));
  return datagram;
}

inline Datagram long_packet(const wire::LongHeader& header, std::size_t padding = 0) {
  Datagram datagram(wire::long_header_size(header.token.size()) + padding);
  const std::size_t size = wire::write_long_header(header, datagram);
  datagram.resize(size + padding);
  return datagram;
}

inline ErrorCode first_closed(SimWorld& world, Role side) {
  for (const auto& closed : world.traffic().closed())
    if (closed.side == side) return closed.code;
  return ErrorCode::kOk;
}

inline void expect_transfer_works(SimWorld& world, Duration within = 5s) {
  world.fetch(200 * kKiB);
  world.store(200 * kKiB);
  expect_well(world, world.elapsed() + within);
}

}  // namespace tusk::simulation
