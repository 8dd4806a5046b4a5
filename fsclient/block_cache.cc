#include "fsclient/block_cache.h"

#include <utility>

#include "fsclient/inode.h"

namespace tusk::client {

// The release in the destructor pairs with being_read()'s acquire: who sees no reader may write.
struct BlockBuffer::Loan {
  explicit Loan(std::shared_ptr<BlockBuffer> lent) : buffer(std::move(lent)) {
    buffer->readers_.fetch_add(1, std::memory_order_relaxed);
  }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;
  ~Loan() { buffer->readers_.fetch_sub(1, std::memory_order_release); }

  std::shared_ptr<BlockBuffer> buffer;
};

SharedBytes BlockBuffer::lend(const std::shared_ptr<BlockBuffer>& buffer, std::size_t offset,
                              std::size_t length) {
  return {std::make_shared<Loan>(buffer), buffer->bytes().subspan(offset, length)};
}

BlockCache::Position BlockCache::insert(std::weak_ptr<Inode> inode, std::uint64_t index) {
  const std::lock_guard lock(mutex_);
  useful_.push_front({std::move(inode), index});
  return useful_.begin();
}

void BlockCache::remove(Position position) {
  const std::lock_guard lock(mutex_);
  order_of(position).erase(position);
}

void BlockCache::touch(Position position) {
  const std::lock_guard lock(mutex_);
  useful_.splice(useful_.begin(), order_of(position), position);
  position->spent = false;
}

void BlockCache::note_spent(Position position) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(position->spent, true)) return;  // looked at once more: that is all the kernel needs
  spent_.splice(spent_.begin(), useful_, position);
}

BlockCache::Order::size_type BlockCache::size(const Order& order) {
  const std::lock_guard lock(mutex_);
  return order.size();
}

// A block that turns out not to be evictable is out of the way for the next attempt.
BlockCache::Entry BlockCache::take_coldest_to_front(Order& order) {
  const std::lock_guard lock(mutex_);
  if (order.empty()) return {};
  order.splice(order.begin(), order, std::prev(order.end()));
  return order.front();
}

void BlockCache::trim() {
  trim(spent_);
  trim(useful_);
}

void BlockCache::trim(Order& order) {
  if (!budget_->exceeded()) return;
  for (auto attempts = size(order); attempts > 0 && budget_->exceeded(); --attempts) {
    const Entry entry = take_coldest_to_front(order);
    const std::shared_ptr<Inode> inode = entry.inode.lock();
    if (!inode) continue;  // it takes its blocks along as it goes
    const std::lock_guard lock(inode->mutex);
    if (inode->file) inode->file->data.evict(entry.index);
  }
}

}  // namespace tusk::client
