// How much memory replies with bulk bytes may hold between the disk and the clients, each session, each right
// and all together: whoever asks for more waits until some of it is on the other side. The right that holds
// least is next, and of its sessions the one that holds least. Of what is left each session may hold only the
// part that it is of the whole: when n sessions, one after the other, have taken all they can and give
// nothing back, about an (n + 1)-th of the whole is there for others. Of rights right_share() says it.
// Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "proto/base/shared_bytes.h"
#include "proto/base/strong_int.h"

namespace tusk::server {

constexpr std::size_t kParkedReadsMax = 16'384;  // of one client

class BodyBudget : public std::enable_shared_from_this<BodyBudget> {
 public:
  // What one session holds, or a right.
  class Share {
   public:
    // `right`: whose session it is; may be null.
    explicit Share(std::shared_ptr<Share> right = nullptr) : right_(std::move(right)) {}

   private:
    friend class BodyBudget;
    const std::shared_ptr<Share> right_;
    ByteCount used_ = 0;
    std::uint64_t served_ = 0;  // its last turn: who holds as little as others is next if its is longer ago
  };

  // Gives its bytes back when it ends.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(std::shared_ptr<BodyBudget> budget, std::shared_ptr<Share> share, ByteCount size)
        : budget_(std::move(budget)), share_(std::move(share)), size_(size) {}
    Reservation(Reservation&& other) noexcept = default;
    Reservation& operator=(Reservation&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(share_, other.share_);
      std::swap(size_, other.size_);
      return *this;
    }
    ~Reservation() {
      if (budget_) budget_->release(*share_, size_);
    }

   private:
    std::shared_ptr<BodyBudget> budget_;
    std::shared_ptr<Share> share_;
    ByteCount size_ = 0;
  };
  using Start = std::move_only_function<void(Reservation)>;

  BodyBudget(ByteCount limit, ByteCount limit_of_one) : limit_(limit), limit_of_one_(limit_of_one) {}

  // Runs `start` with `size` bytes reserved: at once, or in turn when they are free (then on the thread
  // that frees them: it must be quick). More than a whole limit is let through alone. False, and nothing
  // happens: kParkedReadsMax of this share are waiting.
  [[nodiscard]] bool reserve(const std::shared_ptr<Share>& share, ByteCount size, Start start);

  [[nodiscard]] ByteCount used() const;

 private:
  struct Parked {
    ByteCount size;
    Start start;
  };
  using Waiting = std::map<std::shared_ptr<Share>, std::deque<Parked>>;  // none of them empty

  void release(Share& share, ByteCount size);
  void serve(std::unique_lock<std::mutex>& lock);
  [[nodiscard]] Waiting::iterator next();
  [[nodiscard]] ByteCount limit_of_each() const;
  [[nodiscard]] bool fits_right(const Share& share, ByteCount size) const;
  // Whose turn comes first.
  [[nodiscard]] static bool before(const Share& one, const Share& other);

  const ByteCount limit_;
  const ByteCount limit_of_one_;
  mutable std::mutex mutex_;
  ByteCount used_ = 0;
  std::uint64_t turns_ = 0;
  bool serving_ = false;  // somebody is starting what was parked
  Waiting waiting_;
};

}  // namespace tusk::server
