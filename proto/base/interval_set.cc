#include "proto/base/interval_set.h"

#include <utility>

namespace tusk {
namespace {

// The first interval that ends at or after `value`: the first that [value, ...) could touch.
template <class Intervals>
auto first_touching(Intervals& intervals, std::uint64_t value) {
  return std::lower_bound(intervals.begin(), intervals.end(), value,
                          [](const Interval& i, std::uint64_t v) { return i.end < v; });
}

}  // namespace

std::uint64_t IntervalSet::add(std::uint64_t begin, std::uint64_t end) {
  if (begin >= end) return 0;
  if (intervals_.empty() || begin > intervals_.back().end) {
    intervals_.push_back({begin, end});
    return end - begin;
  }
  if (begin == intervals_.back().end) {
    intervals_.back().end = end;
    return end - begin;
  }
  const Iterator first = first_touching(intervals_, begin);
  Iterator last = first;
  Interval merged{begin, end};
  std::uint64_t present = 0;
  for (; last != intervals_.end() && last->begin <= end; ++last) {
    const std::uint64_t low = std::max(last->begin, begin);
    const std::uint64_t high = std::min(last->end, end);
    if (high > low) present += high - low;
    merged.begin = std::min(merged.begin, last->begin);
    merged.end = std::max(merged.end, last->end);
  }
  if (first == last) {
    intervals_.insert(first, merged);
  } else {
    *first = merged;
    intervals_.erase(first + 1, last);
  }
  return end - begin - present;
}

std::uint64_t IntervalSet::remove(std::uint64_t begin, std::uint64_t end) {
  if (begin >= end) return 0;
  std::uint64_t removed = 0;
  Iterator first = first_touching(intervals_, begin);
  if (first != intervals_.end() && first->begin < begin) {
    // What lies before stays.
    const std::uint64_t old_end = std::exchange(first->end, begin);
    if (old_end > end) {
      intervals_.insert(first + 1, {end, old_end});
      return end - begin;
    }
    removed = old_end - begin;
    ++first;
  }
  Iterator last = first;
  for (; last != intervals_.end() && last->end <= end; ++last) removed += last->size();
  if (last != intervals_.end() && last->begin < end) {
    removed += end - last->begin;
    last->begin = end;
  }
  // All at once: one by one each would move all that follow.
  intervals_.erase(first, last);
  return removed;
}

bool IntervalSet::contains(std::uint64_t value) const { return covers(value, value + 1); }

bool IntervalSet::covers(std::uint64_t begin, std::uint64_t end) const {
  if (begin >= end) return true;
  const auto at = first_touching(intervals_, end);
  return at != intervals_.end() && at->begin <= begin && end <= at->end;
}

std::vector<Interval> IntervalSet::gaps(std::uint64_t begin, std::uint64_t end, std::size_t most) const {
  std::vector<Interval> result;
  for (auto at = first_touching(intervals_, begin);
       at != intervals_.end() && at->begin < end && result.size() < most; ++at) {
    if (at->begin > begin) result.push_back({begin, at->begin});
    begin = std::max(begin, at->end);
  }
  if (begin < end && result.size() < most) result.push_back({begin, end});
  return result;
}

std::vector<Interval> IntervalSet::overlap(std::uint64_t begin, std::uint64_t end) const {
  std::vector<Interval> result;
  for (auto at = first_touching(intervals_, begin); at != intervals_.end() && at->begin < end; ++at) {
    const Interval part{std::max(at->begin, begin), std::min(at->end, end)};
    if (!part.empty()) result.push_back(part);
  }
  return result;
}

std::uint64_t IntervalSet::total() const {
  std::uint64_t sum = 0;
  for (const Interval& i : intervals_) sum += i.size();
  return sum;
}

}  // namespace tusk
