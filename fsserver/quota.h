// How much of what there is only so much of one right may take. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "proto/rpc/right_share.h"

namespace tusk::server {

// All there is of something, for all rights.
class QuotaPool {
 public:
  explicit QuotaPool(std::size_t limit) : limit_(limit) {}

 private:
  friend class Quota;

  const std::size_t limit_;
  std::mutex mutex_;
  std::size_t taken_ = 0;
};

// The part of one right.
class Quota : public std::enable_shared_from_this<Quota> {
 public:
  // Is given back when it ends.
  class Place {
   public:
    Place() = default;
    Place(Place&& other) noexcept = default;
    Place& operator=(Place&& other) noexcept {
      std::swap(quota_, other.quota_);
      std::swap(count_, other.count_);
      return *this;
    }
    ~Place() {
      if (quota_) quota_->give_back(count_);
    }

   private:
    friend class Quota;
    Place(std::shared_ptr<Quota> quota, std::size_t count) : quota_(std::move(quota)), count_(count) {}
    std::shared_ptr<Quota> quota_;
    std::size_t count_ = 0;
  };

  explicit Quota(std::shared_ptr<QuotaPool> pool) : pool_(std::move(pool)) {}

  // nullopt: this right has as many as it may have beside what others have. Its first is only refused when
  // nothing is left.
  [[nodiscard]] std::optional<Place> take(std::size_t count = 1) {
    const std::lock_guard lock(pool_->mutex_);
    const std::size_t left = pool_->limit_ - pool_->taken_;
    if (count > left) return std::nullopt;
    if (taken_ > 0 && taken_ + count > rpc::right_share(pool_->limit_, left - count)) return std::nullopt;
    taken_ += count;
    pool_->taken_ += count;
    return Place(shared_from_this(), count);
  }

 private:
  void give_back(std::size_t count) {
    const std::lock_guard lock(pool_->mutex_);
    taken_ -= count;
    pool_->taken_ -= count;
  }

  const std::shared_ptr<QuotaPool> pool_;
  std::size_t taken_ = 0;  // with pool_->mutex_ held
};

}  // namespace tusk::server
