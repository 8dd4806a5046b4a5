#include "fsclient/tree_walk.h"

#include <algorithm>
#include <iterator>

namespace tusk::client {

std::vector<Subdirectory> in_order_of_visit(std::vector<Subdirectory> all, std::size_t first) {
  const std::string name = all[first].name;
  const std::uint64_t ino = all[first].ino;
  const auto none_before = [&](auto comes_before) { return std::ranges::none_of(all, comes_before); };
  if (first == 0) return all;
  if (none_before([&](const Subdirectory& other) { return other.name < name; }))
    std::ranges::sort(all, {}, &Subdirectory::name);
  else if (none_before([&](const Subdirectory& other) { return other.ino < ino; }))
    std::ranges::sort(all, {}, &Subdirectory::ino);
  else  // in the middle of a listing
    std::ranges::rotate(all, all.begin() + static_cast<std::ptrdiff_t>(first));
  return all;
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
