// Bytes with shared ownership: what lets a block travel from the disk to a packet, or from a packet
// to the kernel, without a copy and without asking who frees it.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

namespace tusk {

// Read-only bytes and whatever keeps them alive. Cheap to copy. While any SharedBytes refers to a
// piece of memory nobody may write to that memory.
struct SharedBytes {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;

  [[nodiscard]] std::size_t size() const { return bytes.size(); }
  [[nodiscard]] bool empty() const { return bytes.empty(); }
  [[nodiscard]] SharedBytes subspan(std::size_t offset, std::size_t length = std::dynamic_extent) const {
    return {owner, bytes.subspan(offset, length)};
  }
};

// Writable bytes: whoever holds one is the only one to touch the bytes until it hands them on.
struct MutableSharedBytes {
  std::shared_ptr<void> owner;
  std::span<std::byte> bytes;

  [[nodiscard]] std::size_t size() const { return bytes.size(); }
  [[nodiscard]] SharedBytes first(std::size_t length) const { return {owner, bytes.first(length)}; }
};

// Fresh, uninitialised memory of `size` bytes.
[[nodiscard]] inline MutableSharedBytes allocate_bytes(std::size_t size) {
  auto memory = std::make_shared_for_overwrite<std::byte[]>(size);
  const std::span<std::byte> bytes(memory.get(), size);
  return {std::move(memory), bytes};
}

[[nodiscard]] inline SharedBytes copy_bytes(std::span<const std::byte> bytes) {
  MutableSharedBytes copy = allocate_bytes(bytes.size());
  if (!bytes.empty()) std::memcpy(copy.bytes.data(), bytes.data(), bytes.size());
  return {copy.owner, copy.bytes};
}

[[nodiscard]] inline std::span<const std::byte> as_byte_span(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

[[nodiscard]] inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace tusk
