// A file descriptor that closes itself, and the one way back from an O_PATH descriptor to a path.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "proto/base/result.h"

namespace tusk::server {

class Fd {
 public:
  Fd() = default;
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

// Evicting a descriptor from a table must not close it under an operation that still uses it.
using SharedFd = std::shared_ptr<const Fd>;

[[nodiscard]] inline SharedFd share(Fd fd) { return std::make_shared<const Fd>(std::move(fd)); }

// For system calls that have no form for O_PATH descriptors (chmod, xattrs, truncate): the kernel goes
// from this path straight to the inode, also when that is a symlink; no name is resolved again.
[[nodiscard]] inline std::string proc_path(const Fd& fd) {
  return "/proc/self/fd/" + std::to_string(fd.number());
}

}  // namespace tusk::server
