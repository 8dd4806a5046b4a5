// How many of something one client may make the server hold at once. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace tusk::server {

class Quota : public std::enable_shared_from_this<Quota> {
 public:
  // Is given back when it ends.
  class Place {
   public:
    Place() = default;
    Place(Place&& other) noexcept = default;
    Place& operator=(Place&& other) noexcept {
      std::swap(quota_, other.quota_);
      return *this;
    }
    ~Place() {
      if (quota_) quota_->give_back();
    }

   private:
    friend class Quota;
    explicit Place(std::shared_ptr<Quota> quota) : quota_(std::move(quota)) {}
    std::shared_ptr<Quota> quota_;
  };

  explicit Quota(std::size_t limit) : limit_(limit) {}

  // nullopt: all are taken.
  [[nodiscard]] std::optional<Place> take() {
    const std::lock_guard lock(mutex_);
    if (taken_ >= limit_) return std::nullopt;
    ++taken_;
    return Place(shared_from_this());
  }
  [[nodiscard]] std::size_t taken() const {
    const std::lock_guard lock(mutex_);
    return taken_;
  }

 private:
  void give_back() {
    const std::lock_guard lock(mutex_);
    --taken_;
  }

  const std::size_t limit_;
  mutable std::mutex mutex_;
  std::size_t taken_ = 0;
};

}  // namespace tusk::server
