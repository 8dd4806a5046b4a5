// What lies where in IP packets (RFC 791, 8200, 768, 9293), and the big-endian numbers there. The caller has
// checked that they lie within.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tusk::wan {

constexpr std::size_t kIpv4HeaderMin = 20;
constexpr std::size_t kIpv6Header = 40;
constexpr std::size_t kUdpHeader = 8;
constexpr std::size_t kTcpHeaderMin = 20;
constexpr std::uint8_t kProtocolTcp = 6;
constexpr std::uint8_t kProtocolUdp = 17;

constexpr std::size_t kIpv4LengthAt = 2;
constexpr std::size_t kIpv4NumberAt = 4;
constexpr std::size_t kIpv4FragmentAt = 6;
constexpr std::size_t kIpv4ProtocolAt = 9;
constexpr std::size_t kIpv4ChecksumAt = 10;
constexpr std::size_t kIpv4AddressesAt = 12;
constexpr std::size_t kIpv6LengthAt = 4;
constexpr std::size_t kIpv6NextAt = 6;
constexpr std::size_t kIpv6AddressesAt = 8;
constexpr std::size_t kUdpLengthAt = 4;  // in the UDP header, as the next
constexpr std::size_t kUdpChecksumAt = 6;

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
