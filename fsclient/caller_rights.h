// What the kernel of this machine knows of a program that asks, and FUSE does not pass on.
#pragma once

#include <cstdint>
#include <istream>

namespace tusk::client {

// Whether the program may keep the set-group-ID bit on a file of `gid` when it sets an access ACL: it is in
// the group, or has CAP_FSETID (capabilities(7)). False where that cannot be read. `pid` as FUSE names it.
[[nodiscard]] bool may_keep_set_group_id(std::uint32_t pid, std::uint32_t gid);

// The same of the text of a /proc/PID/status.
[[nodiscard]] bool status_keeps_set_group_id(std::istream& status, std::uint32_t gid);

}  // namespace tusk::client
