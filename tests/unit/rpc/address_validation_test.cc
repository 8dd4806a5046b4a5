#include "proto/rpc/address_validation.h"

#include <gtest/gtest.h>

namespace tusk::rpc {
namespace {

TEST(AddressValidationTest, OfSeveralServersWithOneIdentityEachResetsItsOwnConnections) {
  const auto identity = crypto::Identity::generate();
  ASSERT_TRUE(identity);
  const wire::ConnectionIdBytes id{};
  const AddressValidation first(*identity, 8875, 64);
  const AddressValidation restarted(*identity, 8875, 64);
  const AddressValidation second(*identity, 8876, 64);
  EXPECT_EQ(first.reset_token(id), restarted.reset_token(id));
  EXPECT_NE(first.reset_token(id), second.reset_token(id));
}

}  // namespace
}  // namespace tusk::rpc
