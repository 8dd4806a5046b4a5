// Unlocks of this mount that wait for what was written under the locks, and who wants such a lock meanwhile:
// it must come behind the unlock, which would take it otherwise.
//
// A record lock is its owner's, so that only the same owner waits; all others ask the server, where the lock
// still stands. The owner of a flock is gone with its last close: who may wait for one does so here. Who may
// not hears from the server that it is taken.
#pragma once

#include <algorithm>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "fsclient/held_locks.h"

namespace tusk::client {

// Thread-safe. No other lock is taken within, and nobody is run.
class UnlocksBehindData {
 public:
  struct Waiter {
    std::move_only_function<void()> go_on;
    std::move_only_function<void(const Error&)> gave_up;  // calls fail: the server is out of reach
  };

  void begin(const Inode& inode, const NewLock& unlock) {
    const std::lock_guard guard(mutex_);
    begun_.push_back({&inode, unlock});
  }
  // It is made. Returns who goes on.
  [[nodiscard]] std::vector<Waiter> end(const Inode& inode, const NewLock& unlock) {
    const std::lock_guard guard(mutex_);
    const auto ended = std::ranges::find_if(begun_, [&](const Wanted& one) {
      return one.inode == &inode && one.lock.flock == unlock.flock && one.lock.owner == unlock.owner;
    });
    if (ended != begun_.end()) begun_.erase(ended);
    return take_waiters([this](const Wanted& wanted) { return !concern(wanted); });
  }

  // Who wants this lock waits for some of them.
  [[nodiscard]] bool concern(const Inode& inode, const NewLock& lock) const {
    const std::lock_guard guard(mutex_);
    return concern({&inode, lock});
  }
  // False, and `waiter` is left alone: there is nothing to wait for any more.
  [[nodiscard]] bool wait(const Inode& inode, const NewLock& lock, Waiter& waiter) {
    const std::lock_guard guard(mutex_);
    if (!concern({&inode, lock})) return false;
    waiting_.emplace_back(Wanted{&inode, lock}, std::move(waiter));
    return true;
  }
  [[nodiscard]] std::vector<Waiter> take_waiters() {
    const std::lock_guard guard(mutex_);
    return take_waiters([](const Wanted&) { return true; });
  }

 private:
  struct Wanted {
    const Inode* inode;
    NewLock lock;
  };

  [[nodiscard]] bool concern(const Wanted& wanted) const {
    return std::ranges::any_of(begun_, [&](const Wanted& one) {
      if (one.inode != wanted.inode || one.lock.flock != wanted.lock.flock) return false;
      return wanted.lock.flock ? wanted.lock.wait : one.lock.owner == wanted.lock.owner;
    });
  }
  template <class Which>
  std::vector<Waiter> take_waiters(Which which) {
    std::vector<Waiter> taken;
    std::erase_if(waiting_, [&](auto& waiting) {
      if (!which(waiting.first)) return false;
      taken.push_back(std::move(waiting.second));
      return true;
    });
    return taken;
  }

  mutable std::mutex mutex_;
  std::vector<Wanted> begun_;
  std::vector<std::pair<Wanted, Waiter>> waiting_;
};

}  // namespace tusk::client
