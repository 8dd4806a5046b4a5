// Says in the log that datagrams were dropped: an attack, a scan, a path that damages packets. One line for
// many of them, so that the log is no way to fill a disk.
//
// Not thread-safe.
#pragma once

#include <spdlog/spdlog.h>

#include <cstdint>

#include "proto/base/time.h"
#include "proto/io/address.h"

namespace tusk::rpc {

class DropLog {
 public:
  static constexpr Duration kInterval = 60s;

  void note(const io::Address& from) {
    ++dropped_;
    newest_from_ = from;
  }

  // To be called after each batch of datagrams.
  void report(TimePoint now) {
    if (dropped_ == 0 || now < next_) return;
    spdlog::warn("{} datagrams dropped: damaged, forged or not for us; the newest from {}", dropped_,
                 newest_from_.to_string());
    dropped_ = 0;
    next_ = now + kInterval;
  }

 private:
  std::uint64_t dropped_ = 0;  // since the last report
  io::Address newest_from_;
  TimePoint next_{};
};

}  // namespace tusk::rpc
