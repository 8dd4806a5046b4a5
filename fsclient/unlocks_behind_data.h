// Unlocks of this mount that wait for what was written under the locks, and who wants such a lock meanwhile:
// it must come behind the unlock, which would take it otherwise.
//
// The same owner of a record lock always waits. The owner of a flock, and of an open file description's lock,
// is gone with its last close: others that may wait for such a lock do so here or at the server. A program
// that may not wait hears from the server that the lock is taken, unless the unlock is at the server already:
// it waits for that answer.
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
  // The data is at the server, and the unlock is on its way there. Returns who goes on.
  [[nodiscard]] std::vector<Waiter> sent(const Inode& inode, const NewLock& unlock) {
    const std::lock_guard guard(mutex_);
    if (const auto one = find(inode, unlock); one != begun_.end()) one->sent = true;
    return take_waiters([this](const Wanted& wanted) { return !concern(wanted); });
  }
  // It is made. Returns who goes on.
  [[nodiscard]] std::vector<Waiter> end(const Inode& inode, const NewLock& unlock) {
    const std::lock_guard guard(mutex_);
    if (const auto ended = find(inode, unlock); ended != begun_.end()) begun_.erase(ended);
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
    bool sent = false;
  };

  [[nodiscard]] std::vector<Wanted>::iterator find(const Inode& inode, const NewLock& unlock) {
    return std::ranges::find_if(begun_, [&](const Wanted& one) {
      return one.inode == &inode && one.lock.flock == unlock.flock && one.lock.owner == unlock.owner;
    });
  }

  [[nodiscard]] bool concern(const Wanted& wanted) const {
    return std::ranges::any_of(begun_, [&](const Wanted& one) {
      if (one.inode != wanted.inode || one.lock.flock != wanted.lock.flock) return false;
      if (!wanted.lock.flock && one.lock.owner == wanted.lock.owner) return true;
      return one.sent ? !wanted.lock.wait : wanted.lock.flock && wanted.lock.wait;
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
