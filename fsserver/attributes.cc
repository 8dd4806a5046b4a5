#include "fsserver/attributes.h"

#include <sys/sysmacros.h>
#include <sys/utsname.h>

#include <cstdio>
#include <ctime>
#include <utility>

namespace tusk::server {
namespace {

// The finaliser of SplitMix64: every input bit moves every output bit.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

Result<Status> status_of(const Fd& fd) {
  Status status;
  if (::statx(fd.number(), "", AT_EMPTY_PATH | AT_NO_AUTOMOUNT, STATX_BASIC_STATS | STATX_BTIME, &status) !=
      0)
    return fail_errno("statx");
  return status;
}

std::uint64_t export_ino(std::uint64_t device, std::uint64_t ino, std::uint64_t root_device) {
  constexpr std::uint64_t kForeign = std::uint64_t{1} << 63;
  return device == root_device ? ino : (mix(mix(device) + ino) | kForeign);
}

std::uint64_t change_of(const Status& status) {
  const auto ctime_ns =
      static_cast<std::uint64_t>(status.stx_ctime.tv_sec) * 1'000'000'000u + status.stx_ctime.tv_nsec;
  const std::uint64_t change = mix(ctime_ns + mix(status.stx_size));
  return change != 0 ? change : 1;  // 0 means "no copy" in the schema
}

bool stamp_may_repeat(const statx_timestamp& ctime, const timespec& now, bool coarse) {
  constexpr std::int64_t kTwoTicksNs = 20'000'000;
  const std::int64_t age = (now.tv_sec - ctime.tv_sec) * 1'000'000'000 + now.tv_nsec - ctime.tv_nsec;
  return coarse && age < kTwoTicksNs;
}

std::uint64_t observed_change(const Status& status) {
  // Since Linux 6.13 the large file systems stamp finely what somebody has looked at.
  static const bool coarse = [] {
    utsname system{};
    int major = 0, minor = 0;
    return ::uname(&system) != 0 || std::sscanf(system.release, "%d.%d", &major, &minor) != 2 ||
           std::pair(major, minor) < std::pair(6, 13);
  }();
  timespec now{};
  if (coarse) ::clock_gettime(CLOCK_REALTIME, &now);
  return stamp_may_repeat(status.stx_ctime, now, coarse) ? 0 : change_of(status);
}

schema::Attr to_attr(const Status& status, std::uint64_t root_device) {
  schema::Attr attr;
  attr.set_ino(export_ino(device_of(status), status.stx_ino, root_device));
  attr.set_mode(status.stx_mode);
  attr.set_nlink(status.stx_nlink);
  attr.set_uid(status.stx_uid);
  attr.set_gid(status.stx_gid);
  attr.set_rdev(makedev(status.stx_rdev_major, status.stx_rdev_minor));
  attr.set_size(status.stx_size);
  attr.set_blocks(status.stx_blocks);
  attr.set_block_size(status.stx_blksize);
  attr.set_atime_s(status.stx_atime.tv_sec);
  attr.set_atime_ns(status.stx_atime.tv_nsec);
  attr.set_mtime_s(status.stx_mtime.tv_sec);
  attr.set_mtime_ns(status.stx_mtime.tv_nsec);
  attr.set_ctime_s(status.stx_ctime.tv_sec);
  attr.set_ctime_ns(status.stx_ctime.tv_nsec);
  attr.set_change(observed_change(status));
  return attr;
}

}  // namespace tusk::server
