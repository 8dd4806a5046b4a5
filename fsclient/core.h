// What the parts of one mounted file system share. Owned by Filesystem; outlives every part.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "fsclient/block_cache.h"
#include "fsclient/committer.h"
#include "fsclient/deferred.h"
#include "fsclient/foresight.h"
#include "fsclient/inode_table.h"
#include "fsclient/kernel_cache.h"
#include "fsclient/loans.h"
#include "fsclient/operation_log.h"
#include "fsclient/path_estimate.h"
#include "fsclient/remote.h"
#include "fsclient/scheduler.h"
#include "fsclient/server_clock.h"
#include "fsclient/trust.h"
#include "fsclient/uncommitted.h"
#include "fsclient/untold_failures.h"

namespace tusk::client {

// Since the mount, in bytes unless named otherwise.
struct Counters {
  std::atomic<std::uint64_t> read{0};             // by programs, from this daemon (not the kernel's cache)
  std::atomic<std::uint64_t> read_from_cache{0};  // of these, without waiting for the server
  std::atomic<std::uint64_t> fetched{0};          // from the server
  std::atomic<std::uint64_t> fetched_ahead{0};    // of these, before anybody asked
  std::atomic<std::uint64_t> written{0};          // by programs
  std::atomic<std::uint64_t> sent{0};             // file data the server has answered for
  std::atomic<std::uint64_t> lookups{0};          // operations
  std::atomic<std::uint64_t> lookups_from_cache{0};
  std::atomic<std::uint64_t> operations{0};  // all of them
};

// The last thing that went wrong, for `tusk status`. It goes to the daemon's log, too.
class LastError {
 public:
  // The log may be slow: with no lock held ...
  void set(std::string text);
  // ... or once it is let go. Not logged: `to_log` is false, or it is what was logged last.
  void set(std::string text, Deferred& after, bool to_log);
  [[nodiscard]] std::pair<std::string, std::uint64_t> value() const {
    const std::lock_guard lock(mutex_);
    return {text_, count_};
  }

 private:
  [[nodiscard]] bool note(const std::string& text, bool to_log);

  mutable std::mutex mutex_;
  std::string text_;
  std::string logged_;  // what is held back does not count: it is logged when it comes again
  std::uint64_t count_ = 0;
};

struct Core {
  Remote& remote;
  OperationLog& log;
  Scheduler& scheduler;
  LeaseTrust& trust;
  KernelCache& kernel;
  PathEstimate path;
  BlockCache cache;
  InodeTable inodes;
  ByteCount call_max;  // largest bulk body, bytes
  Counters counters;
  LastError last_error;
  UntoldFailures untold;
  Foresight foresight;
  ServerClock clock;
  Loans loans{trust, scheduler, kernel, inodes};
  UncommittedChanges uncommitted;
  Committer committer{remote, scheduler, uncommitted, cache.budget()->cap_max() / 2};
};

// A regular file's whole range.
constexpr Interval kWholeFile{0, ~std::uint64_t{0}};

}  // namespace tusk::client
