#include "tests/system/wan/packet.h"

#include <cstdint>
#include <optional>

#include "tests/system/wan/ip_format.h"

namespace tusk::wan {
namespace {

// A one's complement checksum after one of its 16-bit words has changed (RFC 1624, equation 3).
std::uint16_t updated_checksum(std::uint16_t checksum, std::uint16_t old_word, std::uint16_t new_word) {
  std::uint32_t sum =
      static_cast<std::uint16_t>(~checksum) + static_cast<std::uint16_t>(~old_word) + new_word;
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

struct Layout {
  bool ipv6 = false;
  std::uint8_t protocol = 0;
  std::size_t transport = 0;    // where the transport header starts
  bool later_fragment = false;  // no transport header here
};

std::optional<Layout> layout_of(std::span<const std::byte> packet) {
  if (packet.empty()) return std::nullopt;
  const unsigned version = u8(packet, 0) >> 4;
  if (version == 4 && packet.size() >= kIpv4HeaderMin) {
    const std::size_t header = std::size_t{u8(packet, 0) & 0xfU} * 4;
    if (header < kIpv4HeaderMin || header > packet.size()) return std::nullopt;
    const bool later_fragment = (u16(packet, 6) & 0x1fff) != 0;
    return Layout{false, u8(packet, 9), header, later_fragment};
  }
  if (version == 6 && packet.size() >= kIpv6Header) {
    return Layout{true, u8(packet, 6), kIpv6Header, false};
  }
  return std::nullopt;
}

std::size_t transport_header_size(const Layout& layout, std::span<const std::byte> packet) {
  if (layout.later_fragment) return 0;
  if (layout.protocol == kProtocolUdp) return kUdpHeader;
  if (layout.protocol != kProtocolTcp || packet.size() < layout.transport + kTcpHeaderMin) return 0;
  return static_cast<std::size_t>(u8(packet, layout.transport + 12) >> 4) * 4;
}

}  // namespace

bool corrupt(std::span<std::byte> packet, Random& random) {
  const std::optional<Layout> layout = layout_of(packet);
  if (!layout) return false;
  const std::size_t payload = layout->transport + transport_header_size(*layout, packet);
  if (payload >= packet.size()) return false;

  const std::size_t victim = payload + random.below(packet.size() - payload);
  // The 16-bit word of the checksum that the victim lies in; transport headers start at even offsets.
  const std::size_t word = victim & ~std::size_t{1};
  const bool padded = word + 1 >= packet.size();
  const auto word_value = [&] {
    return padded ? static_cast<std::uint16_t>(u8(packet, word) << 8) : u16(packet, word);
  };
  const std::uint16_t old_word = word_value();
  packet[victim] ^= static_cast<std::byte>(1 + random.below(255));

  if (layout->protocol == kProtocolUdp && !layout->later_fragment) {
    const std::size_t at = layout->transport + kUdpChecksumAt;
    if (!layout->ipv6) {
      put_u16(packet, at, 0);
    } else {
      const std::uint16_t checksum = updated_checksum(u16(packet, at), old_word, word_value());
      put_u16(packet, at, checksum == 0 ? 0xffff : checksum);
    }
  }
  return true;
}

bool mark_congestion(std::span<std::byte> packet) {
  const std::optional<Layout> layout = layout_of(packet);
  if (!layout) return false;
  // The two ECN bits: the lowest of the second byte in IPv4, in its middle in IPv6.
  const unsigned shift = layout->ipv6 ? 4 : 0;
  const unsigned ecn = u8(packet, 1) >> shift & 3;
  if (ecn == 0) return false;
  const std::uint16_t old_word = u16(packet, 0);
  packet[1] |= static_cast<std::byte>(3U << shift);
  if (!layout->ipv6) {
    put_u16(packet, kIpv4ChecksumAt,
            updated_checksum(u16(packet, kIpv4ChecksumAt), old_word, u16(packet, 0)));
  }
  return true;
}

}  // namespace tusk::wan
