#include "fsclient/minimal_acl.h"

#include <endian.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>

#include <array>
#include <cstring>

namespace tusk::client {

std::optional<std::uint32_t> permissions_of_minimal_acl(std::string_view value) {
  // In this order, by the kernel's rules.
  constexpr std::array kTags = {ACL_USER_OBJ, ACL_GROUP_OBJ, ACL_OTHER};
  posix_acl_xattr_header header{};
  posix_acl_xattr_entry entries[kTags.size()];
  if (value.size() != sizeof header + sizeof entries) return std::nullopt;
  std::memcpy(&header, value.data(), sizeof header);
  std::memcpy(&entries, value.data() + sizeof header, sizeof entries);
  if (le32toh(header.a_version) != POSIX_ACL_XATTR_VERSION) return std::nullopt;
  std::uint32_t permissions = 0;
  for (std::size_t i = 0; i < kTags.size(); ++i) {
    const std::uint32_t granted = le16toh(entries[i].e_perm);
    if (le16toh(entries[i].e_tag) != kTags[i] || granted > (ACL_READ | ACL_WRITE | ACL_EXECUTE))
      return std::nullopt;
    permissions = permissions << 3 | granted;
  }
  return permissions;
}

}  // namespace tusk::client
