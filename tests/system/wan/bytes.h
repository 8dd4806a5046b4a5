// Big-endian numbers in packets. The caller has checked that they lie within.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tusk::wan {

[[nodiscard]] inline std::uint8_t u8(std::span<const std::byte> bytes, std::size_t at) {
  return static_cast<std::uint8_t>(bytes[at]);
}
[[nodiscard]] inline std::uint16_t u16(std::span<const std::byte> bytes, std::size_t at) {
  return static_cast<std::uint16_t>(u8(bytes, at) << 8 | u8(bytes, at + 1));
}
inline void put_u16(std::span<std::byte> bytes, std::size_t at, std::uint16_t value) {
  bytes[at] = static_cast<std::byte>(value >> 8);
  bytes[at + 1] = static_cast<std::byte>(value & 0xff);
}

}  // namespace tusk::wan
