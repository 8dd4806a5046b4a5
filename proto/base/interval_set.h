// A set of integers kept as sorted, disjoint, non-touching half-open intervals.
//
// Made for sets that grow mostly at their end and have few holes (bytes received, packets seen):
// appending is O(1), everything else O(log n) to find plus O(n) to shift.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tusk {

struct Interval {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;  // one past the last

  [[nodiscard]] std::uint64_t size() const { return end - begin; }
  [[nodiscard]] bool empty() const { return begin >= end; }
  bool operator==(const Interval&) const = default;
};

class IntervalSet {
 public:
  // Adds [begin, end); what was there already is harmless. Returns how many integers are new.
  std::uint64_t add(std::uint64_t begin, std::uint64_t end);
  // Removes [begin, end). Returns how many integers are gone.
  std::uint64_t remove(std::uint64_t begin, std::uint64_t end);
  void clear() { intervals_.clear(); }

  [[nodiscard]] bool empty() const { return intervals_.empty(); }
  [[nodiscard]] bool contains(std::uint64_t value) const;
  [[nodiscard]] bool covers(std::uint64_t begin, std::uint64_t end) const;
  // The parts of [begin, end) that are not in the set, in order; no more than `most` of them.
  [[nodiscard]] std::vector<Interval> gaps(std::uint64_t begin, std::uint64_t end,
                                           std::size_t most = SIZE_MAX) const;
  // The parts of [begin, end) that are in the set, in order.
  [[nodiscard]] std::vector<Interval> overlap(std::uint64_t begin, std::uint64_t end) const;
  [[nodiscard]] std::uint64_t total() const;

  // Sorted ascending.
  [[nodiscard]] const std::vector<Interval>& intervals() const { return intervals_; }
  [[nodiscard]] Interval front() const { return intervals_.front(); }
  [[nodiscard]] Interval back() const { return intervals_.back(); }

  bool operator==(const IntervalSet&) const = default;

 private:
  using Iterator = std::vector<Interval>::iterator;

  std::vector<Interval> intervals_;
};

}  // namespace tusk
