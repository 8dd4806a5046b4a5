// What statfs(2) says of the export's file system, for a moment: find asks in every directory it comes to.
//
// Of what is mounted inside the export nothing is kept: the server marks the inode numbers of such nodes
// (docs/PROTOCOL.md, "Trees"). Where quotas of directories
// make the answer another one for each, it is that of the directory that was asked about last.
#pragma once

#include <mutex>
#include <optional>
#include <utility>

#include "proto/base/time.h"
#include "proto/schema/tusk.pb.h"

namespace tusk::client {

// Thread-safe.
class ExportStatistics {
 public:
  static constexpr Duration kAgeMax = std::chrono::seconds(1);
  // From then on who asks is answered, and they are asked for again meanwhile.
  static constexpr Duration kAgeGood = kAgeMax / 4;

  [[nodiscard]] static bool covers(std::uint64_t ino) { return (ino >> 63) == 0; }

  struct Known {
    schema::StatFsReply reply;
    bool renew = false;  // by the caller, who is the only one told so
  };
  [[nodiscard]] std::optional<Known> find(TimePoint now) {
    const std::lock_guard lock(mutex_);
    if (!reply_ || asked_ + kAgeMax < now) return std::nullopt;
    const bool old = asked_ + kAgeGood < now;
    return Known{*reply_, old && !std::exchange(renewing_, old)};
  }
  void keep(const schema::StatFsReply& reply, TimePoint asked) {
    const std::lock_guard lock(mutex_);
    if (asked < asked_) return;
    reply_ = reply;
    asked_ = asked;
    renewing_ = false;
  }

 private:
  std::mutex mutex_;
  std::optional<schema::StatFsReply> reply_;
  TimePoint asked_ = TimePoint::min();
  bool renewing_ = false;
};

}  // namespace tusk::client
