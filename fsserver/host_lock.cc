#include "fsserver/host_lock.h"

#include <sys/file.h>

#include "fsserver/confined.h"

namespace tusk::server {
namespace {

struct flock to_native(LockType type, std::uint64_t start, std::uint64_t end) {
  struct flock native {};
  native.l_type = type == LockType::kRead ? F_RDLCK : type == LockType::kWrite ? F_WRLCK : F_UNLCK;
  native.l_whence = SEEK_SET;
  native.l_start = static_cast<off_t>(start);
  native.l_len = end >= kLockEnd ? 0 : static_cast<off_t>(end - start + 1);
  return native;
}

bool somebody_is_in_the_way(int result) { return result != 0 && (errno == EAGAIN || errno == EACCES); }

// open(2) waits for who has a lease on the file, up to 45 s; all locks of all clients would wait with it.
Result<Fd> open_now(const Fd& node, int flags) { return reopen(node, flags | O_NONBLOCK); }
bool leased(const Result<Fd>& opened) { return !opened && opened.error().code == from_errno(EAGAIN); }

}  // namespace

HostLock::Open HostLock::Descriptor::open(const Fd& node) {
  if (!tried) {
    auto opened = open_now(node, O_RDONLY);
    if (leased(opened)) return Open::kNotNow;
    tried = true;
    if (opened) fd = std::move(*opened);
  }
  return fd.valid() ? Open::kYes : Open::kNever;
}

bool HostLock::open_for_writing(const Fd& node, const std::function<void()>& again) {
  if (tried_writing_) return true;
  auto opened = open_now(node, O_RDWR);
  if (leased(opened)) return false;
  tried_writing_ = true;
  if (!opened) return true;
  const Fd before = std::exchange(records_.fd, std::move(*opened));
  records_.tried = true;
  writable_ = true;
  if (before.valid()) again();
  return true;
}

HostLock::Outcome HostLock::apply(const Fd& node, LockKind kind, LockType type, std::uint64_t start,
                                  std::uint64_t end) {
  const auto without = [](Open open) { return open == Open::kNever ? Outcome::kDone : Outcome::kLeased; };
  const auto judge = [](int result) {
    return somebody_is_in_the_way(result) ? Outcome::kInTheWay : Outcome::kDone;
  };
  if (kind == LockKind::kFlock) {
    if (const Open open = flock_.open(node); open != Open::kYes) return without(open);
    const int operation = type == LockType::kRead ? LOCK_SH : type == LockType::kWrite ? LOCK_EX : LOCK_UN;
    return judge(::flock(flock_.fd.number(), operation | LOCK_NB));
  }
  if (const Open open = records_.open(node); open != Open::kYes) return without(open);
  if (type == LockType::kWrite && !writable_) return Outcome::kDone;
  struct flock native = to_native(type, start, end);
  return judge(::fcntl(records_.fd.number(), F_OFD_SETLK, &native));
}

HostLock::Holder HostLock::test(const Fd& node, LockType type, std::uint64_t start, std::uint64_t end) {
  const Open open = records_.open(node);
  if (open == Open::kNotNow) return {.type = LockType::kWrite, .start = 0, .end = kLockEnd, .pid = 0};
  if (open == Open::kNever) return {};
  struct flock native = to_native(type, start, end);
  if (::fcntl(records_.fd.number(), F_OFD_GETLK, &native) != 0 || native.l_type == F_UNLCK) return {};
  Holder holder;
  holder.type = native.l_type == F_RDLCK ? LockType::kRead : LockType::kWrite;
  holder.start = static_cast<std::uint64_t>(native.l_start);
  holder.end = native.l_len == 0 ? kLockEnd : holder.start + static_cast<std::uint64_t>(native.l_len) - 1;
  holder.pid = native.l_pid > 0 ? static_cast<std::uint32_t>(native.l_pid) : 0;
  return holder;
}

}  // namespace tusk::server
