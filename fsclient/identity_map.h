// Whose files they are: the server's owners as programs on this machine see them, and back.
//
// real: numbers are the same on both sides (both ends are administered together).
// user: what belongs to whom the server acts as belongs to the mounting user here, as with sshfs; what
// belongs to others shows as nobody, since their numbers mean nothing here. A server that acts as root
// can do everything for us, so then everything is the mounting user's.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "fsclient/attributes.h"
#include "proto/base/result.h"

namespace tusk::client {

class IdentityMap {
 public:
  static constexpr std::uint32_t kNobody = 65534;

  struct User {
    std::uint32_t server_uid = 0;  // whom the server acts as
    std::uint32_t server_gid = 0;
    std::uint32_t uid = 0;  // as whom that appears here
    std::uint32_t gid = 0;
  };

  [[nodiscard]] static IdentityMap real(mode_t umask = 0) { return {std::nullopt, umask}; }
  [[nodiscard]] static IdentityMap as_user(User user, mode_t umask = 0) { return {user, umask}; }

  [[nodiscard]] bool is_real() const { return !user_; }

  // The attributes programs see.
  [[nodiscard]] Attributes to_local(Attributes attr) const;
  // The owner to ask the server for; nullopt: nothing to change. EPERM for an owner that cannot be
  // had: in user mode only giving a file to oneself is possible, and that is so already.
  [[nodiscard]] Result<std::optional<std::uint32_t>> uid_to_server(std::uint32_t uid) const;
  [[nodiscard]] Result<std::optional<std::uint32_t>> gid_to_server(std::uint32_t gid) const;

 private:
  IdentityMap(std::optional<User> user, mode_t umask) : user_(user), umask_(umask) {}

  const std::optional<User> user_;
  const mode_t umask_;  // permission bits not shown
};

}  // namespace tusk::client
