#include "proto/rpc/address_validation.h"

#include <gtest/gtest.h>

namespace tusk::rpc {
namespace {

TEST(AddressValidationTest, OfSeveralServersWithOneIdentityEachResetsItsOwnConnections) {
  const auto identity = crypto::Identity::generate();
  ASSERT_TRUE(identity);
  const wire::ConnectionIdBytes id{};
  const AddressValidation first(*identity, 64);
  const AddressValidation restarted(*identity, 64);
  const io::Address there = *io::parse("127.0.0.1:8875");
  EXPECT_EQ(first.reset_token(id, there), restarted.reset_token(id, there));
  EXPECT_NE(first.reset_token(id, there), first.reset_token(id, *io::parse("127.0.0.1:8876")));
  EXPECT_NE(first.reset_token(id, there), first.reset_token(id, *io::parse("127.0.0.2:8875")));
  EXPECT_NE(first.reset_token(id, *io::parse("[fe80::1%1]:8875")),
            first.reset_token(id, *io::parse("[fe80::1%2]:8875")));
}

}  // namespace
}  // namespace tusk::rpc
