// Memory for whole blocks, from the system and back to it without malloc: a mount that keeps some hundred
// megabytes of blocks, which come and go on several threads, takes twice as much of it where each thread has
// an arena of its own.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <mutex>
#include <new>
#include <vector>

#include "proto/base/strong_int.h"

namespace tusk::client {

constexpr ByteCount kBlockSize = 256 * 1024;

// Thread-safe.
class BlockPool {
 public:
  // Kept for the next that are needed: the system clears what it hands out, page by page.
#if defined(__SANITIZE_ADDRESS__)
  static constexpr std::size_t kSpareMax = 0;  // so that it sees who uses one that was given back
#else
  static constexpr std::size_t kSpareMax = 64;
#endif

  BlockPool() = default;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool() {
    for (std::byte* block : spare_) release(block);
  }

  // kBlockSize bytes, whatever is in them. Throws std::bad_alloc.
  [[nodiscard]] std::byte* take() {
    {
      const std::lock_guard lock(mutex_);
      if (!spare_.empty()) {
        std::byte* const block = spare_.back();
        spare_.pop_back();
        return block;
      }
    }
    return reserve();
  }

  void give_back(std::byte* block) {
    {
      const std::lock_guard lock(mutex_);
      if (spare_.size() < kSpareMax) return spare_.push_back(block);
    }
    release(block);
  }

 private:
#if defined(__SANITIZE_ADDRESS__)
  static std::byte* reserve() { return new std::byte[kBlockSize]; }
  static void release(const std::byte* block) { delete[] block; }
#else
  static std::byte* reserve() {
    void* const block =
        ::mmap(nullptr, kBlockSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) throw std::bad_alloc();
    return static_cast<std::byte*>(block);
  }
  static void release(std::byte* block) { ::munmap(block, kBlockSize); }
#endif

  std::mutex mutex_;
  std::vector<std::byte*> spare_;
};

}  // namespace tusk::client
