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

// One of several things in one directory, which are kept in the order of its listing.
struct Sibling {
  std::string name;
  std::uint64_t ino = 0;
  std::shared_ptr<Inode> inode;
};

// In which order a program goes through a directory: find and du in that of the listing, ls -R, git and rsync
// by name, cp -r by inode number.
enum class VisitOrder : std::uint8_t { kListing, kName, kInode };

// The order in which `current` comes soonest after `previous` (null, or none of them: at the beginning); if
// it does in several, the one that was believed so far.
[[nodiscard]] VisitOrder guess_order(const std::vector<Sibling>& all, const Inode* previous,
                                     const Inode* current, VisitOrder believed = VisitOrder::kListing);
// What comes after `current`, then what is before it; `current` itself is the first. If it is none of them,
// all from the beginning.
void put_in_order(std::vector<Sibling>& all, VisitOrder order, const Inode* current);

// Directories to be listed ahead, next first. Bounded: those furthest away are dropped.
class TreeWalk {
 public:
  static constexpr std::size_t kPlacesMax = 65'536;

  void put_in_front(std::vector<TreePlace> places);
  [[nodiscard]] bool empty() const { return places_.empty(); }
  [[nodiscard]] TreePlace take();  // not empty
  void clear() { places_.clear(); }

 private:
  std::deque<TreePlace> places_;
};

}  // namespace tusk::client
