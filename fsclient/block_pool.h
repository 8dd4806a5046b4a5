// Memory for whole blocks, from the system and back to it without malloc: a mount that keeps some hundred
// megabytes of blocks, which come and go on several threads, takes twice as much of it where each thread has
// an arena of its own.
//
// It comes in slabs of a huge page: the first use of 512 MiB are 131,000 page faults of 4 KiB each, else.
#pragma once

#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

#include "proto/base/strong_int.h"

namespace tusk::client {

constexpr ByteCount kBlockSize = 256 * 1024;

// Thread-safe.
class BlockPool {
 public:
  // Kept for the next that are needed: the system clears what it hands out.
#if defined(__SANITIZE_ADDRESS__)
  static constexpr std::size_t kSpareMax = 0;  // so that it sees who uses one that was given back
#else
  static constexpr std::size_t kSpareMax = 64;
#endif

  BlockPool() = default;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool();

  // kBlockSize bytes, whatever is in them. Throws std::bad_alloc.
  [[nodiscard]] std::byte* take();
  void give_back(std::byte* block);

 private:
  void reserve_slab();

  std::mutex mutex_;
  std::vector<std::byte*> spare_;
  std::vector<std::byte*> bare_;  // addresses whose memory the system has back, or has not given yet
  std::vector<void*> slabs_;      // as mapped
};

// Has the system provide the memory of `bytes` now, on the thread of the caller: else who first writes to it
// waits until a huge page is cleared, and on a virtual machine whose host has to find one first that takes 5
// ms. Where the system cannot (before Linux 5.14) nothing happens.
void provide_memory(std::span<std::byte> bytes);

}  // namespace tusk::client
