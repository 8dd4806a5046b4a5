#include "fsserver/special_bits.h"

namespace tusk::server {

mode_t permitted_mode(const Call& call, mode_t type, mode_t wanted) {
  constexpr mode_t kBits = 07777;
  constexpr mode_t kPrivileges = S_ISUID | S_ISGID;
  const bool strips = !S_ISDIR(type) && !call.exported().settings().setuid;
  return wanted & kBits & ~(strips ? kPrivileges : mode_t{0});
}

Result<void> check_device(const Call& call, mode_t type, std::uint64_t rdev) {
  // Where users are not told apart a device would open the server's hardware to all of them.
  if (!call.attachment().identity_real || !call.exported().can_be_real())
    return fail(from_errno(EPERM), "devices only where owners are real");
  const bool whiteout = S_ISCHR(type) && rdev == 0;
  if (!whiteout && !call.exported().settings().setuid)
    return fail(from_errno(EPERM), "devices only on exports with setuid = true");
  return {};
}

Result<void> check_privileged_attribute(const Call& call, std::string_view name) {
  if (name != "security.capability" || call.exported().settings().setuid) return {};
  return fail(from_errno(EPERM), "file capabilities only on exports with setuid = true");
}

Result<void> strip_special_bits(const Call& call, const Fd& file) {
  if (!call.exported().can_be_real()) return {};
  if (!call.privileged() && call.exported().settings().setuid) return {};
  TUSK_ASSIGN(const Status status, status_of(file));
  const unsigned mode = status.stx_mode & 07777;
  unsigned kept = mode & ~static_cast<unsigned>(S_ISUID);
  if (mode & S_IXGRP) kept &= ~static_cast<unsigned>(S_ISGID);  // without it the bit means mandatory locking
  if (!S_ISREG(status.stx_mode) || kept == mode) return {};
  if (::chmod(proc_path(file).c_str(), kept) != 0) return fail_errno("chmod");
  return {};
}

}  // namespace tusk::server
