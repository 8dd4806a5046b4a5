// Which flows go to the same host.
#include "proto/rpc/host_siblings.h"

#include <gtest/gtest.h>

namespace tusk::rpc {
namespace {

TEST(HostSiblings, OneForEachAddressWhateverThePort) {
  HostSiblings hosts;
  const auto one = hosts.of(io::Address::v4({192, 0, 2, 1}, 1000));
  EXPECT_EQ(hosts.of(io::Address::v4({192, 0, 2, 1}, 2000)), one);
  EXPECT_NE(hosts.of(io::Address::v4({192, 0, 2, 2}, 1000)), one);
}

TEST(HostSiblings, OneForEachNetworkOfIpv6) {
  HostSiblings hosts;
  io::Address::Ip ip{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 1};
  const auto one = hosts.of(io::Address::v6(ip, 1));
  ip[15] = 9;
  EXPECT_EQ(hosts.of(io::Address::v6(ip, 1)), one);
  ip[7] = 2;
  EXPECT_NE(hosts.of(io::Address::v6(ip, 1)), one);
}

TEST(HostSiblings, GoesWithTheLastFlow) {
  HostSiblings hosts;
  std::weak_ptr<transport::Siblings> kept = hosts.of(io::Address::v4({192, 0, 2, 1}, 1));
  EXPECT_TRUE(kept.expired());
  const auto stays = hosts.of(io::Address::v4({192, 0, 2, 1}, 1));
  for (std::uint8_t host = 0; host < 255; ++host) (void)hosts.of(io::Address::v4({198, 51, 100, host}, 1));
  EXPECT_EQ(hosts.of(io::Address::v4({192, 0, 2, 1}, 1)), stays);
}

}  // namespace
}  // namespace tusk::rpc
