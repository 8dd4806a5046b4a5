#include "fsclient/block_cache.h"

#include <algorithm>
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

struct BlockBuffer::Kept {
  Kept(std::shared_ptr<BlockBuffer> of, std::size_t length) : buffer(std::move(of)), bytes(length) {
    buffer->kept_.fetch_add(1, std::memory_order_relaxed);
    buffer->budget_->keep(bytes);
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  ~Kept() {
    buffer->kept_.fetch_sub(1, std::memory_order_release);
    buffer->budget_->let_go(bytes);
  }

  std::shared_ptr<BlockBuffer> buffer;
  const ByteCount bytes;
};

SharedBytes BlockBuffer::keep(const std::shared_ptr<BlockBuffer>& buffer, std::size_t offset,
                              std::size_t length) {
  return {std::make_shared<Kept>(buffer, length), buffer->bytes().subspan(offset, length)};
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

// What has just been passed is worth more than what nobody has asked for in a long time.
void BlockCache::trim() {
  std::size_t futile = 0;
  trim(spent_, budget_->cap() / kSpentShare / kBlockSize, futile);
  trim(useful_, 0, futile);
  trim(spent_, 0, futile);
}

void BlockCache::trim(Order& order, Order::size_type left, std::size_t& futile) {
  if (!budget_->exceeded()) return;
  const auto there = size(order);
  for (auto attempts = there - std::min(there, left);
       attempts > 0 && futile < kFutileMax && budget_->exceeded(); --attempts) {
    const Entry entry = take_coldest_to_front(order);
    const std::shared_ptr<Inode> inode = entry.inode.lock();
    if (!inode) continue;  // it takes its blocks along as it goes
    const std::lock_guard lock(inode->mutex);
    if (!inode->file || !inode->file->data.evict(entry.index)) ++futile;
  }
}

}  // namespace tusk::client
