#include "proto/io/address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>

#include "proto/io/native_address.h"

namespace tusk::io {
namespace {

constexpr std::array<std::uint8_t, 12> kV4MappedPrefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

template <class Number>
bool parse_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

std::unexpected<Error> not_an_address(std::string_view text, const char* why) {
  return fail(ErrorCode::kBadConfig, "'" + std::string(text) + "' is not an address and port (" + why +
                                         "; write 192.0.2.1:8875 or [2001:db8::1]:8875)");
}

Result<Address> parse_v6(std::string_view text, std::string_view ip_text, std::uint16_t port) {
  std::uint32_t scope_id = 0;
  if (const auto percent = ip_text.find('%'); percent != ip_text.npos) {
    const std::string interface(ip_text.substr(percent + 1));
    if (!parse_number(interface, scope_id)) scope_id = ::if_nametoindex(interface.c_str());
    if (scope_id == 0) return not_an_address(text, "no such network interface");
    ip_text = ip_text.substr(0, percent);
  }
  in6_addr ip{};
  if (::inet_pton(AF_INET6, std::string(ip_text).c_str(), &ip) != 1)
    return not_an_address(text, "the brackets do not hold an IPv6 address");
  return from_native(ip, port, scope_id);
}

}  // namespace

Address Address::any(std::uint16_t port) { return Address().with_port(port); }

Address Address::v4(std::array<std::uint8_t, 4> ip, std::uint16_t port) {
  Address address;
  std::ranges::copy(kV4MappedPrefix, address.ip_.begin());
  std::ranges::copy(ip, address.ip_.begin() + kV4MappedPrefix.size());
  address.port_ = port;
  return address;
}

Address Address::v6(const Ip& ip, std::uint16_t port, std::uint32_t scope_id) {
  Address address;
  address.ip_ = ip;
  address.port_ = port;
  address.scope_id_ = scope_id;
  return address;
}

Address Address::with_port(std::uint16_t port) const {
  Address address = *this;
  address.port_ = port;
  return address;
}

bool Address::is_v4() const {
  return std::memcmp(ip_.data(), kV4MappedPrefix.data(), kV4MappedPrefix.size()) == 0;
}

bool Address::is_wildcard() const {
  const auto first = is_v4() ? ip_.begin() + kV4MappedPrefix.size() : ip_.begin();
  return std::all_of(first, ip_.end(), [](std::uint8_t octet) { return octet == 0; });
}

bool Address::is_link_local() const { return ip_[0] == 0xfe && (ip_[1] & 0xc0) == 0x80; }

std::string Address::to_string() const {
  char text[INET6_ADDRSTRLEN] = {};
  const std::string port_text = ":" + std::to_string(port_);
  if (is_v4()) {
    ::inet_ntop(AF_INET, ip_.data() + kV4MappedPrefix.size(), text, sizeof(text));
    return text + port_text;
  }
  ::inet_ntop(AF_INET6, ip_.data(), text, sizeof(text));
  const std::string scope = scope_id_ == 0 ? "" : "%" + std::to_string(scope_id_);
  return "[" + (text + scope) + "]" + port_text;
}

Address::Serialized Address::bytes() const {
  Serialized serialized;
  std::memcpy(serialized.data(), ip_.data(), ip_.size());
  serialized[16] = static_cast<std::byte>(port_ >> 8);
  serialized[17] = static_cast<std::byte>(port_ & 0xff);
  return serialized;
}

Result<Address> parse(std::string_view text) {
  const auto colon = text.rfind(':');
  if (colon == text.npos) return not_an_address(text, "the port is missing");
  std::uint16_t port = 0;
  if (!parse_number(text.substr(colon + 1), port)) return not_an_address(text, "the port is not 0 to 65535");
  const std::string_view ip_text = text.substr(0, colon);
  if (ip_text.starts_with('[') && ip_text.ends_with(']'))
    return parse_v6(text, ip_text.substr(1, ip_text.size() - 2), port);
  in_addr ip{};
  if (::inet_pton(AF_INET, std::string(ip_text).c_str(), &ip) != 1)
    return not_an_address(text, "not an IPv4 address; IPv6 needs brackets");
  return from_native(ip, port);
}

Result<std::vector<Address>> resolve(const std::string& host, std::uint16_t port) {
  std::string name = host;
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  if (name.empty()) return fail(ErrorCode::kBadConfig, "the host name is empty");

  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  const int status = ::getaddrinfo(name.c_str(), nullptr, &hints, &list);
  if (status == EAI_SYSTEM) return fail_errno("look up host '" + name + "'");
  if (status == EAI_AGAIN)
    return fail(ErrorCode::kTimedOut, "the name servers do not answer for host '" + name + "'");
  if (status != 0)
    return fail(ErrorCode::kUnreachable, "host '" + name + "' is unknown (" + ::gai_strerror(status) + ")");

  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<Address> addresses;
  for (const addrinfo* entry = list; entry && addresses.size() < kMaxResolvedAddresses;
       entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    NativeAddress native{};
    std::memcpy(&native, entry->ai_addr, std::min<std::size_t>(entry->ai_addrlen, sizeof(native)));
    const Address address = from_native(native).with_port(port);
    if (std::ranges::find(addresses, address) == addresses.end()) addresses.push_back(address);
  }
  if (addresses.empty()) return fail(ErrorCode::kUnreachable, "host '" + name + "' has no IP address");
  return addresses;
}

}  // namespace tusk::io

std::size_t std::hash<tusk::io::Address>::operator()(const tusk::io::Address& address) const noexcept {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  std::memcpy(&high, address.ip().data(), sizeof(high));
  std::memcpy(&low, address.ip().data() + sizeof(high), sizeof(low));
  // Two rounds of multiply and fold: neighbours in one subnet differ in few bits only.
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
  std::uint64_t mixed = (high ^ address.port()) * kOdd;
  mixed = (mixed ^ (mixed >> 32) ^ low ^ address.scope_id()) * kOdd;
  return mixed ^ (mixed >> 29);
}
