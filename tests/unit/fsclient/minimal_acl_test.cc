#include "fsclient/minimal_acl.h"

#include <gtest/gtest.h>

#include <string>

namespace tusk::client {
namespace {

struct Entry {
  char tag;
  char permissions;
};

std::string acl(std::initializer_list<Entry> entries, char version = 2) {
  std::string value{version, 0, 0, 0};
  for (const Entry& entry : entries) {
    value += {entry.tag, 0, entry.permissions, 0};
    value += "\xff\xff\xff\xff";
  }
  return value;
}

TEST(MinimalAcl, SaysWhatTheModeSays) {
  EXPECT_EQ(permissions_of_minimal_acl(acl({{1, 7}, {4, 5}, {0x20, 1}})), 0751u);
  EXPECT_EQ(permissions_of_minimal_acl(acl({{1, 0}, {4, 0}, {0x20, 0}})), 0u);
}

TEST(MinimalAcl, OthersAreNotMinimal) {
  EXPECT_FALSE(permissions_of_minimal_acl(acl({{1, 7}, {2, 7}, {4, 5}, {0x10, 7}, {0x20, 1}}))) << "a user";
  EXPECT_FALSE(permissions_of_minimal_acl(acl({{1, 7}, {4, 5}, {0x10, 7}, {0x20, 1}}))) << "a mask";
  EXPECT_FALSE(permissions_of_minimal_acl(acl({{4, 7}, {1, 5}, {0x20, 1}}))) << "out of order";
  EXPECT_FALSE(permissions_of_minimal_acl(acl({{1, 7}, {4, 5}}))) << "others missing";
}

TEST(MinimalAcl, WhatIsNoAclIsNotOne) {
  EXPECT_FALSE(permissions_of_minimal_acl(""));
  EXPECT_FALSE(permissions_of_minimal_acl(acl({{1, 7}, {4, 5}, {0x20, 1}}, 1))) << "another version";
  EXPECT_FALSE(permissions_of_minimal_acl(acl({{1, 8}, {4, 5}, {0x20, 1}}))) << "no such right";
}

}  // namespace
}  // namespace tusk::client
