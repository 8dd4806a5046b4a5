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

Result<schema::Attr> FileChange::end(const Call& call, const Fd& file) const {
  TUSK_ASSIGN(const Status after, status_of(file));
  schema::Attr attr = call.attr(after);
  attr.set_change(change_of(after));  // a change we have just made is certain, however young
  attr.set_change_before(before_);
  return attr;
}

}  // namespace tusk::server
