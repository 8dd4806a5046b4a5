#include "tests/system/wan/packet_store.h"

#include <sys/mman.h>

#include <algorithm>

#include "proto/base/check.h"

namespace tusk::wan {
namespace {

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kHugePage = 2 << 20;

std::size_t rounded_up(std::size_t size, std::size_t unit) { return (size + unit - 1) / unit * unit; }

}  // namespace

PacketStore::PacketStore(std::size_t slot_size, ByteCount memory, ByteCount ready)
    : slot_size_(rounded_up(slot_size, kCacheLine)) {
  const std::size_t slots = std::max<std::size_t>(memory / slot_size_, 1);
  const std::size_t used = slots * slot_size_;
  mapped_ = used + kHugePage;
  void* mapping =
      mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TUSK_CHECK(mapping != MAP_FAILED);  // address space, not memory
  mapping_ = static_cast<std::byte*>(mapping);
  base_ = mapping_ + (rounded_up(reinterpret_cast<std::uintptr_t>(mapping), kHugePage) -
                      reinterpret_cast<std::uintptr_t>(mapping));
  // Where the kernel has neither, the path only is less even.
  madvise(base_, used, MADV_HUGEPAGE);
  madvise(base_, std::min<std::size_t>(ready, used), MADV_POPULATE_WRITE);
  sizes_.resize(slots);
  free_.reserve(slots);
  for (std::size_t i = slots; i > 0; --i) free_.push_back(static_cast<std::uint32_t>(i - 1));
}

PacketStore::~PacketStore() { munmap(mapping_, mapped_); }

std::uint32_t PacketStore::take() {
  TUSK_CHECK(!free_.empty());
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  return slot;
}

}  // namespace tusk::wan
