// One client's connection as a shard of the server has it, and everything that hangs on it.
//
// Network thread only.
#pragma once

#include <memory>

#include "proto/rpc/bulk_turns.h"
#include "proto/rpc/client_route.h"
#include "proto/rpc/incoming_calls.h"
#include "proto/rpc/memory_account.h"
#include "proto/rpc/outgoing_calls.h"
#include "proto/rpc/path_trace.h"
#include "proto/rpc/secure_connection.h"
#include "proto/rpc/service.h"
#include "proto/rpc/transmit.h"

namespace tusk::rpc {

struct ServerLink {
  ConnectionId id;
  std::unique_ptr<SecureConnection> secure;
  std::size_t socket = 0;
  ClientRoute<Route> route;
  Peer peer;
  std::shared_ptr<std::atomic<TimePoint>> heard = std::make_shared<std::atomic<TimePoint>>();  // peer's
  IncomingCalls incoming;
  BulkTurns bulk;
  OutgoingCalls outgoing;
  std::shared_ptr<MemoryAccount> memory;  // that its requests hold
  ByteCount memory_noted = 0;             // of it: what the connection itself tells
  std::unique_ptr<PathTrace> trace;       // if one is wanted
  TimePoint attach_by = kNever;           // a stranger's time is limited
  std::uint64_t unattached = 0;           // its place among the strangers of all shards
  TimePoint timeout = kNever;             // as entered in the table of timeouts
  std::uint32_t young_packets = 0;        // that came before it was established
  bool dirty = false;
  bool held_up = false;    // found the socket blocked, and is resumed when it takes more
  bool announced = false;  // the service has seen it or may have
  bool left = false;       // its peer said goodbye
};

}  // namespace tusk::rpc
