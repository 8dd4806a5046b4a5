// Bounds how many bytes reads may wait for at once: memory that a fetch is on its way to can be given to
// nobody else, and the kernel reads ahead of every open file. Those that come when it is full take turns.
// Thread-safe.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "proto/base/strong_int.h"

namespace tusk::client {

template <class Read>
class WaitingReads {
 public:
  using Pointer = std::shared_ptr<Read>;

  // True: it may wait for its bytes now, and ends with leave(). Else leave() returns it when its turn has
  // come. One that is larger than `limit` waits alone. `overtakes`: those in the queue, if there is room.
  [[nodiscard]] bool enter(const Pointer& read, ByteCount size, ByteCount limit, bool overtakes) {
    const std::lock_guard lock(mutex_);
    if ((queue_.empty() || overtakes) && fits(size, limit)) {
      bytes_ += size;
      return true;
    }
    queue_.emplace_back(read, size);
    return false;
  }
  // Returns those whose turn has come; each of them has entered.
  [[nodiscard]] std::vector<Pointer> leave(ByteCount size, ByteCount limit) {
    std::vector<Pointer> next;
    const std::lock_guard lock(mutex_);
    bytes_ -= size;
    while (!queue_.empty() && fits(queue_.front().second, limit)) {
      bytes_ += queue_.front().second;
      next.push_back(std::move(queue_.front().first));
      queue_.pop_front();
    }
    return next;
  }

 private:
  [[nodiscard]] bool fits(ByteCount size, ByteCount limit) const {
    return bytes_ == 0 || bytes_ + size <= limit;
  }

  std::mutex mutex_;
  ByteCount bytes_ = 0;
  std::deque<std::pair<Pointer, ByteCount>>
      queue_;  // at most what the kernel has sent: fuse_adapter's limits
};

}  // namespace tusk::client
