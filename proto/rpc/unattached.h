// The connections of a server that have not attached yet, in the order in which they came, for all its
// shards: when there is no more place the oldest gives way, wherever it is.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "proto/rpc/service.h"

namespace tusk::rpc {

class Unattached {
 public:
  // A connection's place among them; never 0.
  [[nodiscard]] std::uint64_t enter(ConnectionId connection) {
    const std::lock_guard lock(mutex_);
    waiting_.emplace(++last_, connection);
    return last_;
  }
  // It has attached, or is gone.
  void leave(std::uint64_t place) {
    const std::lock_guard lock(mutex_);
    waiting_.erase(place);
  }
  // The oldest, which nobody else is given then.
  [[nodiscard]] std::optional<ConnectionId> take_oldest() {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty()) return std::nullopt;
    return waiting_.extract(waiting_.begin()).mapped();
  }

 private:
  std::mutex mutex_;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, ConnectionId> waiting_;
};

}  // namespace tusk::rpc
