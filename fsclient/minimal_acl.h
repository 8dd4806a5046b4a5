// An ACL that says no more than the nine permission bits do.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tusk::client {

// The permission bits (0 to 0777) that setting this value of system.posix_acl_access amounts to where there
// is no other ACL. nullopt: it names users, groups or a mask (acl(5)), or is no ACL. The value is what
// <linux/posix_acl_xattr.h> describes, little-endian.
[[nodiscard]] std::optional<std::uint32_t> permissions_of_minimal_acl(std::string_view value);

}  // namespace tusk::client
