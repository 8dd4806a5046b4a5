#include "proto/transport/siblings.h"

#include <algorithm>

namespace tusk::transport {
namespace {

// Who has said nothing for so long has nothing to send.
constexpr Duration kHeardMin = 250ms;
constexpr int kHeardRtts = 4;

constexpr double kAlike = 0.1;  // of a round trip
constexpr Duration kAlikeMin = 2ms;
constexpr double kQueueAlike = 0.4;
constexpr Duration kQueueAlikeMin = 5ms;
constexpr double kCapacityAlike = 1.6;

bool about(Duration a, Duration b, double share, Duration least) {
  const Duration apart = a > b ? a - b : b - a;
  return apart <= std::max(least, from_seconds(share * to_seconds(std::max(a, b))));
}

// Who starts beside others has not seen the path without their queue.
bool as_far(const Siblings::News& a, const Siblings::News& b) {
  const bool starts = a.rate <= 0 || b.rate <= 0;
  return about(a.base, b.base, kAlike, kAlikeMin) ||
         (starts && about(a.base + a.queue, b.base + b.queue, kQueueAlike, kQueueAlikeMin));
}

bool as_wide(const Siblings::News& a, const Siblings::News& b) {
  if (a.rate <= 0 || b.rate <= 0) return true;  // what a start knows of it is little
  return std::max(a.capacity, b.capacity) <= kCapacityAlike * std::min(a.capacity, b.capacity);
}

bool same_queue(const Siblings::News& a, const Siblings::News& b) {
  if (a.rate <= 0 || b.rate <= 0) return true;
  return about(a.queue, b.queue, kQueueAlike, kQueueAlikeMin);
}

}  // namespace

Siblings::Others Siblings::tell(const void* flow, const News& news) {
  const auto mine = std::ranges::find(flows_, flow, &Flow::name);
  if (mine == flows_.end())
    flows_.push_back({flow, news});
  else
    mine->news = news;
  Others others;
  double capacities = 0, known = 0;
  for (const Flow& other : flows_) {
    const auto heard = std::max<Duration>(kHeardMin, kHeardRtts * other.news.base);
    if (other.name == flow || news.now > other.news.now + heard) continue;
    if (!as_far(news, other.news)) continue;
    others.emptying = std::max(others.emptying, other.news.emptying);
    if (!as_wide(news, other.news)) continue;
    others.rate_of_all += other.news.rate;
    if (!same_queue(news, other.news)) continue;
    ++others.flows;
    others.parts += other.news.part;
    others.rate += other.news.rate;
    if (other.news.capacity <= 0) continue;
    capacities += other.news.capacity;
    ++known;
  }
  if (known > 0) others.capacity = capacities / known;
  return others;
}

void Siblings::leave(const void* flow) {
  std::erase_if(flows_, [&](const Flow& each) { return each.name == flow; });
}

}  // namespace tusk::transport
