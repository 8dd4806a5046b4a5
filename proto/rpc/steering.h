// Which of a server's shards a packet belongs to: the first byte of the connection id that it is for says
// so, modulo the number of shards. A server gives out ids that lead to the shard that has the connection;
// the random id that a client begins with chooses one. So a connection stays where it is when its client's
// address changes, which a hash of addresses would not do (RFC 9000 §5.1 has ids for the same purpose).
//
// All pure; any thread.
#pragma once

#include <linux/filter.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/wire/types.h"

namespace tusk::rpc {

constexpr unsigned kShardsMax = 64;

// What the ids that a server gives out have in common, at kOffset: by it the kernel tells them from made-up
// ones while the server is flooded. The same after a restart, so that the server still answers ids of before.
// Whoever connects learns it; 48 bits of an id are random.
struct ServerTag {
  static constexpr std::size_t kOffset = 6;
  std::uint16_t value = 0;
};

// `shards`: 1 to kShardsMax.
[[nodiscard]] unsigned shard_of(const wire::ConnectionIdBytes& id, unsigned shards);
// An id that leads to `shard`, random but for the tag.
[[nodiscard]] wire::ConnectionIdBytes connection_id_for(unsigned shard, unsigned shards, ServerTag tag);

// The same as shard_of, for the kernel: a program that chooses among sockets that share a port (socket(7),
// SO_ATTACH_REUSEPORT_CBPF). What is too short goes to the first.
[[nodiscard]] std::vector<sock_filter> steering_program(unsigned shards);

}  // namespace tusk::rpc
