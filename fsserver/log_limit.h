// Lines of the log that a peer can cause as often as it likes: so many in a while, then silence, and the
// next one says how many were left out. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "proto/base/time.h"

namespace tusk::server {

class LogLimit {
 public:
  static constexpr Duration kWindow = 10s;
  static constexpr unsigned kLinesPerWindow = 10;

  // nullopt: not this one. Else how many were left out before it.
  [[nodiscard]] std::optional<std::uint64_t> admit(TimePoint now) {
    const std::lock_guard lock(mutex_);
    if (now >= window_end_) {
      window_end_ = now + kWindow;
      lines_ = 0;
    }
    if (lines_ == kLinesPerWindow) {
      ++left_out_;
      return std::nullopt;
    }
    ++lines_;
    return std::exchange(left_out_, 0);
  }

 private:
  std::mutex mutex_;
  TimePoint window_end_{};
  unsigned lines_ = 0;
  std::uint64_t left_out_ = 0;
};

// For the end of such a line.
[[nodiscard]] inline std::string and_before(std::uint64_t left_out) {
  return left_out == 0 ? "" : " (" + std::to_string(left_out) + " more before are not shown)";
}

}  // namespace tusk::server
