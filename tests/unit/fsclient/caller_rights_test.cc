#include "fsclient/caller_rights.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <sstream>

namespace tusk::client {
namespace {

// As /proc/PID/status says it.
bool keeps(const std::string& groups, const std::string& capabilities, std::uint32_t gid) {
  std::istringstream status("Name:\tgroups\nGid:\t7\t8\t9\t10\nGroups:\t" + groups + " \nCapInh:\t" +
                            "ffffffffffffffff\nCapEff:\t" + capabilities + "\n");
  return status_keeps_set_group_id(status, gid);
}

TEST(SetGroupId, IsKeptByWhoIsOfTheGroup) {
  EXPECT_TRUE(keeps("100 200", "0000000000000000", 200));
  EXPECT_TRUE(keeps("", "0000000000000000", 10));  // for files
}

TEST(SetGroupId, IsKeptByThePrivileged) {
  EXPECT_TRUE(keeps("", "0000000000000010", 200));  // CAP_FSETID
}

TEST(SetGroupId, IsNotKeptByOthers) {
  EXPECT_FALSE(keeps("100", "0000000000000000", 200));
  EXPECT_FALSE(keeps("100", "ffffffffffffffef", 200));
  EXPECT_FALSE(keeps("", "0000000000000000", 7));
  EXPECT_FALSE(may_keep_set_group_id(0, 200));  // of another pid namespace
}

TEST(SetGroupId, IsLookedUpInProc) {
  EXPECT_TRUE(may_keep_set_group_id(static_cast<std::uint32_t>(::getpid()), ::getegid()));
}

}  // namespace
}  // namespace tusk::client
