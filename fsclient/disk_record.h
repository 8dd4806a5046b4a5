// One block of a file as it lies on the disk: a head that says what it is, then its bytes. Numbers are
// little endian.
//
//   head   = magic (4) length (4) block (8) change (8) checksum of the bytes (16) handle's length (2) zeros
//   (6)
//            checksum of all this and the handle (8) handle
//   record = head bytes (length)
//
// Checksums are XXH3 (64 and 128 bits): against what disks and crashes do to bytes, not against people, who
// cannot write here. Pure: no file, no clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tusk::client {

constexpr std::size_t kDiskHeadFixed = 56;       // bytes before the handle
constexpr std::size_t kDiskHandleMax = 128;      // as the schema says
constexpr std::size_t kDiskLengthMax = 1 << 20;  // a head that says more is damaged

// Which bytes: a block of a file as it was when its change counter had this value.
struct DiskKey {
  std::string_view handle;
  std::uint64_t change = 0;  // not 0
  std::uint64_t block = 0;   // of kBlockSize bytes
};

using DiskChecksum = std::array<std::uint64_t, 2>;
[[nodiscard]] DiskChecksum disk_checksum(std::span<const std::byte> bytes);

// Stands for a file and a block of it in memory: the head on the disk is compared in full before its bytes
// are used.
struct DiskBlockId {
  std::uint64_t high = 0, low = 0;
  bool operator==(const DiskBlockId&) const = default;
};
[[nodiscard]] DiskBlockId disk_block_id(std::string_view handle, std::uint64_t block);

struct DiskHead {
  std::string handle;
  std::uint64_t change = 0;
  std::uint64_t block = 0;
  std::uint32_t length = 0;
  DiskChecksum checksum{};

  [[nodiscard]] std::size_t head_bytes() const { return kDiskHeadFixed + handle.size(); }
  [[nodiscard]] std::size_t record_bytes() const { return head_bytes() + length; }
  [[nodiscard]] bool is(const DiskKey& key) const {
    return handle == key.handle && change == key.change && block == key.block;
  }
};

// Precondition: the handle is no longer than kDiskHandleMax.
[[nodiscard]] std::string encode_disk_head(const DiskHead& head);
// The head that `bytes` begin with; nullopt for anything that encode_disk_head() did not make.
[[nodiscard]] std::optional<DiskHead> decode_disk_head(std::span<const std::byte> bytes);

}  // namespace tusk::client

template <>
struct std::hash<tusk::client::DiskBlockId> {
  std::size_t operator()(const tusk::client::DiskBlockId& id) const noexcept { return id.low; }
};
