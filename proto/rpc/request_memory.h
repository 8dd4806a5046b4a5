// What the requests of all connections of a server hold, and who has to go when it is too much: their
// bodies, also of calls that wait for a disk, and what is kept until an answer is acknowledged.
//
// Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <string>
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
  // Connections of one owner, a mount, hold what they hold together, and have to go together. Owners of one
  // right are the first to go when it holds more than others.
  void count_together(ConnectionId connection, std::string owner, std::string right);
  void end(ConnectionId connection);

  struct Victim {
    ConnectionId connection;
    ByteCount held;  // by its owner
  };
  // Those who hold most of the right that holds most, as many as it takes. Nobody is named twice. Cheap while
  // there is enough.
  [[nodiscard]] std::vector<Victim> take_victims();

 private:
  const ByteCount limit_;
  const std::shared_ptr<MemoryAccount> all_;

  std::mutex mutex_;
  struct Account {
    std::shared_ptr<MemoryAccount> memory;
    std::string owner;  // "": nobody else's
    std::string right;  // "": its own
  };
  std::unordered_map<ConnectionId, Account> accounts_;  // not of those named
};

}  // namespace tusk::rpc
