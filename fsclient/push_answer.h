// The answers to pushes, and the programs whose kernel locks they would wait for.
//
// To drop a name the kernel wants its directory's lock, to drop a page the page's. A program that changes the
// directory, or writes to the file, holds it until the server has answered; and the server may be waiting for
// another mount in the same situation. So a push about something that a program here is changing is answered
// at once. What a push waits for besides, an open that the server is asked for (Filesystem::open_meanwhile),
// waits for nobody, and is waited for in any case.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tusk::client {

// To be given once: when all that holds it back has let go of it. Thread-safe.
class PushAnswer {
 public:
  // Held back once by the kernel, which whoever makes it asks to drop things.
  explicit PushAnswer(std::move_only_function<void()> answer) : answer_(std::move(answer)) {}
  // Somebody cannot wait for the kernel.
  void give() {
    change([this] { hurried_ = true; });
  }
  void hold_back() {
    change([this] { ++kernel_; });
  }
  void let_go() {
    change([this] { --kernel_; });
  }
  void await_open() {
    change([this] { ++opens_; });
  }
  void handle_opened() {
    change([this] { --opens_; });
  }

 private:
  template <class Change>
  void change(Change apply) {
    std::move_only_function<void()> due;
    {
      const std::lock_guard lock(mutex_);
      apply();
      if ((hurried_ || kernel_ == 0) && opens_ == 0) due = std::exchange(answer_, nullptr);
    }
    if (due) due();
  }

  std::mutex mutex_;
  std::move_only_function<void()> answer_;  // empty once it was given
  int kernel_ = 1;
  int opens_ = 0;
  bool hurried_ = false;
};

// Of one inode, whose mutex protects it.
struct ChangesOnTheirWay {
  std::uint32_t count = 0;
  std::vector<std::weak_ptr<PushAnswer>> waiting;  // until the kernel has dropped what they are about
  // Names to be dropped here once nothing is on its way: before, the kernel would only wait.
  std::vector<std::move_only_function<void()>> parked;
};

}  // namespace tusk::client
