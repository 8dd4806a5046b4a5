#include "fsclient/tree_order.h"

#include <dirent.h>

#include <algorithm>

namespace tusk::client {
namespace {

// A server that lies can have directories hold each other.
constexpr std::size_t kDepthMax = 64;

using Directories = std::vector<std::shared_ptr<Inode>>;

void add_below(const std::shared_ptr<Inode>& directory, VisitOrder order, std::size_t count,
               std::size_t depth, Directories& found) {
  if (depth == kDepthMax || found.size() >= count) return;
  std::vector<Sibling> below = children_of(*directory, DT_DIR);
  put_in_order(below, order, nullptr);
  for (const Sibling& next : below) {
    if (found.size() >= count) return;
    found.push_back(next.inode);
    add_below(next.inode, order, count, depth + 1, found);
  }
}

}  // namespace

std::shared_ptr<Inode> parent_of(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  return inode.parent.lock();
}

std::vector<Sibling> children_of(Inode& directory, unsigned char type) {
  std::vector<Sibling> children;
  const std::lock_guard lock(directory.mutex);
  if (!directory.directory || !directory.directory->listing) return children;
  for (const ListedEntry& entry : directory.directory->listing->entries)
    if (entry.inode && entry.type == type) children.push_back({entry.name, entry.ino, entry.inode});
  return children;
}

Directories directories_after(const std::shared_ptr<Inode>& directory, VisitOrder order, std::size_t count) {
  Directories found;
  add_below(directory, order, count, 0, found);
  std::shared_ptr<Inode> here = directory;
  for (std::size_t depth = 0; depth < kDepthMax && found.size() < count; ++depth) {
    const std::shared_ptr<Inode> parent = parent_of(*here);
    if (!parent) break;
    std::vector<Sibling> siblings = children_of(*parent, DT_DIR);
    put_in_order(siblings, order, nullptr);
    auto next = std::ranges::find(siblings, here, &Sibling::inode);
    if (next != siblings.end()) ++next;
    for (; next != siblings.end() && found.size() < count; ++next) {
      found.push_back(next->inode);
      add_below(next->inode, order, count, 0, found);
    }
    here = parent;
  }
  return found;
}

}  // namespace tusk::client
