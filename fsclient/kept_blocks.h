// What of the files' data lies on the disk of this machine, and when it may be used: the one place that joins
// the disk cache to coherence.
//
// Bytes come from the disk only if they are of the change counter that the file's data in memory is of, and
// if this is known to be the file's now: under a lease, within the lifetime of attributes, or because the
// server was asked just then. So they are never older than bytes from memory, and never of two versions.
// Bytes go to the disk only if they came from the server, in answers that name their change counter.
//
// Without a disk cache all of it does nothing.
#pragma once

#include <functional>
#include <memory>

#include "fsclient/core.h"
#include "fsclient/disk_cache.h"
#include "fsclient/facts.h"

namespace tusk::client {

class KeptBlocks {
 public:
  // `disk`: null, or outlives it.
  KeptBlocks(Core& core, Facts& facts, DiskCache* disk) : core_(core), facts_(facts), disk_(disk) {}

  // ---- with the inode's mutex held

  // Some block of the range is there, of the change that the data in memory is of.
  [[nodiscard]] bool has_some_of(const Inode& inode, Interval range) const;
  // The change counter of which the file's first `length` bytes are there; 0: they are not.
  [[nodiscard]] std::uint64_t change_of_start(const Inode& inode, ByteCount length) const;
  // Stores what is in memory of the range's blocks, if they are whole and not there.
  void keep(Inode& inode, Interval range);

  // ---- without

  // The change counter of the bytes that `target` has got now; 0: it has not, ask the server.
  using Brought = std::move_only_function<void(std::uint64_t change)>;
  // `range` is inside one block. `done` runs once, on any thread.
  void bring(const std::shared_ptr<Inode>& inode, Interval range, MutableSharedBytes target, Brought done);
  // The same for who knows that the file is of that change.
  void read(const std::shared_ptr<Inode>& inode, Interval range, MutableSharedBytes target,
            std::uint64_t change, Brought done);

  [[nodiscard]] DiskCache* disk() const { return disk_; }

 private:
  void confirm(const std::shared_ptr<Inode>& inode, Brought done);
  void ask(const std::shared_ptr<Inode>& inode);

  Core& core_;
  Facts& facts_;
  DiskCache* const disk_;
};

// Where the file was seen last, relative to the mount; nullopt: nobody knows any more. Takes the mutexes of
// the inodes on the way, one after the other.
[[nodiscard]] std::optional<std::string> path_of(std::shared_ptr<Inode> inode);
// The same when it is asked for: does not keep the inode alive.
[[nodiscard]] DiskCache::PathOfFile path_later(Inode& inode);

}  // namespace tusk::client
