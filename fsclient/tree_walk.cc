#include "fsclient/tree_walk.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace tusk::client {

namespace {

auto find(const std::vector<Sibling>& all, const Inode* wanted) {
  return std::ranges::find_if(all, [wanted](const Sibling& s) { return s.inode.get() == wanted; });
}

// How many of `all` come before the one at `at`.
std::size_t rank(const std::vector<Sibling>& all, std::size_t at, VisitOrder order) {
  const Sibling& one = all[at];
  switch (order) {
    case VisitOrder::kListing:
      return at;
    case VisitOrder::kName:
      return static_cast<std::size_t>(
          std::ranges::count_if(all, [&](const Sibling& s) { return s.name < one.name; }));
    case VisitOrder::kInode:
      return static_cast<std::size_t>(
          std::ranges::count_if(all, [&](const Sibling& s) { return s.ino < one.ino; }));
  }
  __builtin_unreachable();
}

}  // namespace

VisitOrder guess_order(const std::vector<Sibling>& all, const Inode* previous, const Inode* current,
                       VisitOrder believed) {
  const auto here = find(all, current);
  const auto before = find(all, previous);
  VisitOrder best = believed;
  if (here == all.end()) return best;
  std::size_t best_steps = std::numeric_limits<std::size_t>::max();
  for (const VisitOrder order : {believed, VisitOrder::kListing, VisitOrder::kName, VisitOrder::kInode}) {
    std::size_t steps = rank(all, static_cast<std::size_t>(here - all.begin()), order);
    if (before != all.end()) {
      const std::size_t from = rank(all, static_cast<std::size_t>(before - all.begin()), order);
      steps = steps > from ? steps - from : all.size() + from - steps;  // backwards is unlikely
    }
    if (steps < best_steps) best = order;
    best_steps = std::min(best_steps, steps);
  }
  return best;
}

void put_in_order(std::vector<Sibling>& all, VisitOrder order, const Inode* current) {
  if (order == VisitOrder::kName) std::ranges::sort(all, {}, &Sibling::name);
  if (order == VisitOrder::kInode) std::ranges::sort(all, {}, &Sibling::ino);
  const auto here =
      std::ranges::find_if(all, [current](const Sibling& s) { return s.inode.get() == current; });
  if (here != all.end()) std::ranges::rotate(all, here);
}

void TreeWalk::put_in_front(std::vector<TreePlace> places) {
  places_.insert(places_.begin(), std::make_move_iterator(places.begin()),
                 std::make_move_iterator(places.end()));
  if (places_.size() > kPlacesMax) places_.resize(kPlacesMax);
}

TreePlace TreeWalk::take() {
  TreePlace next = std::move(places_.front());
  places_.pop_front();
  return next;
}

}  // namespace tusk::client
