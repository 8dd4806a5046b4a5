#include "proto/base/interval_set.h"

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
  Iterator at = first_touching(intervals_, begin);
  while (at != intervals_.end() && at->begin < end) {
    const Interval old = *at;
    const Interval left{old.begin, std::min(old.end, begin)};
    const Interval right{std::max(old.begin, end), old.end};
    removed += old.size() - (left.empty() ? 0 : left.size()) - (right.empty() ? 0 : right.size());
    if (left.empty() && right.empty()) {
      at = intervals_.erase(at);
    } else if (right.empty()) {
      *at++ = left;
    } else if (left.empty()) {
      *at++ = right;
    } else {
      *at = left;
      at = intervals_.insert(at + 1, right) + 1;
    }
  }
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
