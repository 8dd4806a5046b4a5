#include "proto/io/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unordered_set>

namespace tusk::io {
namespace {

TEST(Address, SpellsAndReadsBackEveryForm) {
  for (const char* text : {"1.2.3.4:8875", "0.0.0.0:0", "255.255.255.255:65535", "[::1]:8875", "[::]:0",
                           "[2001:db8::1:2]:443", "[fe80::1%1]:9"}) {
    const auto address = parse(text);
    ASSERT_TRUE(address) << text << ": " << address.error().message();
    EXPECT_EQ(address->to_string(), text);
  }
}

TEST(Address, RefusesTextThatIsNotANumericAddressWithAPort) {
  for (const char* text : {"", ":", "1.2.3.4", "1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:-1", "1.2.3.4:8875x",
                           "1.2.3:1", "host:1", "::1:8875", "[::1]", "[::1]8875", "[::g]:1", "[1.2.3.4]:1",
                           "[]:1", "[:1", "[fe80::1%nosuchif0]:1", "[fe80::1%]:1"}) {
    const auto address = parse(text);
    ASSERT_FALSE(address) << text;
    EXPECT_EQ(address.error().code, ErrorCode::kBadConfig);
    EXPECT_THAT(address.error().message(), testing::HasSubstr("8875"));  // says what to write
  }
}

TEST(Address, KnowsAnIpv4PeerAlsoWhenItCameThroughADualStackSocket) {
  const Address direct = parse("192.0.2.7:5").value();
  const Address mapped = parse("[::ffff:192.0.2.7]:5").value();
  EXPECT_EQ(direct, mapped);
  EXPECT_EQ(std::hash<Address>()(direct), std::hash<Address>()(mapped));
  EXPECT_EQ(mapped.to_string(), "192.0.2.7:5");
  EXPECT_TRUE(mapped.is_v4());
}

TEST(Address, TellsTheKindsApart) {
  EXPECT_TRUE(Address().is_wildcard());
  EXPECT_TRUE(Address::any(8875).is_wildcard());
  EXPECT_TRUE(Address::v4({0, 0, 0, 0}, 1).is_wildcard());
  EXPECT_FALSE(parse("[::1]:1")->is_wildcard());
  EXPECT_FALSE(parse("[::1]:1")->is_v4());
  EXPECT_TRUE(parse("[fe80::1%1]:1")->is_link_local());
  EXPECT_EQ(parse("[fe80::1%1]:1")->scope_id(), 1u);
  EXPECT_EQ(parse("[2001:db8::1%1]:1")->scope_id(), 0u) << "only link-local addresses need an interface";
  EXPECT_NE(parse("1.2.3.4:1").value(), parse("1.2.3.4:2").value());
  EXPECT_EQ(parse("1.2.3.4:1")->with_port(2), parse("1.2.3.4:2").value());
}

TEST(Address, SerialisesIpThenPortInNetworkOrder) {
  const auto bytes = parse("1.2.3.4:8875")->bytes();
  const std::array<unsigned, 18> expected = {0, 0,    0,    0, 0, 0, 0, 0,    0,
                                             0, 0xff, 0xff, 1, 2, 3, 4, 0x22, 0xab};
  for (std::size_t i = 0; i < bytes.size(); ++i)
    EXPECT_EQ(std::to_integer<unsigned>(bytes[i]), expected[i]) << i;
}

TEST(Address, HashesNeighboursApart) {
  std::unordered_set<std::size_t> hashes;
  for (std::uint8_t host = 0; host < 100; ++host)
    for (std::uint16_t port = 1000; port < 1010; ++port)
      hashes.insert(std::hash<Address>()(Address::v4({10, 0, 0, host}, port)));
  EXPECT_EQ(hashes.size(), 1000u);
}

TEST(Resolve, TakesNumericAddressesWithoutAskingAnyone) {
  EXPECT_THAT(resolve("192.0.2.1", 7).value(), testing::ElementsAre(parse("192.0.2.1:7").value()));
  EXPECT_THAT(resolve("2001:db8::1", 7).value(), testing::ElementsAre(parse("[2001:db8::1]:7").value()));
  EXPECT_THAT(resolve("[2001:db8::1]", 7).value(), testing::ElementsAre(parse("[2001:db8::1]:7").value()));
}

TEST(Resolve, FindsThisMachine) {
  const auto addresses = resolve("localhost", 8875);
  ASSERT_TRUE(addresses) << addresses.error().message();
  for (const Address& address : *addresses) EXPECT_EQ(address.port(), 8875);
}

TEST(Resolve, NamesTheHostItDoesNotKnow) {
  // A label above 63 bytes is never sent to a name server (RFC 1035 §2.3.4).
  const std::string name(64, 'x');
  const auto addresses = resolve(name, 1);
  ASSERT_FALSE(addresses);
  EXPECT_THAT(addresses.error().message(), testing::HasSubstr(name));
  EXPECT_EQ(resolve("", 1).error().code, ErrorCode::kBadConfig);
}

}  // namespace
}  // namespace tusk::io
