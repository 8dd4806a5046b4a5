#include "fsclient/inode_table.h"

namespace tusk::client {

InodeTable::InodeTable(std::string root_handle) : root_(intern(root_handle)) { remember(root_); }

// A server may say that a directory is in itself: names then keep their inodes alive in a circle.
InodeTable::~InodeTable() {
  std::vector<std::shared_ptr<Inode>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [handle, weak] : by_handle_)
      if (std::shared_ptr<Inode> inode = weak.lock()) all.push_back(std::move(inode));
  }
  for (const auto& inode : all) {
    if (!inode->directory) continue;
    inode->directory->names.clear();
    inode->directory->listing.reset();
    inode->directory->awaiting.reset();
  }
}

std::shared_ptr<Inode> InodeTable::intern(std::string_view handle) {
  const std::lock_guard lock(mutex_);
  const auto known = by_handle_.find(handle);
  if (known != by_handle_.end())
    if (std::shared_ptr<Inode> inode = known->second.lock()) return inode;
  auto inode = std::make_shared<Inode>(*this, NodeId(next_id_++), std::string(handle));
  by_handle_[inode->handle()] = inode;
  return inode;
}

std::shared_ptr<Inode> InodeTable::make() {
  const std::lock_guard lock(mutex_);
  return std::make_shared<Inode>(*this, NodeId(next_id_++), std::string());
}

// An answer that had overtaken the log's may have brought it as another inode; nobody was shown that one,
// since its directory's names are this mount's own.
void InodeTable::adopt(const std::shared_ptr<Inode>& inode) {
  const std::lock_guard lock(mutex_);
  by_handle_[inode->handle()] = inode;
}

void InodeTable::rename(const std::shared_ptr<Inode>& inode, const std::string& handle) {
  const std::lock_guard lock(mutex_);
  inode->take_handle(handle);
  by_handle_[handle] = inode;
}

std::shared_ptr<Inode> InodeTable::find(std::string_view handle) {
  const std::lock_guard lock(mutex_);
  const auto known = by_handle_.find(handle);
  return known == by_handle_.end() ? nullptr : known->second.lock();
}

std::shared_ptr<Inode> InodeTable::find(NodeId id) {
  const std::lock_guard lock(mutex_);
  const auto known = by_id_.find(id);
  return known == by_id_.end() ? nullptr : known->second.inode;
}

void InodeTable::remember(const std::shared_ptr<Inode>& inode) {
  const std::lock_guard lock(mutex_);
  Remembered& entry = by_id_[inode->id];
  entry.inode = inode;
  ++entry.lookups;
}

void InodeTable::forget(NodeId id, std::uint64_t lookups) {
  std::shared_ptr<Inode> gone;  // after the lock: its destructor takes it again
  const std::lock_guard lock(mutex_);
  const auto known = by_id_.find(id);
  if (id == kRootNode || known == by_id_.end()) return;
  if (known->second.lookups > lookups) {
    known->second.lookups -= lookups;
    return;
  }
  gone = std::move(known->second.inode);
  by_id_.erase(known);
}

std::vector<std::shared_ptr<Inode>> InodeTable::all_remembered() {
  std::vector<std::shared_ptr<Inode>> inodes;
  const std::lock_guard lock(mutex_);
  inodes.reserve(by_id_.size());
  for (const auto& [id, entry] : by_id_) inodes.push_back(entry.inode);
  return inodes;
}

std::size_t InodeTable::remembered() {
  const std::lock_guard lock(mutex_);
  return by_id_.size();
}

// A new Inode of the same handle may have been made before the old one was quite gone.
void InodeTable::handle_gone(const std::string& handle) {
  const std::lock_guard lock(mutex_);
  const auto known = by_handle_.find(handle);
  if (known != by_handle_.end() && known->second.expired()) by_handle_.erase(known);
}

}  // namespace tusk::client
