// Extended attributes: getxattr, setxattr, listxattr, removexattr.
//
// By way of /proc/self/fd: the system calls have no form for O_PATH descriptors before Linux 6.13. The
// path leads straight to the inode, a symlink's own attributes included.
#include <sys/stat.h>
#include <sys/xattr.h>

#include <string>

#include "fsserver/operations.h"
#include "fsserver/special_bits.h"

namespace tusk::server::ops {
namespace {

constexpr std::size_t kXattrNameBytesMax = 255;
constexpr std::size_t kXattrValueBytesMax = 64 * 1024;
constexpr std::size_t kXattrListBytesMax = 64 * 1024;

// What a client may see and change: the rest is about the server's own security (and would name users
// that the client does not know).
bool allowed(const Call& call, std::string_view name) {
  if (name.starts_with("user.")) return true;
  if (name == "system.posix_acl_access" || name == "system.posix_acl_default") return true;
  const bool root_only = name.starts_with("security.") || name.starts_with("trusted.");
  return root_only && call.attachment().identity_real;
}

Result<void> check_name(const Call& call, std::string_view name) {
  if (name.empty() || name.find('\0') != std::string_view::npos) return fail(from_errno(EINVAL));
  if (name.size() > kXattrNameBytesMax) return fail(from_errno(ERANGE));
  if (!allowed(call, name)) return fail(from_errno(EOPNOTSUPP), "this kind of attribute is the server's own");
  return {};
}

// As the kernel does for a caller of its own that sets an access ACL.
Result<void> kill_set_group_id(const Fd& node) {
  TUSK_ASSIGN(const Status status, status_of(node));
  if ((status.stx_mode & S_ISGID) == 0) return {};
  if (::chmod(proc_path(node).c_str(), status.stx_mode & 07777 & ~S_ISGID) != 0) return fail_errno("chmod");
  return {};
}

}  // namespace

Result<void> getxattr(Call& call) {
  const auto& request = call.request().getxattr();
  TUSK_TRY(check_name(call, request.name()));
  TUSK_ASSIGN(const SharedFd node, call.node(request.handle()));
  std::string value(kXattrValueBytesMax, '\0');
  const ssize_t size =
      ::getxattr(proc_path(*node).c_str(), request.name().c_str(), value.data(), value.size());
  if (size < 0) return fail_errno("getxattr");
  value.resize(static_cast<std::size_t>(size));
  call.reply.mutable_xattr()->set_value(std::move(value));
  return {};
}

Result<void> setxattr(Call& call) {
  const auto& request = call.request().setxattr();
  TUSK_TRY(check_name(call, request.name()));
  TUSK_TRY(check_privileged_attribute(call, request.name()));
  if (request.value().size() > kXattrValueBytesMax) return fail(from_errno(E2BIG));
  if ((request.flags() & ~static_cast<std::uint32_t>(XATTR_CREATE | XATTR_REPLACE)) != 0)
    return fail(from_errno(EINVAL));
  TUSK_ASSIGN(const SharedFd node, call.node(request.handle()));
  if (::setxattr(proc_path(*node).c_str(), request.name().c_str(), request.value().data(),
                 request.value().size(), static_cast<int>(request.flags())) != 0)
    return fail_errno("setxattr");
  call.mutated(request.handle());
  if (request.kill_set_group_id()) TUSK_TRY(kill_set_group_id(*node));
  call.reply.mutable_empty();
  return {};
}

Result<void> listxattr(Call& call) {
  TUSK_ASSIGN(const SharedFd node, call.node(call.request().listxattr().handle()));
  std::string names(kXattrListBytesMax, '\0');
  const ssize_t size = ::listxattr(proc_path(*node).c_str(), names.data(), names.size());
  if (size < 0) return fail_errno("listxattr");
  std::string shown;
  for (std::size_t at = 0; at < static_cast<std::size_t>(size);) {
    const std::string_view name(names.c_str() + at);
    if (allowed(call, name)) shown.append(name).push_back('\0');
    at += name.size() + 1;
  }
  call.reply.mutable_xattr()->set_value(std::move(shown));
  return {};
}

Result<void> removexattr(Call& call) {
  const auto& request = call.request().removexattr();
  TUSK_TRY(check_name(call, request.name()));
  TUSK_ASSIGN(const SharedFd node, call.node(request.handle()));
  if (::removexattr(proc_path(*node).c_str(), request.name().c_str()) != 0) return fail_errno("removexattr");
  call.mutated(request.handle());
  call.reply.mutable_empty();
  return {};
}

}  // namespace tusk::server::ops
