// What the command line understands and says: lifetimes, addresses, words for a shell.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>

#include "fsserver/cli.h"
#include "proto/rpc/mount_url.h"

namespace tusk::server {
namespace {

bool is_loopback(const io::Address& address) {
  constexpr io::Address::Ip kLoopback6 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  constexpr std::size_t kV4InV6 = 12;
  return address.is_v4() ? address.ip()[kV4InV6] == 127 : address.ip() == kLoopback6;
}

std::string host_of(const io::Address& address) {
  std::string text = address.to_string();
  text.resize(text.rfind(':'));
  return text.starts_with('[') ? text.substr(1, text.size() - 2) : text;
}

// Of this machine's addresses the one that others most likely reach: IPv4 first, then global IPv6.
std::string interface_host() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return "127.0.0.1";
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(first, ::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
      const bool usable = at->ifa_addr != nullptr && at->ifa_addr->sa_family == family &&
                          (at->ifa_flags & IFF_UP) && !(at->ifa_flags & IFF_LOOPBACK);
      if (!usable) continue;
      char text[INET6_ADDRSTRLEN] = {};
      if (family == AF_INET) {
        ::inet_ntop(family, &reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr, text, sizeof text);
      } else {
        const in6_addr& ip = reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr;
        if (IN6_IS_ADDR_LINKLOCAL(&ip)) continue;
        ::inet_ntop(family, &ip, text, sizeof text);
      }
      return text;
    }
  }
  return "127.0.0.1";
}

}  // namespace

Result<std::int64_t> parse_lifetime(std::string_view text) {
  constexpr std::int64_t kDaysMax = 36'500;
  constexpr std::int64_t kDay = 24 * 3600;
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [unit, error] = std::from_chars(text.data(), end, number);
  const std::string_view letter(unit, static_cast<std::size_t>(end - unit));
  const std::int64_t factor = letter == "s"   ? 1
                              : letter == "m" ? 60
                              : letter == "h" ? 3600
                              : letter == "d" ? kDay
                                              : 0;
  if (error != std::errc() || factor == 0 || number <= 0 || number > kDaysMax * kDay / factor)
    return fail(ErrorCode::kBadConfig,
                "'" + std::string(text) + "' is not a lifetime such as 90s, 30m, 12h or 7d");
  return number * factor;
}

Result<io::Address> parse_listen(std::string_view text) {
  if (const auto address = io::parse(text)) return *address;
  const std::string_view digits = text.starts_with(':') ? text.substr(1) : text;
  std::uint16_t port = 0;
  const char* const end = digits.data() + digits.size();
  if (const auto parsed = std::from_chars(digits.data(), end, port);
      !digits.empty() && parsed.ec == std::errc() && parsed.ptr == end)
    return io::Address::any(port);
  const std::string with_port = std::string(text) + ":" + std::to_string(rpc::kDefaultPort);
  if (const auto address = io::parse(with_port)) return *address;
  return fail(ErrorCode::kBadConfig,
              "'" + std::string(text) +
                  "' is not an address to listen on, such as 192.0.2.1:8875, [::]:8875 or :8875");
}

std::string public_host(const std::vector<io::Address>& listen) {
  const auto wildcard = std::ranges::find_if(listen, &io::Address::is_wildcard);
  if (wildcard != listen.end() || listen.empty()) return interface_host();
  const auto outside = std::ranges::find_if_not(listen, is_loopback);
  return host_of(outside != listen.end() ? *outside : listen.front());
}

}  // namespace tusk::server
