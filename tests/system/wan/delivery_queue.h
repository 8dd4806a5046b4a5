// Packets under way, sorted by the time they are due. Holds references to packets (slots), not bytes.
//
// Nearly all packets come in the order of their due times and pass through a ring. The few that
// overtake or are held back go to a heap beside it. No allocation after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/base/time.h"
#include "tests/support/link/link.h"

namespace tusk::wan {

struct Delivery {
  TimePoint due{};
  TimePoint departs_at{};   // from the bottleneck; what a Retiming needs
  std::uint64_t order = 0;  // of arrival: breaks ties
  std::uint32_t slot = 0;
};

// Not thread-safe.
class DeliveryQueue {
 public:
  // Room for `capacity` deliveries; the owner of the slots never pushes more.
  explicit DeliveryQueue(std::size_t capacity);

  void push(TimePoint due, TimePoint departs_at, std::uint32_t slot);

  [[nodiscard]] bool empty() const { return ring_size_ == 0 && heap_.empty(); }
  [[nodiscard]] std::size_t size() const { return ring_size_ + heap_.size(); }

  // The due time of the next delivery, kNever when empty.
  [[nodiscard]] TimePoint next_due() const;

  // The next delivery; the queue is not empty.
  [[nodiscard]] const Delivery& front() const;
  void pop();

  // The bottleneck's rate has changed: moves all that stand in its queue.
  void retime(const support::Retiming& retiming);

 private:
  [[nodiscard]] Delivery& ring_at(std::size_t index) { return ring_[(ring_head_ + index) & mask_]; }
  [[nodiscard]] const Delivery& ring_at(std::size_t index) const {
    return ring_[(ring_head_ + index) & mask_];
  }
  [[nodiscard]] bool front_is_in_ring() const;
  void insert(const Delivery& delivery);

  std::vector<Delivery> ring_;  // due times never fall from head to tail; size is a power of two
  std::size_t mask_;
  std::size_t ring_head_ = 0;
  std::size_t ring_size_ = 0;
  std::vector<Delivery> heap_;
  std::uint64_t next_order_ = 0;
};

}  // namespace tusk::wan
