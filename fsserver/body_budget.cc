#include "fsserver/body_budget.h"

#include <algorithm>
#include <tuple>

#include "proto/rpc/right_share.h"

namespace tusk::server {
namespace {

bool fits(ByteCount used, ByteCount size, ByteCount limit) { return used == 0 || used + size <= limit; }

}  // namespace

bool BodyBudget::reserve(const std::shared_ptr<Share>& share, ByteCount size, Start start) {
  std::deque<Parked> first;
  first.push_back({size, std::move(start)});
  std::unique_lock lock(mutex_);
  const auto place = waiting_.find(share);
  if (place == waiting_.end())
    waiting_.emplace(share, std::move(first));
  else if (place->second.size() < kParkedReadsMax)
    place->second.push_back(std::move(first.front()));
  else
    return false;
  serve(lock);
  return true;
}

void BodyBudget::release(Share& share, ByteCount size) {
  std::unique_lock lock(mutex_);
  used_ -= size;
  share.used_ -= size;
  if (share.right_) share.right_->used_ -= size;
  serve(lock);
}

ByteCount BodyBudget::limit_of_each() const {
  const auto left = static_cast<double>(limit_ - std::min(limit_, used_));
  return std::min(limit_of_one_, static_cast<ByteCount>(left * left / static_cast<double>(limit_)));
}

bool BodyBudget::fits_right(const Share& share, ByteCount size) const {
  if (!share.right_ || share.right_->used_ == 0) return true;
  const ByteCount taken = std::min(limit_, used_ + size);
  return share.right_->used_ + size <= rpc::right_share(limit_, limit_ - taken);
}

bool BodyBudget::before(const Share& one, const Share& other) {
  const auto rank = [](const Share& share) {
    const Share& right = share.right_ ? *share.right_ : share;
    return std::tuple(right.used_, right.served_, share.used_, share.served_);
  };
  return rank(one) < rank(other);
}

// Of those that may have more the one that holds least.
BodyBudget::Waiting::iterator BodyBudget::next() {
  auto least = waiting_.end();
  const ByteCount limit = limit_of_each();
  for (auto each = waiting_.begin(); each != waiting_.end(); ++each) {
    const Share& share = *each->first;
    const ByteCount size = each->second.front().size;
    if (!fits(share.used_, size, limit) || !fits_right(share, size)) continue;
    if (least == waiting_.end() || before(share, *least->first)) least = each;
  }
  return least;
}

// What is started may give its bytes back at once and come here again: the first one here goes on.
void BodyBudget::serve(std::unique_lock<std::mutex>& lock) {
  if (serving_) return;
  serving_ = true;
  for (auto turn = next(); turn != waiting_.end(); turn = next()) {
    if (!fits(used_, turn->second.front().size, limit_)) break;
    Parked parked = std::move(turn->second.front());
    const std::shared_ptr<Share> share = turn->first;
    turn->second.pop_front();
    if (turn->second.empty()) waiting_.erase(turn);
    used_ += parked.size;
    share->used_ += parked.size;
    share->served_ = ++turns_;
    if (share->right_) {
      share->right_->used_ += parked.size;
      share->right_->served_ = turns_;
    }
    lock.unlock();
    parked.start(Reservation(shared_from_this(), share, parked.size));
    parked.start = nullptr;  // what it holds may end reservations: not with the mutex held
    lock.lock();
  }
  serving_ = false;
}

ByteCount BodyBudget::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

}  // namespace tusk::server
