#include "tests/system/wan/packet_store.h"

#include <sys/mman.h>

#include <algorithm>

#include "proto/base/check.h"

namespace tusk::wan {
namespace {

constexpr std::size_t kCacheLine = 64;

std::size_t rounded_up(std::size_t size) { return (size + kCacheLine - 1) / kCacheLine * kCacheLine; }

}  // namespace

PacketStore::PacketStore(std::size_t slot_size, ByteCount memory) : slot_size_(rounded_up(slot_size)) {
  const std::size_t slots = std::max<std::size_t>(memory / slot_size_, 1);
  mapped_ = slots * slot_size_;
  void* mapping =
      mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TUSK_CHECK(mapping != MAP_FAILED);  // address space, not memory
  base_ = static_cast<std::byte*>(mapping);
  sizes_.resize(slots);
  free_.reserve(slots);
  for (std::size_t i = slots; i > 0; --i) free_.push_back(static_cast<std::uint32_t>(i - 1));
}

PacketStore::~PacketStore() { munmap(base_, mapped_); }

std::uint32_t PacketStore::take() {
  TUSK_CHECK(!free_.empty());
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  return slot;
}

}  // namespace tusk::wan
