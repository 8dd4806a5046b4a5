#include "fsserver/made_at.h"

#include <sys/stat.h>

#include <algorithm>

#include "proto/io/clock.h"

namespace tusk::server {

void set_made_at(const Call& call, const Fd& node, MadeTimes which) {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  if (!call.log() || call.request().made_at_ns() == 0) return;
  const std::uint64_t at = std::min(call.request().made_at_ns(), io::unix_nanoseconds() + kSecond);
  const timespec made{static_cast<time_t>(at / kSecond), static_cast<long>(at % kSecond)};
  const timespec times[2] = {which == MadeTimes::kBoth ? made : timespec{0, UTIME_OMIT}, made};
  (void)::utimensat(node.number(), "", times, AT_EMPTY_PATH);
}

bool was_made_at(const Call& call, const Status& status) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  const std::int64_t mtime_ns = status.stx_mtime.tv_sec * kSecond + status.stx_mtime.tv_nsec;
  return call.request().made_at_ns() != 0 &&
         mtime_ns == static_cast<std::int64_t>(call.request().made_at_ns());
}

}  // namespace tusk::server
