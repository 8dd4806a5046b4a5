#include "proto/rpc/steering.h"

#include "proto/base/check.h"
#include "proto/rpc/secure_connection.h"

namespace tusk::rpc {
namespace {

// wire/packet_header.h: where the id begins.
constexpr std::uint32_t kIdInShortHeader = 1;
constexpr std::uint32_t kIdInLongHeader = 5;
constexpr std::uint32_t kLongHeaderBit = 0x80;
constexpr unsigned kByteValues = 256;

}  // namespace

unsigned shard_of(const wire::ConnectionIdBytes& id, unsigned shards) {
  return std::to_integer<unsigned>(id.bytes[0]) % shards;
}

wire::ConnectionIdBytes connection_id_for(unsigned shard, unsigned shards, ServerTag tag) {
  TUSK_CHECK(shard < shards && shards <= kShardsMax);
  wire::ConnectionIdBytes id = random_connection_id();
  const unsigned random = std::to_integer<unsigned>(id.bytes[0]);
  unsigned first = random - random % shards + shard;
  if (first >= kByteValues) first -= shards;
  id.bytes[0] = static_cast<std::byte>(first);
  id.bytes[ServerTag::kOffset] = static_cast<std::byte>(tag.value >> 8);
  id.bytes[ServerTag::kOffset + 1] = static_cast<std::byte>(tag.value);
  return id;
}

std::vector<sock_filter> steering_program(unsigned shards) {
  return {
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kLongHeaderBit, 0, 2),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kIdInLongHeader),
      BPF_STMT(BPF_JMP | BPF_JA, 1),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kIdInShortHeader),
      BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, shards),
      BPF_STMT(BPF_RET | BPF_A, 0),
  };
}

}  // namespace tusk::rpc
