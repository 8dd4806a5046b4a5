// What the kernel's file handles stand for. A number is never used twice in the life of a mount.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proto/base/check.h"
#include "proto/base/strong_int.h"

namespace tusk::client {

// An open file or directory, as the kernel carries it around.
using Handle = StrongInt<struct HandleTag>;

template <class T>
class HandleTable {
 public:
  [[nodiscard]] Handle insert(std::shared_ptr<T> opened) {
    const std::lock_guard lock(mutex_);
    const Handle handle(next_++);
    table_.emplace(handle.value(), std::move(opened));
    return handle;
  }

  // The kernel names only what it has not released.
  [[nodiscard]] std::shared_ptr<T> find(Handle handle) const {
    const std::lock_guard lock(mutex_);
    const auto found = table_.find(handle.value());
    TUSK_CHECK(found != table_.end());
    return found->second;
  }

  std::shared_ptr<T> take(Handle handle) {
    const std::lock_guard lock(mutex_);
    auto node = table_.extract(handle.value());
    TUSK_CHECK(!node.empty());
    return std::move(node.mapped());
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::shared_ptr<T>> table_;
  std::uint64_t next_ = 1;
};

}  // namespace tusk::client
