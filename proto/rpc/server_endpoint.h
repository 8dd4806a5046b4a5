// A server's UDP port: handshakes, connections, and calls handed to a Service.
//
// Owns its network threads, one per core: each is a shard with a socket of its own on the same port
// (server_shard.h), and a connection stays with one. What it does not do: decide who may enter an export; the
// Service does, from the key that the handshake proved and the attach message.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "proto/base/result.h"
#include "proto/base/time.h"
#include "proto/crypto/identity.h"
#include "proto/io/address.h"
#include "proto/rpc/caller.h"
#include "proto/rpc/path_stats.h"
#include "proto/rpc/service.h"

namespace tusk::rpc {

struct ServerEndpointOptions {
  std::vector<io::Address> listen;             // at least one; port 0 picks a free one
  unsigned shards = 0;                         // network threads; 0: as many as there are cores, at most 16
  const crypto::Identity* identity = nullptr;  // must outlive the endpoint
  // When there are so many, the oldest that has not attached gives way to a new one.
  std::uint32_t connections_max = 4096;
  // Handshakes within 10 s with addresses that have not shown that they receive; others have to, which costs
  // them a round trip.
  std::uint32_t unproven_max = 64;
  // Handshakes that one source (an IPv4 address, an IPv6 network of 64 bits) may begin in a second, twice as
  // many at once. For each kind of proof (source.h); ten times as many for clients that were let in before.
  double handshakes_per_source = 100;
  // What the requests of all connections may hold: their bodies, also of calls that wait for a disk, and
  // what is kept until an answer is acknowledged. Beyond, those who hold most are disconnected.
  ByteCount request_memory_max = 2ull << 30;
  Duration attach_patience = 10s;  // from the end of the handshake to a successful ATTACH
  Duration answers_patience = 2s;  // when the endpoint ends: for clients to acknowledge their answers
};

class ServerEndpoint : public Outbound {
 public:
  // Whether these addresses can be had now, before anything else is done. Errors as of start().
  [[nodiscard]] static Result<void> check(const std::vector<io::Address>& listen);
  // `service` must outlive the endpoint. Errors: errno of bind, with the address and what to do.
  [[nodiscard]] static Result<std::unique_ptr<ServerEndpoint>> start(ServerEndpointOptions options,
                                                                     Service& service);
  // Calls that come from now on get no answer; what was answered before still goes out, for a limited time.
  // Says goodbye to every connection that has its answers, then joins the threads.
  ~ServerEndpoint() override = default;

  // All thread-safe.
  [[nodiscard]] virtual std::vector<io::Address> local_addresses() const = 0;

  struct ConnectionInfo {
    Peer peer;
    PathStats path;
  };
  [[nodiscard]] virtual std::vector<ConnectionInfo> connections() const = 0;
};

}  // namespace tusk::rpc
