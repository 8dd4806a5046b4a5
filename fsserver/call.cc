#include "fsserver/call.h"

#include <sys/xattr.h>

#include <array>
#include <string_view>

namespace tusk::server {

Result<void> check_regular(const Status& status) {
  if (S_ISREG(status.stx_mode)) return {};
  return fail(from_errno(S_ISDIR(status.stx_mode) ? EISDIR : S_ISLNK(status.stx_mode) ? ELOOP : ENXIO));
}

Result<Call::File> Call::file(std::string_view handle, std::uint64_t open_id, int access) const {
  if (auto open = session().find(open_id)) {
    if (open->handle != handle) return fail(from_errno(EBADF), "the open file is another one");
    const bool suits = access == O_RDONLY   ? open->readable()
                       : access == O_WRONLY ? open->writable()
                                            : open->access == O_RDWR;
    if (suits) return File{open->fd, std::move(open)};
  }
  TUSK_ASSIGN(const SharedFd found, node(handle));
  TUSK_ASSIGN(const Status status, status_of(*found));
  TUSK_TRY(check_regular(status));
  Result<Fd> fd = reopen(*found, access);
  // A file that was open before a restart. Whoever may write here can set the owner's mode, too: nothing is
  // granted that the client could not grant itself.
  if (!fd && fd.error().code == from_errno(EACCES) && open_id != 0 && !attachment_->read_only)
    fd = exported().reopen_as_owner(*found, status, access);
  if (!fd) return std::unexpected(std::move(fd).error());
  return File{share(std::move(*fd)), nullptr};
}

Result<SharedFd> Call::node_or_open_file(std::string_view handle, std::uint64_t open_id) const {
  if (const auto open = session().find(open_id); open && open->handle == handle) return open->fd;
  return node(handle);
}

Result<schema::Attr> Call::attr(const Fd& fd) const {
  TUSK_ASSIGN(const Status status, status_of(fd));
  return attr(status);
}

schema::Cover Call::lease(std::string_view handle, LeaseTable::Of of) {
  const LeaseKeeper::Granted granted = leases_.grant(session().number(), handle, of);
  // The oldest tells for all: what is taken back by its number is taken back sooner then.
  if (granted.cover == schema::COVER_LEASE && (reply.lease() == 0 || granted.lease < reply.lease()))
    reply.set_lease(granted.lease);
  return granted.cover;
}

schema::Cover Call::lease_node(std::string_view handle, const Status& status) {
  ChangeWatch* const watch = attachment_->leases ? attachment_->watch.get() : nullptr;
  if (watch == nullptr || !watch->watch_node(handle, status)) return schema::COVER_LIFETIME;
  return lease(handle, LeaseTable::Of::kNode);
}

schema::Cover Call::cover_names(std::string_view handle, const Fd& directory) {
  ChangeWatch* const watch = attachment_->leases ? attachment_->watch.get() : nullptr;
  if (watch == nullptr || !watch->watch_names(handle, directory)) return schema::COVER_LIFETIME;
  return lease(handle, LeaseTable::Of::kNames);
}

void Call::lease_names(std::string_view handle, const Fd& directory) {
  reply.set_names(cover_names(handle, directory));
}

// SELinux's label, which some systems give to every file, is nothing that clients show.
bool has_no_xattrs(const Fd& fd) {
  constexpr std::string_view kLabel("security.selinux\0", 17);
  std::array<char, kLabel.size()> names{};
  const ssize_t size = ::listxattr(proc_path(fd).c_str(), names.data(), names.size());
  if (size < 0) return errno == EOPNOTSUPP;
  return size == 0 || std::string_view(names.data(), static_cast<std::size_t>(size)) == kLabel;
}

Result<schema::Attr> Call::leased_attr(std::string_view handle, const Fd& fd) {
  TUSK_ASSIGN(const Status seen, status_of(fd));
  const schema::Cover cover = lease_node(handle, seen);
  TUSK_ASSIGN(const Status status, cover == schema::COVER_LEASE ? status_of(fd) : Result<Status>(seen));
  schema::Attr told = attr(status);
  told.set_cover(cover);
  told.set_no_xattrs(has_no_xattrs(fd));
  return told;
}

schema::Node Call::node_of(const NodeTable::Found& found) {
  schema::Node node;
  node.set_handle(found.handle);
  const schema::Cover cover = lease_node(found.handle, found.status);
  // It may have changed between the look at it and the lease.
  const auto again = cover == schema::COVER_LEASE ? status_of(*found.fd) : Result<Status>(found.status);
  *node.mutable_attr() = attr(again.value_or(found.status));
  node.mutable_attr()->set_cover(again ? cover : schema::COVER_LIFETIME);
  node.mutable_attr()->set_no_xattrs(has_no_xattrs(*found.fd));
  return node;
}

bool Call::privileged() const {
  if (!exported().can_be_real()) return false;
  return !attachment_->identity_real || request().caller().uid() != 0;
}

std::optional<CreatingFor::Owner> Call::creator() const {
  if (!attachment_->identity_real || !request().has_caller()) return std::nullopt;
  return CreatingFor::Owner{request().caller().uid(), request().caller().gid()};
}

}  // namespace tusk::server
