#include "tests/system/wan/packet.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace tusk::wan {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint8_t kUdp = 17;
constexpr std::uint8_t kTcp = 6;

void put_u16(Bytes& bytes, std::size_t at, std::size_t value) {
  bytes[at] = static_cast<std::byte>(value >> 8 & 0xff);
  bytes[at + 1] = static_cast<std::byte>(value & 0xff);
}

std::uint16_t u16(const Bytes& bytes, std::size_t at) {
  return static_cast<std::uint16_t>(std::to_integer<int>(bytes[at]) << 8 |
                                    std::to_integer<int>(bytes[at + 1]));
}

// The one's complement sum of bytes [from, to), RFC 1071: 0xffff over data with a right checksum in it.
std::uint32_t sum(const Bytes& bytes, std::size_t from, std::size_t to, std::uint32_t start = 0) {
  std::uint32_t total = start;
  for (std::size_t i = from; i < to; ++i)
    total += std::to_integer<std::uint32_t>(bytes[i]) << (i % 2 == 0 ? 8 : 0);
  while (total > 0xffff) total = (total & 0xffff) + (total >> 16);
  return total;
}

Bytes ipv4(std::uint8_t protocol, std::size_t transport_size, std::uint8_t tos = 0) {
  Bytes packet(20 + transport_size, std::byte{0x33});
  std::fill_n(packet.begin(), 20, std::byte{0});
  packet[0] = std::byte{0x45};
  packet[1] = std::byte{tos};
  put_u16(packet, 2, packet.size());
  packet[8] = std::byte{64};
  packet[9] = std::byte{protocol};
  put_u16(packet, 12, 0x0a01);
  put_u16(packet, 16, 0x0a02);
  put_u16(packet, 10, ~sum(packet, 0, 20) & 0xffff);
  return packet;
}

// A UDP packet with the checksum that its pseudo header demands.
Bytes ipv6_udp(std::size_t payload) {
  Bytes packet(48 + payload, std::byte{0x33});
  std::fill_n(packet.begin(), 48, std::byte{0});
  packet[0] = std::byte{0x60};
  put_u16(packet, 4, 8 + payload);
  packet[6] = std::byte{kUdp};
  put_u16(packet, 8, 0xfd00);
  put_u16(packet, 24, 0xfd00);
  put_u16(packet, 44, 8 + payload);
  const std::uint32_t pseudo = kUdp + 8 + static_cast<std::uint32_t>(payload);
  put_u16(packet, 46, ~sum(packet, 8, packet.size(), pseudo) & 0xffff);
  return packet;
}

std::size_t differences(const Bytes& a, const Bytes& b, std::size_t from, std::size_t to) {
  std::size_t count = 0;
  for (std::size_t i = from; i < to; ++i) count += a[i] != b[i];
  return count;
}

TEST(Corrupt, ChangesOnePayloadByteAndClearsTheUdpChecksum) {
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    const Bytes before = ipv4(kUdp, 8 + 101);
    Bytes after = before;
    ASSERT_TRUE(corrupt(after, random));
    EXPECT_EQ(differences(before, after, 0, 26), 0U);
    EXPECT_EQ(u16(after, 26), 0);
    EXPECT_EQ(differences(before, after, 28, before.size()), 1U);
  }
}

TEST(Corrupt, MakesAnIpv6UdpChecksumRightAgain) {
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    const std::size_t payload = 1 + static_cast<std::size_t>(i) % 64;  // odd sizes end in half a word
    const Bytes before = ipv6_udp(payload);
    Bytes after = before;
    ASSERT_TRUE(corrupt(after, random));
    EXPECT_EQ(differences(before, after, 48, before.size()), 1U);
    const std::uint32_t pseudo = kUdp + 8 + static_cast<std::uint32_t>(payload);
    EXPECT_EQ(sum(after, 8, after.size(), pseudo), 0xffffU);
    EXPECT_NE(u16(after, 46), 0);
  }
}

TEST(Corrupt, LeavesTheTcpHeaderAlone) {
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    Bytes before = ipv4(kTcp, 32 + 10);
    before[32] = std::byte{0x80};  // a header of 32 bytes
    Bytes after = before;
    ASSERT_TRUE(corrupt(after, random));
    EXPECT_EQ(differences(before, after, 0, 52), 0U);
    EXPECT_EQ(differences(before, after, 52, before.size()), 1U);
  }
}

TEST(Corrupt, ALaterFragmentHasNoChecksumToClear) {
  Random random(1);
  const Bytes before = [] {
    Bytes packet = ipv4(kUdp, 4);
    put_u16(packet, 6, 185);
    return packet;
  }();
  Bytes after = before;
  ASSERT_TRUE(corrupt(after, random));
  EXPECT_EQ(differences(before, after, 20, before.size()), 1U);
}

TEST(Corrupt, WithoutPayloadNothingChanges) {
  Random random(1);
  const Bytes strange[] = {{},
                           {std::byte{0x45}},
                           Bytes(60, std::byte{0x10}),
                           Bytes(60, std::byte{0x40}),
                           ipv4(kUdp, 8),
                           ipv4(kUdp, 3),
                           ipv4(kTcp, 0)};
  for (const Bytes& before : strange) {
    Bytes after = before;
    EXPECT_FALSE(corrupt(after, random));
    EXPECT_EQ(after, before);
  }
}

TEST(MarkCongestion, SetsBothBitsAndKeepsTheIpv4ChecksumRight) {
  for (const std::uint8_t ecn : {1, 2, 3}) {
    Bytes packet = ipv4(kUdp, 20, 0xb8 | ecn);
    ASSERT_TRUE(mark_congestion(packet));
    EXPECT_EQ(std::to_integer<int>(packet[1]), 0xb8 | 3);
    EXPECT_EQ(sum(packet, 0, 20), 0xffffU);
  }
}

TEST(MarkCongestion, MarksIpv6InItsTrafficClass) {
  Bytes packet = ipv6_udp(20);
  packet[1] = std::byte{0x2f};  // ECT(0), and a flow label
  ASSERT_TRUE(mark_congestion(packet));
  EXPECT_EQ(packet[1], std::byte{0x3f});
}

TEST(MarkCongestion, LeavesPacketsThatAreNotEcnCapable) {
  for (const Bytes& before : {ipv4(kUdp, 20, 0xb8), ipv6_udp(20), Bytes{}, Bytes(60, std::byte{0x53})}) {
    Bytes after = before;
    EXPECT_FALSE(mark_congestion(after));
    EXPECT_EQ(after, before);
  }
}

}  // namespace
}  // namespace tusk::wan
