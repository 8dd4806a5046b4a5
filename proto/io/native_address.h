// Between Address and the kernel's sockaddr. For proto/io only.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include "proto/io/address.h"

namespace tusk::io {

union NativeAddress {
  sockaddr generic;
  sockaddr_in v4;
  sockaddr_in6 v6;
};

// Fills `native` for a socket of `family` and returns its length; 0 when an AF_INET socket cannot
// reach that address.
[[nodiscard]] inline socklen_t to_native(const Address& address, sa_family_t family, NativeAddress& native) {
  native.v6 = {};
  if (family == AF_INET6) {
    native.v6.sin6_family = AF_INET6;
    native.v6.sin6_port = htons(address.port());
    native.v6.sin6_scope_id = address.scope_id();
    std::copy(address.ip().begin(), address.ip().end(), native.v6.sin6_addr.s6_addr);
    return sizeof(native.v6);
  }
  if (!address.is_v4() && !address.is_wildcard()) return 0;
  native.v4.sin_family = AF_INET;
  native.v4.sin_port = htons(address.port());
  auto* octets = reinterpret_cast<std::uint8_t*>(&native.v4.sin_addr.s_addr);
  std::copy(address.ip().end() - 4, address.ip().end(), octets);
  return sizeof(native.v4);
}

[[nodiscard]] inline Address from_native(const in_addr& ip, std::uint16_t port) {
  std::array<std::uint8_t, 4> octets;
  std::copy_n(reinterpret_cast<const std::uint8_t*>(&ip.s_addr), 4, octets.begin());
  return Address::v4(octets, port);
}

[[nodiscard]] inline Address from_native(const in6_addr& ip, std::uint16_t port, std::uint32_t interface) {
  Address::Ip octets;
  std::copy_n(ip.s6_addr, octets.size(), octets.begin());
  const Address address = Address::v6(octets, port);
  return address.is_link_local() ? Address::v6(octets, port, interface) : address;
}

[[nodiscard]] inline Address from_native(const NativeAddress& native) {
  if (native.generic.sa_family == AF_INET) return from_native(native.v4.sin_addr, ntohs(native.v4.sin_port));
  return from_native(native.v6.sin6_addr, ntohs(native.v6.sin6_port), native.v6.sin6_scope_id);
}

}  // namespace tusk::io
