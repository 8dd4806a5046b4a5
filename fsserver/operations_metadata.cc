// Operations on one inode's facts: lookup, getattr, setattr, readlink, statfs.
#include <sys/statfs.h>

#include <algorithm>
#include <climits>

#include "fsserver/directory_reader.h"
#include "fsserver/file_change.h"
#include "fsserver/operations.h"
#include "fsserver/special_bits.h"

namespace tusk::server::ops {
namespace {

Result<void> change_size(Call& call, const Fd& node, const schema::SetAttrRequest& request) {
  if (request.size() > static_cast<std::uint64_t>(INT64_MAX)) return fail(from_errno(EFBIG));
  const auto size = static_cast<off_t>(request.size());
  const auto open = call.session().find(request.open_id());
  if (open && open->handle == request.handle() && open->writable()) {
    if (::ftruncate(open->fd->number(), size) != 0) return fail_errno("truncate");
    return {};
  }
  TUSK_ASSIGN(const Status status, status_of(node));
  if (S_ISDIR(status.stx_mode)) return fail(from_errno(EISDIR));
  if (!S_ISREG(status.stx_mode)) return fail(from_errno(EINVAL));
  if (::truncate(proc_path(node).c_str(), size) == 0) return {};
  if (errno != EACCES || open || request.open_id() == 0) return fail_errno("truncate");
  TUSK_ASSIGN(const Call::File file, call.file(request.handle(), request.open_id(), O_WRONLY));
  if (::ftruncate(file.fd->number(), size) != 0) return fail_errno("truncate");
  return {};
}

// Where owners are not shown as they are, the client cannot mean the number it names: only what changes
// nothing is allowed.
//
// With neither it is chown(-1, -1), which moves the ctime.
Result<void> change_owner(const Call& call, const Fd& node, const schema::SetAttrRequest& request) {
  constexpr auto kKeep = static_cast<uid_t>(-1);
  const uid_t uid = request.has_uid() ? request.uid() : kKeep;
  const gid_t gid = request.has_gid() ? request.gid() : kKeep;
  if (!call.attachment().identity_real && (uid != kKeep || gid != kKeep)) {
    TUSK_ASSIGN(const Status status, status_of(node));
    const bool same = (uid == kKeep || uid == status.stx_uid) && (gid == kKeep || gid == status.stx_gid);
    return same ? Result<void>{} : fail(from_errno(EPERM), "owners cannot be changed on this mount");
  }
  if (::fchownat(node.number(), "", uid, gid, AT_EMPTY_PATH) != 0) return fail_errno("chown");
  return {};
}

Result<void> change_mode(const Call& call, const Fd& node, std::uint32_t mode) {
  TUSK_ASSIGN(const Status status, status_of(node));
  if (S_ISLNK(status.stx_mode)) return fail(from_errno(EOPNOTSUPP), "a symlink has no mode of its own");
  if (::chmod(proc_path(node).c_str(), permitted_mode(call, status.stx_mode, mode)) != 0)
    return fail_errno("chmod");
  return {};
}

Result<void> change_times(const Fd& node, const schema::SetAttrRequest& request) {
  constexpr std::uint32_t kNanosecondsMax = 999'999'999;
  if (request.atime_ns() > kNanosecondsMax || request.mtime_ns() > kNanosecondsMax)
    return fail(from_errno(EINVAL));
  timespec times[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
  if (request.atime_now())
    times[0].tv_nsec = UTIME_NOW;
  else if (request.has_atime_s())
    times[0] = {static_cast<time_t>(request.atime_s()), static_cast<long>(request.atime_ns())};
  if (request.mtime_now())
    times[1].tv_nsec = UTIME_NOW;
  else if (request.has_mtime_s())
    times[1] = {static_cast<time_t>(request.mtime_s()), static_cast<long>(request.mtime_ns())};
  if (::utimensat(node.number(), "", times, AT_EMPTY_PATH) != 0) return fail_errno("utimensat");
  return {};
}

bool changes_times(const schema::SetAttrRequest& request) {
  return request.has_atime_s() || request.atime_now() || request.has_mtime_s() || request.mtime_now();
}

// The size first: it changes the mtime and the mode's special bits. The owner before the mode: it takes
// those bits away. The times last.
Result<void> apply(Call& call, const Fd& node, const schema::SetAttrRequest& request) {
  if (request.has_size()) TUSK_TRY(change_size(call, node, request));
  const bool times = changes_times(request);
  const bool nothing =
      !request.has_size() && !request.has_uid() && !request.has_gid() && !request.has_mode() && !times;
  if (request.has_uid() || request.has_gid() || nothing) TUSK_TRY(change_owner(call, node, request));
  if (request.has_mode()) TUSK_TRY(change_mode(call, node, request.mode()));
  if (times) TUSK_TRY(change_times(node, request));
  return {};
}

// Who looks up a directory is likely to list it, or to look for something in it. Nullopt: it is not for this
// client to know now, or takes more than `limit` bytes.
std::optional<schema::WalkListing> listing_of_few(Call& call, const NodeTable::Found& directory,
                                                  std::uint32_t limit) {
  const std::size_t left = std::min<std::size_t>(limit, kListingBesideNameMax);
  if (left == 0 || call.exclusive_of_another(directory.handle)) return std::nullopt;
  if (const Result<bool> few = names_fit(directory, left); !few || !*few) return std::nullopt;
  schema::WalkListing listing;
  auto lister = WholeLister::begin(call, directory, listing, left);
  // It is a gift: others who wait come first.
  if (!lister ||
      lister->go_on(call).value_or(WholeLister::Progress::kNoRoom) != WholeLister::Progress::kWhole)
    return std::nullopt;
  return listing;
}

}  // namespace

Result<void> lookup(Call& call) {
  const auto& request = call.request().lookup();
  TUSK_ASSIGN(const SharedFd parent, call.node(request.parent()));
  call.lease_names(request.parent(), *parent);
  const auto found = call.nodes().lookup(parent, request.parent(), request.name());
  schema::NodeReply& reply = *call.reply.mutable_node();
  if (!found && found.error().code == from_errno(ENOENT) && request.tell_absence()) return {};
  if (!found) return std::unexpected(found.error());
  *reply.mutable_node() = call.node_of(*found);
  if (S_ISDIR(found->status.stx_mode))
    if (auto listing = listing_of_few(call, *found, request.listing_bytes()))
      *reply.mutable_listing() = std::move(*listing);
  return {};
}

void tell_root(Call& call, schema::AttachReply& attached) {
  const std::string& handle = attached.root().handle();
  if (call.exclusive_of_another(handle)) return;
  const auto root = call.node(handle);
  if (!root) return;
  const auto status = status_of(**root);
  auto attr = call.leased_attr(handle, **root);
  if (!status || !attr) return;
  *attached.mutable_root()->mutable_attr() = std::move(*attr);
  auto listing = listing_of_few(call, {*root, *status, handle}, call.request().attach().listing_bytes());
  if (listing && listing->names() == schema::COVER_LEASE)
    *attached.mutable_root_listing() = std::move(*listing);
  attached.set_root_lease(call.reply.lease());
}

Result<void> getattr(Call& call) {
  const auto& request = call.request().getattr();
  TUSK_ASSIGN(const SharedFd node, call.node_or_open_file(request.handle(), request.open_id()));
  TUSK_ASSIGN(*call.reply.mutable_attr()->mutable_attr(), call.leased_attr(request.handle(), *node));
  return {};
}

Result<void> setattr(Call& call) {
  const auto& request = call.request().setattr();
  TUSK_ASSIGN(const SharedFd node, call.node_or_open_file(request.handle(), request.open_id()));
  TUSK_ASSIGN(const FileChange change, FileChange::begin(*node));
  call.mutated(request.handle());  // also by the first of several changes
  TUSK_TRY(apply(call, *node, request));
  if (request.has_size() && !request.has_mode()) TUSK_TRY(strip_special_bits(call, *node));
  TUSK_ASSIGN(*call.reply.mutable_attr()->mutable_attr(), change.end(call, request.handle(), *node));
  return {};
}

Result<void> readlink(Call& call) {
  TUSK_ASSIGN(const SharedFd node, call.node(call.request().readlink().handle()));
  std::string target(PATH_MAX, '\0');
  const ssize_t length = ::readlinkat(node->number(), "", target.data(), target.size());
  // The kernel says ENOENT of an O_PATH descriptor that is no symlink.
  if (length < 0) return errno == ENOENT ? fail(from_errno(EINVAL), "not a symlink") : fail_errno("readlink");
  target.resize(static_cast<std::size_t>(length));
  call.reply.mutable_readlink()->set_target(std::move(target));
  return {};
}

Result<void> statfs(Call& call) {
  TUSK_ASSIGN(const SharedFd node, call.node(call.request().statfs().handle()));
  struct statfs facts {};
  if (::fstatfs(node->number(), &facts) != 0) return fail_errno("statfs");
  schema::StatFsReply& reply = *call.reply.mutable_statfs();
  reply.set_block_size(static_cast<std::uint64_t>(facts.f_frsize != 0 ? facts.f_frsize : facts.f_bsize));
  reply.set_blocks(facts.f_blocks);
  reply.set_blocks_free(facts.f_bfree);
  reply.set_blocks_available(facts.f_bavail);
  reply.set_files(facts.f_files);
  reply.set_files_free(facts.f_ffree);
  reply.set_name_max(static_cast<std::uint32_t>(facts.f_namelen));
  return {};
}

}  // namespace tusk::server::ops
