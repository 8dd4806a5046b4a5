// Work to be done after a lock is released: calls, replies, notifications.
//
//   Deferred after;                        // declared first, so it runs last
//   const std::lock_guard lock(mutex);
//   after.add([done = std::move(done)]() mutable { done(0); });
#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace tusk::client {

class Deferred {
 public:
  Deferred() = default;
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;
  ~Deferred() {
    for (auto& task : tasks_) task();
    for (auto& task : last_) task();
  }

  void add(std::move_only_function<void()> task) { tasks_.push_back(std::move(task)); }
  // After all others: what takes long, and nobody waits for.
  void add_last(std::move_only_function<void()> task) { last_.push_back(std::move(task)); }

 private:
  std::vector<std::move_only_function<void()>> tasks_;
  std::vector<std::move_only_function<void()>> last_;
};

}  // namespace tusk::client
