// The answers to pushes, and the programs whose kernel locks they would wait for.
//
// To drop a name the kernel wants its directory's lock, to drop a page the page's. A program that changes the
// directory, or writes to the file, holds it until the server has answered; and the server may be waiting for
// another mount in the same situation. So a push about something that a program here is changing is answered
// at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace tusk::client {

// To be given once: when all that holds it back has let go of it, or at once when somebody cannot wait.
// Thread-safe.
class PushAnswer {
 public:
  // Held back once, by whoever makes it.
  explicit PushAnswer(std::move_only_function<void()> answer) : answer_(std::move(answer)) {}
  void give() {
    if (!given_.exchange(true)) answer_();
  }
  void hold_back() { ++holders_; }
  void let_go() {
    if (--holders_ == 0) give();
  }

 private:
  std::move_only_function<void()> answer_;
  std::atomic<int> holders_{1};
  std::atomic<bool> given_{false};
};

// Of one inode, whose mutex protects it.
struct ChangesOnTheirWay {
  std::uint32_t count = 0;
  std::vector<std::weak_ptr<PushAnswer>> waiting;  // until the kernel has dropped what they are about
  // Names to be dropped here once nothing is on its way: before, the kernel would only wait.
  std::vector<std::move_only_function<void()>> parked;
};

}  // namespace tusk::client
