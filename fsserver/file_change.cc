#include "fsserver/file_change.h"

#include <array>

namespace tusk::server {
namespace {

// Files share locks by chance: more of them than calls run at once.
std::mutex& lock_of(const Status& status) {
  static std::array<std::mutex, 1024> locks;
  return locks[export_ino(device_of(status), status.stx_ino, 0) % locks.size()];
}

}  // namespace

Result<FileChange> FileChange::begin(const Fd& file) {
  TUSK_ASSIGN(const Status which, status_of(file));
  std::unique_lock lock(lock_of(which));
  TUSK_ASSIGN(const Status before, status_of(file));
  return FileChange(std::move(lock), change_of(before));
}

Result<schema::Attr> FileChange::end(Call& call, std::string_view handle, const Fd& file) const {
  TUSK_ASSIGN(const Status seen, status_of(file));
  const schema::Cover cover = call.lease_node(handle, seen);
  TUSK_ASSIGN(const Status after, cover == schema::COVER_LEASE ? status_of(file) : Result<Status>(seen));
  schema::Attr attr = call.attr(after);
  attr.set_cover(cover);
  attr.set_change(change_of(after));  // a change we have just made is certain, however young
  attr.set_change_before(before_);
  return attr;
}

}  // namespace tusk::server
