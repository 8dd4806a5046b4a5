#include "fsclient/block_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>

namespace tusk::client {
namespace {

constexpr std::size_t kSlabSize = 2 << 20;  // a huge page of x86-64 and, mostly, of arm64

std::byte* pop(std::vector<std::byte*>& blocks) {
  std::byte* const block = blocks.back();
  blocks.pop_back();
  return block;
}

}  // namespace

#if defined(__SANITIZE_ADDRESS__)

BlockPool::~BlockPool() = default;
std::byte* BlockPool::take() { return new std::byte[kBlockSize]; }
void BlockPool::give_back(std::byte* block) { delete[] block; }

#else

BlockPool::~BlockPool() {
  for (void* slab : slabs_) ::munmap(slab, kSlabSize);
}

std::byte* BlockPool::take() {
  const std::lock_guard lock(mutex_);
  if (!spare_.empty()) return pop(spare_);
  if (bare_.empty()) reserve_slab();
  return pop(bare_);
}

void BlockPool::give_back(std::byte* block) {
  {
    const std::lock_guard lock(mutex_);
    if (spare_.size() < kSpareMax) return spare_.push_back(block);
  }
  // A part of a huge page: the kernel must not make one of the rest again and fill the hole.
  void* const slab = block - reinterpret_cast<std::uintptr_t>(block) % kSlabSize;
  (void)::madvise(slab, kSlabSize, MADV_NOHUGEPAGE);
  (void)::madvise(block, kBlockSize, MADV_DONTNEED);
  const std::lock_guard lock(mutex_);
  bare_.push_back(block);
}

void BlockPool::reserve_slab() {
  constexpr std::size_t kBlocks = kSlabSize / kBlockSize;
  // So that giving back never needs memory.
  spare_.reserve(kSpareMax);
  slabs_.reserve(slabs_.size() + 1);
  if (bare_.capacity() < kBlocks * (slabs_.size() + 1)) bare_.reserve(2 * kBlocks * (slabs_.size() + 1));
  void* const mapped = ::mmap(nullptr, 2 * kSlabSize, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  const std::size_t before = (kSlabSize - reinterpret_cast<std::uintptr_t>(mapped) % kSlabSize) % kSlabSize;
  auto* const slab = static_cast<std::byte*>(mapped) + before;
  if (before > 0) ::munmap(mapped, before);
  ::munmap(slab + kSlabSize, kSlabSize - before);
  slabs_.push_back(slab);
  (void)::madvise(slab, kSlabSize, MADV_HUGEPAGE);  // else in pages of the usual size
  for (std::size_t at = kSlabSize; at > 0; at -= kBlockSize) bare_.push_back(slab + at - kBlockSize);
}

#endif

void provide_memory(std::span<std::byte> bytes) {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  std::byte* const first = bytes.data() - reinterpret_cast<std::uintptr_t>(bytes.data()) % page;
  (void)::madvise(first, static_cast<std::size_t>(bytes.data() + bytes.size() - first), MADV_POPULATE_WRITE);
}

}  // namespace tusk::client
