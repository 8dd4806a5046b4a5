#include "tests/system/wan/delivery_queue.h"

#include <algorithm>
#include <bit>

#include "proto/base/check.h"

namespace tusk::wan {
namespace {

// For the standard heap functions, which keep the largest in front: the later delivery is the smaller.
bool later(const Delivery& a, const Delivery& b) {
  return a.due != b.due ? a.due > b.due : a.order > b.order;
}

}  // namespace

DeliveryQueue::DeliveryQueue(std::size_t capacity) : ring_(std::bit_ceil(capacity)), mask_(ring_.size() - 1) {
  heap_.reserve(capacity);
}

void DeliveryQueue::push(TimePoint due, TimePoint departs_at, std::uint32_t slot) {
  insert({due, departs_at, next_order_++, slot});
}

TimePoint DeliveryQueue::next_due() const { return empty() ? kNever : front().due; }

const Delivery& DeliveryQueue::front() const {
  TUSK_CHECK(!empty());
  return front_is_in_ring() ? ring_at(0) : heap_.front();
}

void DeliveryQueue::pop() {
  TUSK_CHECK(!empty());
  if (front_is_in_ring()) {
    ring_head_ = (ring_head_ + 1) & mask_;
    --ring_size_;
  } else {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    heap_.pop_back();
  }
}

void DeliveryQueue::retime(const support::Retiming& retiming) {
  if (retiming.changes_nothing()) return;
  const auto move = [&retiming](Delivery& delivery) {
    const Duration shift = retiming.shift(delivery.departs_at);
    delivery.due += shift;
    delivery.departs_at += shift;
  };
  for (Delivery& delivery : heap_) move(delivery);
  std::make_heap(heap_.begin(), heap_.end(), later);
  // Jitter and changed delays can make a moved packet overtake: taking all out and putting them back
  // restores the ring's order.
  const std::size_t count = ring_size_;
  ring_size_ = 0;
  for (std::size_t i = 0; i < count; ++i) {
    Delivery delivery = ring_at(i);
    move(delivery);
    insert(delivery);  // writes at or before the place just read
  }
}

bool DeliveryQueue::front_is_in_ring() const {
  if (ring_size_ == 0) return false;
  return heap_.empty() || !later(ring_at(0), heap_.front());
}

void DeliveryQueue::insert(const Delivery& delivery) {
  if (ring_size_ == 0 || delivery.due >= ring_at(ring_size_ - 1).due) {
    TUSK_CHECK(ring_size_ < ring_.size());
    ring_at(ring_size_++) = delivery;
  } else {
    TUSK_CHECK(heap_.size() < heap_.capacity());
    heap_.push_back(delivery);
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
}

}  // namespace tusk::wan
