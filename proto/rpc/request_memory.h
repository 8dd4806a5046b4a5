// What the requests of all connections of a server hold, and who has to go when it is too much: their
// bodies, also of calls that wait for a disk, and what is kept until an answer is acknowledged.
//
// Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "proto/rpc/memory_account.h"
#include "proto/rpc/service.h"

namespace tusk::rpc {

class RequestMemory {
 public:
  explicit RequestMemory(ByteCount limit) : limit_(limit), all_(std::make_shared<MemoryAccount>()) {}

  [[nodiscard]] ByteCount limit() const { return limit_; }
  // A connection's account, which counts for it until its end.
  [[nodiscard]] std::shared_ptr<MemoryAccount> begin(ConnectionId connection);
  void end(ConnectionId connection);

  struct Victim {
    ConnectionId connection;
    ByteCount held;
  };
  // Those who hold most, as many as it takes. Nobody is named twice. Cheap while there is enough.
  [[nodiscard]] std::vector<Victim> take_victims();

 private:
  const ByteCount limit_;
  const std::shared_ptr<MemoryAccount> all_;

  std::mutex mutex_;
  std::unordered_map<ConnectionId, std::shared_ptr<MemoryAccount>> accounts_;  // not of those named
};

}  // namespace tusk::rpc
