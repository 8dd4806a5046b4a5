// Reading and writing the bytes of packets: big-endian integers and QUIC's variable-length integers
// (RFC 9000 §16). Both stay inside their span; a reader turns "bad" at the first overrun and stays so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "proto/base/check.h"

namespace tusk {

constexpr std::uint64_t kVarintMax = (1ull << 62) - 1;

// Bytes that `value` takes as a variable-length integer: 1, 2, 4 or 8.
[[nodiscard]] constexpr std::size_t varint_size(std::uint64_t value) {
  if (value < (1ull << 6)) return 1;
  if (value < (1ull << 14)) return 2;
  if (value < (1ull << 30)) return 4;
  return 8;
}

// Reads hostile bytes. After an overrun every read gives zero or nothing and ok() is false, so a
// decoder reads all its fields and asks once.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] std::size_t remaining() const { return bytes_.size(); }
  [[nodiscard]] bool at_end() const { return bytes_.empty(); }

  std::uint8_t u8() { return static_cast<std::uint8_t>(big_endian(1)); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(big_endian(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(big_endian(4)); }
  std::uint64_t u64() { return big_endian(8); }

  std::uint64_t varint() {
    if (bytes_.empty()) return overrun();
    const auto first = std::to_integer<std::uint8_t>(bytes_[0]);
    const std::size_t length = 1u << (first >> 6);
    const std::uint64_t value = big_endian(length);
    return ok_ ? value & (~0ull >> (66 - 8 * length)) & kVarintMax : 0;
  }

  std::span<const std::byte> take(std::size_t count) {
    if (count > bytes_.size()) return overrun(), std::span<const std::byte>();
    const auto taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }

  std::span<const std::byte> take_rest() { return take(bytes_.size()); }

 private:
  std::uint64_t overrun() {
    ok_ = false;
    bytes_ = {};
    return 0;
  }

  std::uint64_t big_endian(std::size_t length) {
    if (length > bytes_.size()) return overrun();
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < length; ++i) value = value << 8 | std::to_integer<std::uint64_t>(bytes_[i]);
    bytes_ = bytes_.subspan(length);
    return value;
  }

  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

// Writes into a span that the caller made large enough: running over is our own bug.
class ByteWriter {
 public:
  explicit ByteWriter(std::span<std::byte> bytes) : bytes_(bytes) {}

  [[nodiscard]] std::size_t written() const { return written_; }
  [[nodiscard]] std::size_t room() const { return bytes_.size() - written_; }

  void u8(std::uint8_t v) { big_endian(v, 1); }
  void u16(std::uint16_t v) { big_endian(v, 2); }
  void u32(std::uint32_t v) { big_endian(v, 4); }
  void u64(std::uint64_t v) { big_endian(v, 8); }

  void varint(std::uint64_t v) {
    TUSK_CHECK(v <= kVarintMax);
    const std::size_t length = varint_size(v);
    const std::uint64_t prefix = length == 1 ? 0 : length == 2 ? 1 : length == 4 ? 2 : 3;
    big_endian(v | prefix << (8 * length - 2), length);
  }

  void bytes(std::span<const std::byte> source) {
    TUSK_CHECK(source.size() <= room());
    if (!source.empty()) std::memcpy(bytes_.data() + written_, source.data(), source.size());
    written_ += source.size();
  }

  void zeros(std::size_t count) {
    TUSK_CHECK(count <= room());
    std::memset(bytes_.data() + written_, 0, count);
    written_ += count;
  }

 private:
  void big_endian(std::uint64_t v, std::size_t length) {
    TUSK_CHECK(length <= room());
    for (std::size_t i = length; i-- > 0; v >>= 8) bytes_[written_ + i] = static_cast<std::byte>(v);
    written_ += length;
  }

  std::span<std::byte> bytes_;
  std::size_t written_ = 0;
};

}  // namespace tusk
