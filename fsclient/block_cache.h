// The memory of a mount: one cap over all blocks of all files, and who is evicted first.
//
// Blocks belong to their file (file_data.h); this knows only how much memory they take and in which
// order they were last of use. Clean blocks that nobody is waiting for can be evicted; dirty blocks,
// blocks on their way and blocks a reply is reading stay, so the cap can be exceeded by what the
// programs using the mount are doing at this moment.
//
// Lock order: an Inode's mutex, then BlockCache's. trim() takes them one after the other.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>

#include "fsclient/block_pool.h"
#include "proto/base/shared_bytes.h"
#include "proto/base/strong_int.h"

namespace tusk::client {

class Inode;

// Counts bytes in use against a cap, which grows with what the path holds: reading ahead and writing behind
// need several times that (reader.h), and on most paths that is little. Thread-safe.
class MemoryBudget {
 public:
  static constexpr ByteCount kCapPerPathByte = 6;

  // `cap_max`: whatever the path.
  MemoryBudget(ByteCount cap, ByteCount cap_max) : cap_max_(cap_max), cap_(std::min(cap, cap_max)) {}

  // The path holds so many bytes on their way.
  void grow_for(ByteCount path_bytes) {
    const ByteCount wanted = std::min(cap_max_, kCapPerPathByte * path_bytes);
    ByteCount cap = cap_.load(std::memory_order_relaxed);
    while (cap < wanted && !cap_.compare_exchange_weak(cap, wanted, std::memory_order_relaxed)) {
    }
  }

  void take(ByteCount bytes) { used_.fetch_add(bytes, std::memory_order_relaxed); }
  void give_back(ByteCount bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

  [[nodiscard]] ByteCount used() const { return used_.load(std::memory_order_relaxed); }
  [[nodiscard]] ByteCount cap() const { return cap_.load(std::memory_order_relaxed); }
  [[nodiscard]] ByteCount cap_max() const { return cap_max_; }
  // What is kept for a server that may lose it (uncommitted.h) takes no room from the rest while there is
  // more.
  [[nodiscard]] bool exceeded() const { return used() > std::min(cap_max_, cap() + kept()); }
  void keep(ByteCount bytes) { kept_.fetch_add(bytes, std::memory_order_relaxed); }
  void let_go(ByteCount bytes) { kept_.fetch_sub(bytes, std::memory_order_relaxed); }
  [[nodiscard]] ByteCount kept() const { return kept_.load(std::memory_order_relaxed); }
  // For what is on its way, ahead of readers or behind writers: it cannot be evicted.
  [[nodiscard]] ByteCount on_its_way_max() const { return cap() / 3 * 2; }

  [[nodiscard]] BlockPool& blocks() { return blocks_; }

 private:
  BlockPool blocks_;
  const ByteCount cap_max_;
  std::atomic<ByteCount> cap_;
  std::atomic<ByteCount> used_{0};
  std::atomic<ByteCount> kept_{0};
};

// The memory of one block, or of the part of it that is used.
class BlockBuffer {
 public:
  BlockBuffer(std::shared_ptr<MemoryBudget> budget, std::size_t capacity)
      : budget_(std::move(budget)),
        memory_(capacity == kBlockSize ? budget_->blocks().take() : new std::byte[capacity]),
        capacity_(capacity) {
    budget_->take(capacity_);
  }
  BlockBuffer(const BlockBuffer&) = delete;
  BlockBuffer& operator=(const BlockBuffer&) = delete;
  ~BlockBuffer() {
    if (capacity_ == kBlockSize)
      budget_->blocks().give_back(memory_);
    else
      delete[] memory_;
    budget_->give_back(capacity_);
  }

  [[nodiscard]] std::size_t capacity() const { return capacity_; }
  [[nodiscard]] std::span<std::byte> bytes() { return {memory_, capacity_}; }

  // Bytes for a reply to read outside any lock. While one lives, being_read() is true and nobody
  // may write to the buffer.
  [[nodiscard]] static SharedBytes lend(const std::shared_ptr<BlockBuffer>& buffer, std::size_t offset,
                                        std::size_t length);
  [[nodiscard]] bool being_read() const { return readers_.load(std::memory_order_acquire) != 0; }

  // Bytes that are to be sent, and sent again until they are on the server's disk. A program may write over
  // them: what it writes is sent after them. Nobody else may: while some are kept the buffer is not for bytes
  // of the server in their place.
  [[nodiscard]] static SharedBytes keep(const std::shared_ptr<BlockBuffer>& buffer, std::size_t offset,
                                        std::size_t length);
  [[nodiscard]] bool kept() const { return kept_.load(std::memory_order_acquire) != 0; }

 private:
  struct Loan;
  struct Kept;

  const std::shared_ptr<MemoryBudget> budget_;
  std::byte* const memory_;
  const std::size_t capacity_;
  std::atomic<std::uint32_t> readers_{0};
  std::atomic<std::uint32_t> kept_{0};
};

class BlockCache {
 public:
  // A block's place in one of the two orders. Kept by the block; empty until insert().
  struct Entry {
    std::weak_ptr<Inode> inode;
    std::uint64_t index = 0;
    bool spent = false;
  };
  using Position = std::list<Entry>::iterator;

  BlockCache(ByteCount cap, ByteCount cap_max) : budget_(std::make_shared<MemoryBudget>(cap, cap_max)) {}

  [[nodiscard]] const std::shared_ptr<MemoryBudget>& budget() const { return budget_; }

  // All thread-safe; may be called with the block's inode locked.
  [[nodiscard]] Position insert(std::weak_ptr<Inode> inode, std::uint64_t index);
  void remove(Position position);
  void touch(Position position);  // of use just now
  // A reader in order has passed it: evicted before what nobody has passed, but for the last of those. A
  // kernel that is short of memory drops pages that it read ahead, and asks for them once more.
  void note_spent(Position position);

  // Evicts until the cap holds again or nothing more can go. No lock may be held.
  void trim();

 private:
  using Order = std::list<Entry>;
  // Of the cap: so much of what was passed stays as long as others can go.
  static constexpr ByteCount kSpentShare = 8;
  // Looked at by a trim() that could not go: of the rest the next one looks at others.
  static constexpr std::size_t kFutileMax = 64;

  [[nodiscard]] Order& order_of(Position position) { return position->spent ? spent_ : useful_; }
  // So many of them stay.
  void trim(Order& order, Order::size_type left, std::size_t& futile);
  [[nodiscard]] Order::size_type size(const Order& order);
  [[nodiscard]] Entry take_coldest_to_front(Order& order);

  const std::shared_ptr<MemoryBudget> budget_;
  std::mutex mutex_;
  Order useful_;  // front: of use last
  Order spent_;   // front: passed last
};

}  // namespace tusk::client
