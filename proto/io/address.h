// The address of a UDP socket, IPv4 or IPv6, as a plain value; from text and from names.
//
// IPv4 is kept as an IPv4-mapped IPv6 address (RFC 4291 §2.5.5.2): one form inside, so a client seen
// through a dual-stack socket equals the same client seen through an IPv4 socket.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/base/result.h"

namespace tusk::io {

class Address {
 public:
  using Ip = std::array<std::uint8_t, 16>;             // network order
  static constexpr std::size_t kSerializedBytes = 18;  // ip, then port
  using Serialized = std::array<std::byte, kSerializedBytes>;

  // [::]:0, which names nobody: "any address" when binding, "let the kernel choose" as a source.
  constexpr Address() = default;

  // The IPv6 wildcard with `port`: a socket bound to it serves IPv4 as well.
  [[nodiscard]] static Address any(std::uint16_t port);
  [[nodiscard]] static Address v4(std::array<std::uint8_t, 4> ip, std::uint16_t port);
  // `scope_id` is the interface of a link-local address (RFC 4007) and zero for all others.
  [[nodiscard]] static Address v6(const Ip& ip, std::uint16_t port, std::uint32_t scope_id = 0);

  [[nodiscard]] const Ip& ip() const { return ip_; }
  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::uint32_t scope_id() const { return scope_id_; }
  [[nodiscard]] Address with_port(std::uint16_t port) const;
  [[nodiscard]] bool is_v4() const;
  [[nodiscard]] bool is_wildcard() const;    // [::] or 0.0.0.0
  [[nodiscard]] bool is_link_local() const;  // fe80::/10

  // "1.2.3.4:8875", "[::1]:8875", "[fe80::1%3]:8875". parse() reads it back.
  [[nodiscard]] std::string to_string() const;

  // The same bytes on every machine for the same peer: what address tokens are computed over.
  // The scope id is left out, as it means nothing elsewhere.
  [[nodiscard]] Serialized bytes() const;

  friend bool operator==(const Address&, const Address&) = default;

 private:
  Ip ip_{};
  std::uint32_t scope_id_ = 0;
  std::uint16_t port_ = 0;
};

// A numeric address with a port, in the forms of to_string(); an interface may be named ("%eth0").
// kBadConfig for all else, saying what was expected. Never asks a name server.
[[nodiscard]] Result<Address> parse(std::string_view text);

// At most this many addresses of a host are worth trying.
constexpr std::size_t kMaxResolvedAddresses = 16;

// The addresses of a host name or numeric address (also "[::1]"), best first (RFC 6724), without repeats,
// at least one. Blocks, for seconds when name servers are silent: never on a reactor thread.
// kUnreachable when the name does not exist, kTimedOut when the name servers do not answer.
[[nodiscard]] Result<std::vector<Address>> resolve(const std::string& host, std::uint16_t port);

}  // namespace tusk::io

template <>
struct std::hash<tusk::io::Address> {
  std::size_t operator()(const tusk::io::Address& address) const noexcept;
};
