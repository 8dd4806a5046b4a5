// Cutting and merging of UDP: what goes in comes out, and every packet is one that a kernel takes.
#include "tests/system/wan/udp_offload.h"

#include <gtest/gtest.h>

#include <string>

#include "proto/base/random.h"
#include "tests/system/wan/ip_format.h"

namespace tusk::wan {
namespace {

using Packet = std::vector<std::byte>;

struct Ports {
  std::uint16_t from = 1111;
  std::uint16_t to = 8875;
};

// The data counts up; checksums are left to the card.
Packet packet_of(std::size_t data, bool ipv6 = false, Ports ports = {}, unsigned first = 0) {
  const std::size_t udp = ipv6 ? kIpv6Header : kIpv4HeaderMin;
  Packet packet(udp + kUdpHeader + data);
  packet[0] = static_cast<std::byte>(ipv6 ? 0x60 : 0x45);
  if (ipv6) {
    put_u16(packet, 4, static_cast<std::uint16_t>(kUdpHeader + data));
    packet[6] = std::byte{17};
    packet[7] = std::byte{64};
    for (std::size_t at = 8; at < kIpv6Header; ++at) packet[at] = static_cast<std::byte>(at);
  } else {
    put_u16(packet, 2, static_cast<std::uint16_t>(packet.size()));
    put_u16(packet, 4, 0xfffe);  // its number; the one after the next is 0
    put_u16(packet, 6, 0x4000);  // is not to be cut on the way
    packet[8] = std::byte{64};
    packet[9] = std::byte{17};
    for (std::size_t at = 12; at < kIpv4HeaderMin; ++at) packet[at] = static_cast<std::byte>(at);
  }
  put_u16(packet, udp, ports.from);
  put_u16(packet, udp + 2, ports.to);
  put_u16(packet, udp + 4, static_cast<std::uint16_t>(kUdpHeader + data));
  for (std::size_t at = 0; at < data; ++at)
    packet[udp + kUdpHeader + at] = static_cast<std::byte>((first + at) * 7 + (first + at) / 251);
  put_u16(packet, udp + 6, 1);  // there is one
  leave_checksum_to_card(packet, *udp_layout_of(packet));
  return packet;
}

std::uint32_t folded_sum(std::span<const std::byte> bytes, std::uint32_t sum = 0) {
  for (std::size_t at = 0; at < bytes.size(); ++at)
    sum += static_cast<std::uint32_t>(u8(bytes, at)) << (at % 2 == 0 ? 8 : 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

// As the receiving kernel would, once the card has done its part (RFC 768, RFC 8200 §8.1).
void expect_valid(Packet packet) {
  const auto layout = udp_layout_of(packet);
  ASSERT_TRUE(layout);
  if (!layout->ipv6) {
    EXPECT_EQ(u16(packet, 2), packet.size());
    EXPECT_EQ(folded_sum(std::span(packet).first(kIpv4HeaderMin)), 0xffffu);
  } else {
    EXPECT_EQ(u16(packet, 4), packet.size() - kIpv6Header);
  }
  ASSERT_TRUE(complete_checksum(packet, layout->udp, 6));
  const auto addresses = layout->ipv6 ? std::span(packet).subspan(8, 32) : std::span(packet).subspan(12, 8);
  const auto length = static_cast<std::uint32_t>(packet.size() - layout->udp);
  const std::uint32_t pseudo = folded_sum(addresses, 17 + length);
  EXPECT_EQ(folded_sum(std::span(packet).subspan(layout->udp), pseudo), 0xffffu);
}

std::vector<Packet> cut(const Packet& packet, std::size_t segment_size) {
  UdpCutter cutter;
  EXPECT_TRUE(cutter.begin(packet, segment_size));
  std::vector<Packet> packets;
  while (!cutter.empty()) {
    Packet out(2048);
    out.resize(cutter.next(out));
    packets.push_back(std::move(out));
  }
  return packets;
}

Packet data_of(const Packet& packet) {
  return {packet.begin() + static_cast<std::ptrdiff_t>(udp_layout_of(packet)->payload), packet.end()};
}

class UdpOffload : public testing::TestWithParam<bool> {};

TEST_P(UdpOffload, IsCutIntoWholePackets) {
  const Packet whole = packet_of(3 * 1000 + 17, GetParam());
  const auto packets = cut(whole, 1000);
  ASSERT_EQ(packets.size(), 4u);
  Packet data;
  for (std::size_t i = 0; i < packets.size(); ++i) {
    expect_valid(packets[i]);
    if (!GetParam()) {
      EXPECT_EQ(u16(packets[i], 4), static_cast<std::uint16_t>(0xfffe + i)) << "its number";
    }
    const Packet part = data_of(packets[i]);
    data.insert(data.end(), part.begin(), part.end());
  }
  EXPECT_EQ(data, data_of(whole));
}

TEST_P(UdpOffload, WhatWasCutIsPutTogether) {
  Random random(7);
  for (int i = 0; i < 100; ++i) {
    const std::size_t segment = 1 + random.below(1472);
    const Packet whole = packet_of(segment * (1 + random.below(40)) + random.below(segment), GetParam());
    UdpMerger merger;
    for (const Packet& packet : cut(whole, segment)) ASSERT_TRUE(merger.add(packet));
    EXPECT_EQ(merger.segment_size(), std::min(segment, data_of(whole).size()));
    const Packet merged(merger.merged().begin(), merger.merged().end());
    expect_valid(merged);
    EXPECT_EQ(data_of(merged), data_of(whole));
    EXPECT_EQ(cut(merged, segment), cut(whole, segment));
  }
}

TEST_P(UdpOffload, OthersDoNotGoTogether) {
  const bool ipv6 = GetParam();
  const Packet first = packet_of(100, ipv6);
  const auto follows = [&](const Packet& next) {
    UdpMerger merger;
    EXPECT_TRUE(merger.add(first));
    return merger.add(next);
  };
  EXPECT_TRUE(follows(first));
  EXPECT_TRUE(follows(packet_of(50, ipv6)));
  EXPECT_FALSE(follows(packet_of(101, ipv6))) << "longer than the first";
  EXPECT_FALSE(follows(packet_of(0, ipv6)));
  EXPECT_FALSE(follows(packet_of(100, ipv6, {.from = 2222})));
  EXPECT_FALSE(follows(packet_of(100, ipv6, {.to = 2222})));
  EXPECT_FALSE(follows(packet_of(100, !ipv6)));
  Packet marked = packet_of(100, ipv6);
  marked[1] |= std::byte{0x30};  // congestion, or another class
  EXPECT_FALSE(follows(marked));
  Packet cleared = packet_of(100, ipv6);
  put_u16(cleared, (ipv6 ? kIpv6Header : kIpv4HeaderMin) + 6,
          0);  // a damaged one, whose checksum says nothing
  EXPECT_FALSE(follows(cleared));

  UdpMerger ended;
  EXPECT_TRUE(ended.add(first));
  EXPECT_TRUE(ended.add(packet_of(50, ipv6)));
  EXPECT_FALSE(ended.add(first)) << "behind a shorter one";
  ended.clear();
  EXPECT_TRUE(ended.add(packet_of(50, ipv6)));
}

TEST_P(UdpOffload, IsBounded) {
  UdpMerger many;
  for (std::size_t i = 0; i < kMergedPacketsMax; ++i) EXPECT_TRUE(many.add(packet_of(10, GetParam())));
  EXPECT_FALSE(many.add(packet_of(10, GetParam())));
  UdpMerger large;
  while (large.add(packet_of(8972, GetParam()))) {
  }
  EXPECT_LE(large.merged().size(), kMergedBytesMax);
  EXPECT_EQ(large.packets(), 7u);
}

INSTANTIATE_TEST_SUITE_P(Families, UdpOffload, testing::Bool(),
                         [](const auto& family) { return family.param ? "IPv6" : "IPv4"; });

TEST(UdpOffload, TouchesNothingElse) {
  Packet tcp = packet_of(100);
  tcp[9] = std::byte{6};
  Packet fragment = packet_of(100);
  put_u16(fragment, 6, 0x2000);
  Packet later_fragment = packet_of(100);
  put_u16(later_fragment, 6, 0x0010);
  Packet wrong_length = packet_of(100);
  put_u16(wrong_length, kIpv4HeaderMin + 4, 50);
  for (const Packet& packet :
       {tcp, fragment, later_fragment, wrong_length, Packet{}, Packet(3, std::byte{0x45})}) {
    UdpMerger merger;
    EXPECT_FALSE(merger.add(packet));
    EXPECT_EQ(merger.packets(), 0u);
  }
  UdpCutter cutter;
  EXPECT_FALSE(cutter.begin(tcp, 10));
  EXPECT_FALSE(cutter.begin(packet_of(100), 0));
  EXPECT_TRUE(cutter.empty());
}

TEST(UdpOffload, WhatDoesNotFitIsGone) {
  const Packet whole = packet_of(2000);
  UdpCutter cutter;
  ASSERT_TRUE(cutter.begin(whole, 1000));
  Packet small(500);
  EXPECT_EQ(cutter.next(small), 0u);
  EXPECT_FALSE(cutter.empty());
  Packet out(1500);
  EXPECT_EQ(cutter.next(out), kIpv4HeaderMin + kUdpHeader + 1000);
  EXPECT_TRUE(cutter.empty());
}

TEST(UdpOffload, AChecksumOutsideIsNotFilledIn) {
  Packet packet = packet_of(10);
  EXPECT_FALSE(complete_checksum(packet, packet.size() - 1, 6));
  EXPECT_FALSE(complete_checksum(packet, 0, packet.size()));
}

}  // namespace
}  // namespace tusk::wan
