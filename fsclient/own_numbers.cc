#include "fsclient/own_numbers.h"

#include <algorithm>

namespace tusk::client {

// The order of both sides makes sure that at least one of two that meet sees the other: saw() writes highest_
// and reads next_, take() writes next_ and reads highest_.
void OwnNumbers::note(std::uint64_t ino) {
  if ((ino & kForeign) != 0) return;
  std::uint64_t highest = highest_.load();
  while (ino > highest && !highest_.compare_exchange_weak(highest, ino)) {
  }
  if (ino <= next_.load() || ino > kNarrowMax) return;
  const std::lock_guard lock(mutex_);
  collided_.insert(ino);
  any_collided_.store(true, std::memory_order_release);
}

std::uint64_t OwnNumbers::take(std::uint64_t number) {
  std::uint64_t own = next_.load();
  while (own > std::max(highest_.load(), kNarrowMin)) {
    if (next_.compare_exchange_weak(own, own - 1) && highest_.load() < own) return own;
  }
  return wide(number);
}

bool OwnNumbers::is_among_collided(std::uint64_t own) const {
  const std::lock_guard lock(mutex_);
  return collided_.contains(own);
}

}  // namespace tusk::client
