// The memory of packets under way: slots of one size, taken and given back without allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "proto/base/strong_int.h"

namespace tusk::wan {

// Not thread-safe. In huge pages: on a virtual machine touching a small page again may take 80 us, and those
// of 25 MB kept the path, and all that share its processor, for up to 50 ms (docs/decisions/0012).
class PacketStore {
 public:
  // As many slots of `slot_size` bytes as fit in `memory` bytes; room for at least one. Memory for the first
  // `ready` bytes is there from the start, for others once they are used: the slot given back last is taken
  // first.
  PacketStore(std::size_t slot_size, ByteCount memory, ByteCount ready);
  ~PacketStore();
  PacketStore(const PacketStore&) = delete;
  PacketStore& operator=(const PacketStore&) = delete;

  [[nodiscard]] std::size_t capacity() const { return sizes_.size(); }
  [[nodiscard]] std::size_t available() const { return free_.size(); }

  // available() > 0.
  [[nodiscard]] std::uint32_t take();
  void give_back(std::uint32_t slot) { free_.push_back(slot); }

  // The whole slot, and the packet in it.
  [[nodiscard]] std::span<std::byte> room(std::uint32_t slot) {
    return {base_ + slot * slot_size_, slot_size_};
  }
  [[nodiscard]] std::span<std::byte> packet(std::uint32_t slot) { return room(slot).first(sizes_[slot]); }
  void set_size(std::uint32_t slot, std::size_t size) { sizes_[slot] = static_cast<std::uint32_t>(size); }

 private:
  std::size_t slot_size_;
  std::size_t mapped_;
  std::byte* mapping_;
  std::byte* base_;  // where the first huge page of it begins
  std::vector<std::uint32_t> sizes_;
  std::vector<std::uint32_t> free_;
};

}  // namespace tusk::wan
