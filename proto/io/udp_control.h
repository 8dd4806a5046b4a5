// Control messages of UDP sockets (RFC 3542, udp(7), ip(7)): source address, ECN, segment size, drops.
// For proto/io only.
#pragma once

#include <netinet/udp.h>

#include <cstring>
#include <optional>

#include "proto/io/native_address.h"

namespace tusk::io {

constexpr std::uint8_t kEcnMask = 0b11;

// Room for what one outgoing message carries at most: source address, ECN bits, segment size.
constexpr std::size_t kSendControlBytes =
    CMSG_SPACE(sizeof(in6_pktinfo)) + CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(std::uint16_t));

// Room for what one incoming message carries at most. A dual-stack socket may add the IPv4 forms.
constexpr std::size_t kReceiveControlBytes = CMSG_SPACE(sizeof(in6_pktinfo)) +
                                             CMSG_SPACE(sizeof(in_pktinfo)) + 4 * CMSG_SPACE(sizeof(int)) +
                                             CMSG_SPACE(sizeof(std::uint32_t));

// Writes control messages one after another into the zeroed `buffer`.
class ControlWriter {
 public:
  explicit ControlWriter(void* buffer) : buffer_(static_cast<std::byte*>(buffer)) {}

  template <class Value>
  void add(int level, int type, const Value& value) {
    auto* header = reinterpret_cast<cmsghdr*>(buffer_ + size_);
    header->cmsg_level = level;
    header->cmsg_type = type;
    header->cmsg_len = CMSG_LEN(sizeof(Value));
    std::memcpy(CMSG_DATA(header), &value, sizeof(Value));
    size_ += CMSG_SPACE(sizeof(Value));
  }

  void add_source(const Address& local) {
    if (local.is_wildcard()) return;
    NativeAddress native;
    if (local.is_v4()) {
      (void)to_native(local, AF_INET, native);
      add(IPPROTO_IP, IP_PKTINFO,
          in_pktinfo{.ipi_ifindex = 0, .ipi_spec_dst = native.v4.sin_addr, .ipi_addr = {}});
    } else {
      (void)to_native(local, AF_INET6, native);
      add(IPPROTO_IPV6, IPV6_PKTINFO,
          in6_pktinfo{.ipi6_addr = native.v6.sin6_addr, .ipi6_ifindex = local.scope_id()});
    }
  }

  void add_ecn(const Address& to, std::uint8_t ecn) {
    if (ecn == 0) return;
    const int bits = ecn & kEcnMask;
    if (to.is_v4()) {
      add(IPPROTO_IP, IP_TOS, bits);
    } else {
      add(IPPROTO_IPV6, IPV6_TCLASS, bits);
    }
  }

  void add_segment_size(std::uint16_t size) { add(IPPROTO_UDP, UDP_SEGMENT, size); }

  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::byte* buffer_;
  std::size_t size_ = 0;
};

struct ReceivedControl {
  Address local;                                // without port; the wildcard when unknown
  std::size_t segment_size = 0;                 // 0: not merged
  std::optional<std::uint32_t> overflow_drops;  // all since the socket was opened, modulo 2^32
  std::uint8_t ecn = 0;
};

[[nodiscard]] inline ReceivedControl read_control(msghdr& message) {
  ReceivedControl control;
  const auto value = [](const cmsghdr* header, auto copy) {
    std::memcpy(&copy, CMSG_DATA(header), sizeof(copy));
    return copy;
  };
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    const auto is = [header](int level, int type) {
      return header->cmsg_level == level && header->cmsg_type == type;
    };
    if (is(IPPROTO_UDP, UDP_GRO)) {
      control.segment_size = static_cast<std::size_t>(value(header, int{}));
    } else if (is(IPPROTO_IP, IP_TOS)) {
      control.ecn = value(header, std::uint8_t{}) & kEcnMask;
    } else if (is(IPPROTO_IPV6, IPV6_TCLASS)) {
      control.ecn = static_cast<std::uint8_t>(value(header, int{}) & kEcnMask);
    } else if (is(IPPROTO_IP, IP_PKTINFO)) {
      control.local = from_native(value(header, in_pktinfo{}).ipi_spec_dst, 0);
    } else if (is(IPPROTO_IPV6, IPV6_PKTINFO)) {
      const auto info = value(header, in6_pktinfo{});
      control.local = from_native(info.ipi6_addr, 0, static_cast<std::uint32_t>(info.ipi6_ifindex));
    } else if (is(SOL_SOCKET, SO_RXQ_OVFL)) {
      control.overflow_drops = value(header, std::uint32_t{});
    }
  }
  return control;
}

}  // namespace tusk::io
