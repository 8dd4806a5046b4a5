#include "proto/rpc/flood_guard.h"

#include <algorithm>

namespace tusk::rpc {

void FloodGuard::note_flight(const Source& source, Proof proof) {
  const Thinned which{source, proof};
  if (const auto found = flights_.find(which); found != flights_.end()) {
    ++found->second;
  } else if (flights_.size() < kCountedMax) {
    flights_.emplace(which, 1);
  } else {
    // Misra and Gries (1982): what is frequent stays.
    for (auto& [other, count] : flights_) --count;
    std::erase_if(flights_, [](const auto& counted) { return counted.second == 0; });
  }
}

FloodGuard::Want FloodGuard::end_interval(TimePoint now, std::uint64_t kernel_drops) {
  std::vector<Thinned> loud = thinned_;
  for (const auto& [which, count] : flights_) {
    if (loud.size() == kThinnedMax) break;
    if (count > kFlightsMax && std::ranges::find(loud, which) == loud.end()) loud.push_back(which);
  }
  const std::uint64_t dropped = filtering_ ? kernel_drops - drops_before_ : 0;
  std::uint64_t flights = 0;
  for (const auto& [which, count] : flights_) flights += count;
  const bool flood = garbage_ > kGarbageMax || loud.size() > thinned_.size();
  drops_before_ = kernel_drops;
  if (flood || garbage_ + dropped + flights > kGarbageMax / 10) busy_at_ = now;
  begin_interval(now);
  if (filtering_ && now - busy_at_ >= kQuietFor) {
    filtering_ = false;
    thinned_.clear();
    return Want::kNoFilter;
  }
  const bool changed = loud.size() != thinned_.size();
  if (!flood || (filtering_ && !changed)) return Want::kNothing;
  filtering_ = true;
  thinned_ = std::move(loud);
  return Want::kFilter;
}

}  // namespace tusk::rpc
