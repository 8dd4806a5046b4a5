// Which directories a program that goes through a tree will come to, in what order: a pure guess from the
// places it has been to. TreeStream acts on it.
//
// Pure logic: no lock, no clock, no calls.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "proto/base/time.h"

namespace tusk::client {

class Inode;

// A directory by the way it is found: a name in another one, or ("" and no parent) by itself.
struct TreePlace {
  std::weak_ptr<Inode> parent;
  std::string name;
  std::weak_ptr<Inode> directory;
  TimePoint queued{};  // a program that was there since needs it no more
};

// One of the directories in a directory, in the order of its listing.
struct Subdirectory {
  std::string name;
  std::uint64_t ino = 0;
  std::shared_ptr<Inode> inode;
};

// The order in which a program comes to them that has come to the one at `first` first: find and du go in
// the order of the listing, ls -R by name, cp -r by inode number. `first` is the first of the result.
[[nodiscard]] std::vector<Subdirectory> in_order_of_visit(std::vector<Subdirectory> all, std::size_t first);

// Directories to be listed ahead, next first. Bounded: those furthest away are dropped.
class TreeWalk {
 public:
  static constexpr std::size_t kPlacesMax = 65'536;

  void put_in_front(std::vector<TreePlace> places);
  [[nodiscard]] bool empty() const { return places_.empty(); }
  [[nodiscard]] TreePlace take();
  void clear() { places_.clear(); }

 private:
  std::deque<TreePlace> places_;
};

}  // namespace tusk::client
