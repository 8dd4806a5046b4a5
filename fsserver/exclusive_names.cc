#include "fsserver/exclusive_names.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

#include <algorithm>
#include <span>
#include <vector>

#include "fsserver/operations.h"

namespace tusk::server {
namespace {

using Handles = std::span<const std::string_view>;

bool has_default_acl(const Fd& directory) {
  return ::getxattr(proc_path(directory).c_str(), "system.posix_acl_default", nullptr, 0) >= 0;
}

// What is made in it gets the mode that was asked for and may be made and removed by who asks.
bool suits(const Call& call, const Fd& directory) {
  const auto status = status_of(directory);
  if (!status || !S_ISDIR(status->stx_mode) || device_of(*status) != call.nodes().root_device()) return false;
  // Removed, but open, as an export's own directory is: nothing can be made in it.
  if (status->stx_nlink == 0) return false;
  if (has_default_acl(directory)) return false;
  return ::faccessat(AT_FDCWD, proc_path(directory).c_str(), W_OK | X_OK, AT_EACCESS) == 0;
}

// The number; 0: no.
std::uint64_t take_exclusive(Call& call, Handles directories) {
  const Attachment& attachment = call.attachment();
  const SessionNumber session = call.session().number();
  if (!attachment.leases || attachment.read_only || !attachment.watch) return 0;
  const std::uint64_t held = call.leases().exclusive_number(session, directories);
  for (const std::string_view handle : directories) {
    const auto directory = call.node(handle);
    // The holder may have given it a default ACL meanwhile.
    if (!directory || (held != 0 ? has_default_acl(**directory) : !suits(call, **directory))) return 0;
  }
  if (held != 0) return held;
  if (!has_room(call.leases(), session, call.exported())) return 0;
  return call.leases().grant_exclusive(session, directories);
}

std::vector<std::string_view> changed_directories(const schema::Request& request) {
  switch (request.operation_case()) {
    case schema::Request::kCreate:
      return {request.create().parent()};
    case schema::Request::kMakeNode:
      return {request.make_node().parent()};
    case schema::Request::kRemove:
      return {request.remove().parent()};
    case schema::Request::kRename:
      return {request.rename().old_parent(), request.rename().new_parent()};
    default:
      return {};
  }
}

bool is_new_directory(const schema::Reply& reply) {
  return reply.has_node() && S_ISDIR(reply.node().node().attr().mode());
}

void tell_made(Call& call, std::uint64_t number) {
  call.reply.mutable_node()->set_made_names(schema::COVER_EXCLUSIVE);
  call.reply.set_exclusive(number);
}

// What its holder goes on from, who makes changes in it without asking.
schema::Attr attributes_of(Call& call, std::string_view directory) {
  const auto node = call.node(directory);
  if (!node) return {};
  return call.leased_attr(directory, **node).value_or(schema::Attr());
}

// Its maker reckons with it: what it has made in a directory of its own is its own.
void keep_made_in_log(Call& call, std::string_view made) {
  const SessionNumber session = call.session().number();
  const std::string_view parent = call.request().make_node().parent();
  const auto directory = call.node(made);
  const bool covered = directory && call.cover_names(made, **directory) == schema::COVER_LEASE;
  // Also while the exclusiveness is being taken back: its maker knows that it is empty.
  if (covered) call.reply.mutable_node()->set_made_names(schema::COVER_LEASE);
  if (call.leases().exclusive_number(session, Handles(&parent, 1)) == 0) return;
  const bool may_have = covered && !has_default_acl(**directory);
  const std::uint64_t number =
      may_have ? call.leases().grant_exclusive(session, Handles(&made, 1)) : std::uint64_t{0};
  if (number == 0) return call.leases().end_exclusive(session);
  tell_made(call, number);
}

}  // namespace

bool has_room(const LeaseKeeper& leases, SessionNumber session, Export& exported) {
  struct statvfs room {};
  if (::fstatvfs(exported.nodes().root()->number(), &room) != 0) return false;
  const std::uint64_t holders = leases.exclusive_others(session, exported) + 1;
  if (room.f_bavail * room.f_frsize < holders * leases.limits().room_bytes) return false;
  return room.f_files == 0 || room.f_favail >= holders * leases.limits().room_files;
}

void tell_exclusive(Call& call) {
  const bool directory = is_new_directory(call.reply);
  const std::string made = directory ? call.reply.node().node().handle() : std::string();
  if (directory && call.log()) keep_made_in_log(call, made);
  const std::vector<std::string_view> changed = changed_directories(call.request());
  // A question changes no directory, whatever its client wants.
  if (!call.request().want_exclusive() || changed.empty()) return;
  if (call.reply.names() == schema::COVER_LEASE) {
    if (const std::uint64_t number = take_exclusive(call, changed); number != 0) {
      call.reply.set_names(schema::COVER_EXCLUSIVE);
      call.reply.set_exclusive(number);
      *call.reply.mutable_directory() = attributes_of(call, changed.front());
    }
  }
  if (!directory || call.reply.node().made_names() == schema::COVER_EXCLUSIVE) return;
  const auto node = call.node(made);
  if (!node || call.cover_names(made, **node) != schema::COVER_LEASE) return;
  const std::string_view handle = made;
  if (const std::uint64_t number = take_exclusive(call, Handles(&handle, 1)); number != 0)
    tell_made(call, number);
}

namespace ops {

Result<void> acquire(Call& call) {
  const auto& handles = call.request().acquire().handles();
  if (handles.size() > kNamesAtOnceMax) return fail(from_errno(EINVAL), "too many directories at once");
  schema::AcquireReply& reply = *call.reply.mutable_acquire();
  for (const std::string& handle : handles) {
    const auto directory = call.node(handle);
    const std::string_view name = handle;
    schema::Cover cover = directory ? call.cover_names(handle, **directory) : schema::COVER_LIFETIME;
    if (cover == schema::COVER_LEASE) {
      const std::uint64_t number = take_exclusive(call, Handles(&name, 1));
      if (number != 0) {
        cover = schema::COVER_EXCLUSIVE;
        call.reply.set_exclusive(number);
      }
    }
    reply.add_names(cover);
    *reply.add_directories() =
        cover == schema::COVER_EXCLUSIVE ? attributes_of(call, handle) : schema::Attr();
  }
  return {};
}

}  // namespace ops
}  // namespace tusk::server
