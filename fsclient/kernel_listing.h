// What the kernel keeps of one directory's listing (FOPEN_CACHE_DIR), so that who reads it again asks nobody
// but for the open: docs/decisions/0010-kernel-loans.md.
//
// The kernel appends what each open directory that may add to it is told, at the place where what it has
// ends, and checks nothing but that; and who is in the middle goes on in whatever it has by then. So one open
// at a time has to do with it, the others are told everything by us; and what it has is used again only if it
// came from the very listing that a reader who starts now should read.
//
// Pure state without a lock: it belongs to a Directory, whose inode's mutex protects it.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "proto/base/time.h"

namespace tusk::client {

struct Listing;

class KernelListing {
 public:
  enum class Use {
    kAside,  // the open neither reads nor adds to what the kernel has, which the kernel drops
    kAnew,   // it drops what it has, and the open adds to it
    kKept,   // it reads what the kernel has, and adds what is missing
  };

  // A directory is opened. `current`: what its reader is to be given, or null where that is not known yet or
  // must not be used later without asking. Unless the answer is kAside, the open ends with close().
  [[nodiscard]] Use open(const std::shared_ptr<Listing>& current, TimePoint now) {
    if (in_use_) return Use::kAside;
    in_use_ = true;
    if (current && current == from_.lock() && !mixed_ && now < renew_at_) return Use::kKept;
    from_ = current;
    pending_ = !current;
    mixed_ = false;
    renew_at_ = TimePoint::max();
    return Use::kAnew;
  }
  void close() { in_use_ = false; }

  // That open begins, perhaps again, to tell `listing`.
  void tell(const std::shared_ptr<Listing>& listing) {
    if (std::exchange(pending_, false)) from_ = listing;
    mixed_ = mixed_ || from_.lock() != listing;
  }
  // What it tells the kernel has to ask for again from then on: so it had better be told all again.
  void renew_at(TimePoint time) { renew_at_ = std::min(renew_at_, time); }

  [[nodiscard]] bool being_read() const { return in_use_; }

 private:
  std::weak_ptr<Listing> from_;
  bool pending_ = false;  // from what its reader will be told
  bool mixed_ = false;    // from several
  bool in_use_ = false;
  TimePoint renew_at_ = TimePoint::max();
};

}  // namespace tusk::client
