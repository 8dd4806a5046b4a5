#include "tests/system/wan/udp_offload.h"

#include <algorithm>
#include <cstring>

#include "tests/system/wan/ip_format.h"

namespace tusk::wan {
namespace {

constexpr std::uint16_t kIpv4FragmentBits = 0x3fff;  // more to come, or not the first

// Of 16-bit words, an odd byte with a zero behind it; not folded.
std::uint64_t sum_of(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at + 1 < bytes.size(); at += 2) sum += u16(bytes, at);
  if (bytes.size() % 2 != 0) sum += std::uint64_t{u8(bytes, bytes.size() - 1)} << 8;
  return sum;
}

std::uint16_t folded(std::uint64_t sum) {
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

// The lengths of IP and UDP, and IPv4's own checksum, as the packet's size says.
void set_lengths(std::span<std::byte> packet, const UdpLayout& layout) {
  put_u16(packet, layout.udp + kUdpLengthAt, static_cast<std::uint16_t>(packet.size() - layout.udp));
  if (layout.ipv6)
    return put_u16(packet, kIpv6LengthAt, static_cast<std::uint16_t>(packet.size() - kIpv6Header));
  put_u16(packet, kIpv4LengthAt, static_cast<std::uint16_t>(packet.size()));
  put_u16(packet, kIpv4ChecksumAt, 0);
  put_u16(packet, kIpv4ChecksumAt, static_cast<std::uint16_t>(~folded(sum_of(packet.first(layout.udp)))));
}

bool is_udp(std::span<const std::byte> packet, UdpLayout& layout) {
  if (packet.empty()) return false;
  layout.ipv6 = u8(packet, 0) >> 4 == 6;
  if (layout.ipv6) {
    layout.udp = kIpv6Header;
    if (packet.size() < kIpv6Header + kUdpHeader || u8(packet, kIpv6NextAt) != kProtocolUdp) return false;
  } else {
    layout.udp = std::size_t{u8(packet, 0) & 0xfU} * 4;
    if (u8(packet, 0) >> 4 != 4 || layout.udp < kIpv4HeaderMin || packet.size() < layout.udp + kUdpHeader ||
        u8(packet, kIpv4ProtocolAt) != kProtocolUdp ||
        (u16(packet, kIpv4FragmentAt) & kIpv4FragmentBits) != 0)
      return false;
  }
  layout.payload = layout.udp + kUdpHeader;
  return true;
}

}  // namespace

std::optional<UdpLayout> udp_layout_of(std::span<const std::byte> packet) {
  UdpLayout layout;
  if (!is_udp(packet, layout) || u16(packet, layout.udp + kUdpChecksumAt) == 0) return std::nullopt;
  if (u16(packet, layout.udp + kUdpLengthAt) != packet.size() - layout.udp) return std::nullopt;
  return layout;
}

bool complete_checksum(std::span<std::byte> packet, std::size_t start, std::size_t offset) {
  if (start + offset + 2 > packet.size()) return false;
  const auto checksum = static_cast<std::uint16_t>(~folded(sum_of(packet.subspan(start))));
  put_u16(packet, start + offset, checksum == 0 ? 0xffff : checksum);
  return true;
}

void leave_checksum_to_card(std::span<std::byte> packet, const UdpLayout& layout) {
  const std::size_t at = layout.ipv6 ? kIpv6AddressesAt : kIpv4AddressesAt;
  const std::size_t size = layout.ipv6 ? 32 : 8;
  const std::uint64_t sum = sum_of(packet.subspan(at, size)) + kProtocolUdp + (packet.size() - layout.udp);
  put_u16(packet, layout.udp + kUdpChecksumAt, folded(sum));
}

// ---------------------------------------------------------------- cutting

bool UdpCutter::begin(std::span<const std::byte> packet, std::size_t segment_size) {
  if (segment_size == 0 || !is_udp(packet, layout_)) return false;
  packet_ = packet;
  segment_size_ = segment_size;
  next_ = layout_.payload;
  number_ = layout_.ipv6 ? std::uint16_t{0} : u16(packet, kIpv4NumberAt);
  return true;
}

std::size_t UdpCutter::next(std::span<std::byte> out) {
  const std::size_t data = std::min(segment_size_, packet_.size() - next_);
  const std::size_t from = next_;
  const std::size_t size = layout_.payload + data;
  const std::uint16_t number = number_++;
  next_ += data;
  if (size > out.size()) return 0;
  const std::span<std::byte> packet = out.first(size);
  std::memcpy(packet.data(), packet_.data(), layout_.payload);
  std::memcpy(packet.data() + layout_.payload, packet_.data() + from, data);
  if (!layout_.ipv6) put_u16(packet, kIpv4NumberAt, number);
  set_lengths(packet, layout_);
  leave_checksum_to_card(packet, layout_);
  return size;
}

// ---------------------------------------------------------------- merging

// All of the headers is the same but for what set_lengths() sets, numbers and checksums.
bool UdpMerger::goes_on(std::span<const std::byte> packet, const UdpLayout& layout) const {
  if (ended_ || packets_ >= kMergedPacketsMax || layout.ipv6 != layout_.ipv6 || layout.udp != layout_.udp)
    return false;
  const std::size_t data = packet.size() - layout.payload;
  if (data == 0 || data > segment_size_ || merged_.size() + data > kMergedBytesMax) return false;
  const auto same = [&](std::size_t begin, std::size_t end) {
    return std::equal(packet.data() + begin, packet.data() + end, merged_.data() + begin);
  };
  const bool same_ip = layout.ipv6 ? same(0, kIpv6LengthAt) && same(kIpv6NextAt, layout.udp)
                                   : same(0, kIpv4LengthAt) && same(kIpv4FragmentAt, kIpv4ChecksumAt) &&
                                         same(kIpv4AddressesAt, layout.udp);
  return same_ip && same(layout.udp, layout.udp + kUdpLengthAt);
}

bool UdpMerger::add(std::span<const std::byte> packet) {
  const auto layout = udp_layout_of(packet);
  if (!layout) return false;
  if (packets_ == 0) {
    layout_ = *layout;
    segment_size_ = packet.size() - layout->payload;
    merged_.assign(packet.begin(), packet.end());
  } else {
    if (!goes_on(packet, *layout)) return false;
    const auto data = packet.subspan(layout->payload);
    merged_.insert(merged_.end(), data.begin(), data.end());
    ended_ = data.size() < segment_size_;
  }
  ++packets_;
  return true;
}

std::span<std::byte> UdpMerger::merged() {
  set_lengths(merged_, layout_);
  leave_checksum_to_card(merged_, layout_);
  return merged_;
}

void UdpMerger::clear() {
  merged_.clear();
  packets_ = 0;
  ended_ = false;
}

}  // namespace tusk::wan
