#include "fsclient/disk_record.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "proto/base/check.h"
#include "proto/base/shared_bytes.h"

namespace tusk::client {
namespace {

constexpr std::uint32_t kRecordMagic = 0x314b5442;  // "BTK1"
constexpr std::size_t kCheckedBytes = 48;           // of the fixed part

template <class T>
void put_number(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(value >> (8 * i));
}

template <class T>
T number_at(std::span<const std::byte> bytes, std::size_t offset) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    value |= std::to_integer<std::uint64_t>(bytes[offset + i]) << (8 * i);
  return static_cast<T>(value);
}

std::uint64_t head_checksum(std::string_view fixed, std::string_view handle) {
  return XXH3_64bits_withSeed(handle.data(), handle.size(), XXH3_64bits(fixed.data(), fixed.size()));
}

}  // namespace

DiskChecksum disk_checksum(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

DiskBlockId disk_block_id(std::string_view handle, std::uint64_t block) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(handle.data(), handle.size(), block);
  return {hash.high64, hash.low64};
}

std::string encode_disk_head(const DiskHead& head) {
  TUSK_CHECK(head.handle.size() <= kDiskHandleMax);
  std::string out;
  out.reserve(head.head_bytes());
  put_number(out, kRecordMagic);
  put_number(out, head.length);
  put_number(out, head.block);
  put_number(out, head.change);
  for (const std::uint64_t part : head.checksum) put_number(out, part);
  put_number(out, static_cast<std::uint16_t>(head.handle.size()));
  out.resize(kCheckedBytes);
  put_number(out, head_checksum(out, head.handle));
  return out + head.handle;
}

std::optional<DiskHead> decode_disk_head(std::span<const std::byte> bytes) {
  if (bytes.size() < kDiskHeadFixed || number_at<std::uint32_t>(bytes, 0) != kRecordMagic)
    return std::nullopt;
  const std::size_t handle_bytes = number_at<std::uint16_t>(bytes, 40);
  if (handle_bytes > kDiskHandleMax || handle_bytes > bytes.size() - kDiskHeadFixed) return std::nullopt;
  DiskHead head{.handle = std::string(as_text(bytes.subspan(kDiskHeadFixed, handle_bytes))),
                .change = number_at<std::uint64_t>(bytes, 16),
                .block = number_at<std::uint64_t>(bytes, 8),
                .length = number_at<std::uint32_t>(bytes, 4),
                .checksum = {number_at<std::uint64_t>(bytes, 24), number_at<std::uint64_t>(bytes, 32)}};
  const bool intact = number_at<std::uint64_t>(bytes, kCheckedBytes) ==
                      head_checksum(as_text(bytes.first(kCheckedBytes)), head.handle);
  if (!intact || head.length == 0 || head.length > kDiskLengthMax || head.change == 0) return std::nullopt;
  return head;
}

}  // namespace tusk::client
