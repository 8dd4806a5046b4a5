// A file descriptor that closes itself.
#pragma once

#include <unistd.h>

#include <utility>

namespace tusk {

class Fd {
 public:
  Fd() = default;
  // Negative: none, as a system call that failed returns it.
  explicit Fd(int number) : number_(number) {}
  Fd(Fd&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Fd() {
    if (number_ >= 0) ::close(number_);
  }

  [[nodiscard]] int number() const { return number_; }
  [[nodiscard]] bool valid() const { return number_ >= 0; }

 private:
  int number_ = -1;
};

}  // namespace tusk
