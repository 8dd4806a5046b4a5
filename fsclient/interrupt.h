// A request whose program is to end, or wants to (request_table.h decides that).
//
// Most operations give a server that is connected a grace period before they give up; see kInterruptGrace.
#pragma once

#include <functional>
#include <mutex>
#include <utility>

#include "proto/base/time.h"

namespace tusk::client {

// An operation that a reply will end within a second needs no EINTR, which programs rarely expect of a
// file system. One that is stuck longer is given up. PathEstimate::interrupt_grace() is what to wait.
constexpr Duration kInterruptGrace = std::chrono::seconds(1);

class Interrupt {
 public:
  // `give_up` runs once when fire() is called, at once if it was. Replaces an earlier one.
  void on_fire(std::move_only_function<void()> give_up) {
    {
      const std::lock_guard lock(mutex_);
      if (!fired_) {
        give_up_ = std::move(give_up);
        return;
      }
    }
    give_up();
  }

  void fire() {
    std::move_only_function<void()> give_up;
    {
      const std::lock_guard lock(mutex_);
      if (fired_) return;
      fired_ = true;
      give_up = std::exchange(give_up_, nullptr);
    }
    if (give_up) give_up();
  }

  [[nodiscard]] bool fired() const {
    const std::lock_guard lock(mutex_);
    return fired_;
  }

 private:
  mutable std::mutex mutex_;
  bool fired_ = false;
  std::move_only_function<void()> give_up_;
};

}  // namespace tusk::client
