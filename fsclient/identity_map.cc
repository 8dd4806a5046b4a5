#include "fsclient/identity_map.h"

#include <cerrno>

namespace tusk::client {

Attributes IdentityMap::to_local(Attributes attr) const {
  attr.mode &= ~static_cast<std::uint32_t>(umask_);
  if (!user_) return attr;
  const bool all_ours = user_->server_uid == 0;
  if (all_ours || attr.uid == user_->server_uid)
    attr.uid = user_->uid;
  else if (attr.uid != 0)
    attr.uid = kNobody;
  if (all_ours || attr.gid == user_->server_gid)
    attr.gid = user_->gid;
  else if (attr.gid != 0)
    attr.gid = kNobody;
  return attr;
}

Result<std::optional<std::uint32_t>> IdentityMap::uid_to_server(std::uint32_t uid) const {
  if (!user_) return uid;
  if (uid == user_->uid) return std::nullopt;
  return fail(from_errno(EPERM), "owners are not mapped (identity=user)");
}

Result<std::optional<std::uint32_t>> IdentityMap::gid_to_server(std::uint32_t gid) const {
  if (!user_) return gid;
  if (gid == user_->gid) return std::nullopt;
  return fail(from_errno(EPERM), "groups are not mapped (identity=user)");
}

}  // namespace tusk::client
