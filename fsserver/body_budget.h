// How much memory replies with bulk bytes may hold between the disk and the client: whoever asks for
// more waits until some of it is on the other side. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "proto/base/shared_bytes.h"
#include "proto/base/strong_int.h"

namespace tusk::server {

constexpr std::size_t kParkedReadsMax = 16'384;

class BodyBudget : public std::enable_shared_from_this<BodyBudget> {
 public:
  // Gives its bytes back when it ends.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(std::shared_ptr<BodyBudget> budget, ByteCount size)
        : budget_(std::move(budget)), size_(size) {}
    Reservation(Reservation&& other) noexcept
        : budget_(std::move(other.budget_)), size_(std::exchange(other.size_, 0)) {}
    Reservation& operator=(Reservation&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(size_, other.size_);
      return *this;
    }
    ~Reservation() {
      if (budget_) budget_->release(size_);
    }

   private:
    std::shared_ptr<BodyBudget> budget_;
    ByteCount size_ = 0;
  };
  using Start = std::move_only_function<void(Reservation)>;

  explicit BodyBudget(ByteCount limit) : limit_(limit) {}

  // Runs `start` with `size` bytes reserved: at once, or in turn when they are free (then on the thread
  // that frees them: it must be quick). More than the whole budget is let through alone. False, and
  // nothing happens: kParkedReadsMax are waiting.
  [[nodiscard]] bool reserve(ByteCount size, Start start);

  [[nodiscard]] ByteCount used() const;

 private:
  struct Parked {
    ByteCount size;
    Start start;
  };
  void release(ByteCount size);
  [[nodiscard]] bool fits(ByteCount size) const { return used_ == 0 || used_ + size <= limit_; }

  const ByteCount limit_;
  mutable std::mutex mutex_;
  ByteCount used_ = 0;
  bool serving_ = false;  // a release() is starting what was parked
  std::deque<Parked> parked_;
};

}  // namespace tusk::server
