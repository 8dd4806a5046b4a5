// A call that waits for its turn: for memory, for a worker, or for the server to go. A client that takes
// it back gets back its credit at once, so the call and the bytes sent with it must go at once, too: only
// this shell stays in the queue. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "proto/rpc/service.h"

namespace tusk::server {

class WaitingCall {
 public:
  [[nodiscard]] static std::shared_ptr<WaitingCall> make(std::shared_ptr<rpc::IncomingCall> incoming) {
    const std::shared_ptr<WaitingCall> waiting(new WaitingCall(incoming));
    // Weak: the call must not keep alive what keeps the call alive.
    incoming->on_cancel([weak = std::weak_ptr(waiting)] {
      const auto found = weak.lock();
      if (const auto cancelled = found ? found->take() : nullptr)
        cancelled->reply_error(ErrorCode::kCancelled);
    });
    return waiting;
  }

  // Whoever takes it answers it. nullptr: it was cancelled, and answered so.
  [[nodiscard]] std::shared_ptr<rpc::IncomingCall> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(incoming_, nullptr);
  }

  // It was cancelled, or somebody has taken it.
  [[nodiscard]] bool gone() const {
    const std::lock_guard lock(mutex_);
    return incoming_ == nullptr;
  }

 private:
  explicit WaitingCall(std::shared_ptr<rpc::IncomingCall> incoming) : incoming_(std::move(incoming)) {}

  mutable std::mutex mutex_;
  std::shared_ptr<rpc::IncomingCall> incoming_;
};

}  // namespace tusk::server
