#include "fsserver/body_budget.h"

namespace tusk::server {

bool BodyBudget::reserve(ByteCount size, Start start) {
  {
    const std::lock_guard lock(mutex_);
    if (!parked_.empty() || !fits(size)) {
      if (parked_.size() >= kParkedReadsMax) return false;
      parked_.push_back({size, std::move(start)});
      return true;
    }
    used_ += size;
  }
  start(Reservation(shared_from_this(), size));
  return true;
}

void BodyBudget::release(ByteCount size) {
  std::unique_lock lock(mutex_);
  used_ -= size;
  // What is started may give its bytes back at once and come here again: the first one here goes on.
  if (serving_) return;
  serving_ = true;
  while (!parked_.empty() && fits(parked_.front().size)) {
    Parked parked = std::move(parked_.front());
    parked_.pop_front();
    used_ += parked.size;
    lock.unlock();
    parked.start(Reservation(shared_from_this(), parked.size));
    parked.start = nullptr;  // what it holds may belong to another budget: not with the mutex held
    lock.lock();
  }
  serving_ = false;
}

ByteCount BodyBudget::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

}  // namespace tusk::server
