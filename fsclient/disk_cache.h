// Blocks of files (and listings, kept_listings.h, which are blocks to it) on a disk of this machine, so that
// what was read yesterday and has not changed need not come over the line again. It survives restarts and
// crashes: whatever is read is checked first (disk_record.h).
//
// It knows nothing of coherence: who asks names the change counter the bytes must be of, and has to know that
// this is the file's (kept_blocks.h). It holds bytes that a server sent, never what programs wrote.
//
// Nobody waits for the disk here: find() and store() look at memory only, the rest is done on the threads of
// the scheduler, which are the disk's own. What cannot be stored in time is not stored. When the disk is full
// or fails, it goes on without writing for a while.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "fsclient/disk_index.h"
#include "fsclient/disk_pins.h"
#include "fsclient/disk_segment.h"
#include "fsclient/scheduler.h"
#include "proto/base/shared_bytes.h"

namespace tusk::client {

struct DiskCacheStats {
  std::filesystem::path folder;
  ByteCount used_bytes = 0, max_bytes = 0, pinned_bytes = 0;
  std::uint64_t blocks = 0;
  std::uint64_t hits = 0;  // blocks, since the mount, as all below
  ByteCount hit_bytes = 0;
  ByteCount stored_bytes = 0;
  ByteCount evicted_bytes = 0;
  ByteCount skipped_bytes = 0;  // not stored: the disk was too slow, full, or full of pinned files
  ByteCount pending_bytes = 0;  // on their way to the disk
  std::uint64_t damaged = 0;    // blocks that were not what had been written, or could not be read
  bool loading = false;         // what is there from before is not known in full yet
  std::string problem;          // why nothing is written at the moment, or ""
  std::vector<std::string> pins;
};

class DiskCache {
 public:
  // Bytes that wait for the disk, in the memory of the block cache; more are not stored.
  static constexpr ByteCount kPendingMax = 32 * 1024 * 1024;
  static constexpr Duration kPauseAfterFailure = std::chrono::minutes(5);

  struct Options {
    std::filesystem::path folder;  // DiskFolder's
    ByteCount bytes_max = 0;       // of all files there, at least DiskFolder::kBytesMin
    ByteCount pending_max = kPendingMax;
  };
  // Where a file was seen last, relative to the mount; nullopt: nobody knows. Called on a disk thread.
  using PathOfFile = std::function<std::optional<std::string>()>;
  using Done = std::move_only_function<void(Result<void>)>;

  // Begins to look at what is there. `disk` must outlive it and be stopped before it is destroyed.
  DiskCache(Options options, Scheduler& disk);
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  // All below are thread-safe.

  // Told once of each kind of trouble; on any thread, and it may not call back.
  void on_trouble(std::function<void(const std::string&)> tell);

  // What is there of a block: of which change, and how many bytes. It may turn out to be damaged.
  struct Found {
    std::uint64_t change = 0;
    std::uint32_t length = 0;
  };
  [[nodiscard]] std::optional<Found> find(std::string_view handle, std::uint64_t block) const;

  // Reads the block's bytes from `begin` (in the block) on into all of `target`. `done` runs on a disk
  // thread, or at once if the block is not there; on failure the target's bytes are undefined.
  void read(const DiskKey& key, std::uint32_t begin, MutableSharedBytes target, PathOfFile path_of,
            Done done);

  // Stores the block's bytes, which stay as they are while they are held. `lend` is called at once, or not at
  // all when the block is there already.
  void store(const DiskKey& key, const std::function<SharedBytes()>& lend, PathOfFile path_of);

  // What is there under the key is of no use: it will not be found any more.
  void forget(const DiskKey& key);

  // Files at `path` (relative to the mount) or below stay, those that are there already from when they are
  // read or stored next. Both wait for the disk, for one small file.
  [[nodiscard]] Result<void> pin(const std::string& path);
  [[nodiscard]] Result<void> unpin(const std::string& path);

  [[nodiscard]] DiskCacheStats stats() const;

  // The mount ends: waits until what was to be stored is, at most so long, and forgets the rest.
  void finish(std::chrono::milliseconds limit);

 private:
  using SegmentId = DiskIndex::SegmentId;
  using PinId = DiskIndex::PinId;
  using SegmentPointer = std::shared_ptr<DiskSegment>;

  struct Job {
    DiskBlockId id;
    std::string handle;
    std::uint64_t change = 0;
    std::uint64_t block = 0;
    SharedBytes bytes;
    PathOfFile path_of;
  };
  struct Reading;

  void list_segments();
  void load_next();
  void finish_loading();
  void begin_writing_locked();
  [[nodiscard]] std::deque<Job> take_queue_locked();
  void write_some();
  void write(const Job& job);
  [[nodiscard]] bool make_room(ByteCount bytes);
  [[nodiscard]] Result<SegmentId> head_for(PinId pin);
  void set_problem_locked(std::string problem);
  void handle_write_failure(const Job& failed, const Error& error);
  void finish_read(Reading& reading);
  void keep_if_pinned(const Reading& reading);
  [[nodiscard]] PinId pin_of(const PathOfFile& path_of) const;
  using PinChange = Result<DiskPins::Moved> (DiskPins::*)(const std::string&);
  [[nodiscard]] Result<void> change_pins(PinChange change, const std::string& path);
  [[nodiscard]] std::filesystem::path path_of_segment(SegmentId id, PinId pin) const;
  [[nodiscard]] std::vector<SegmentId> heads_locked() const;

  const Options options_;
  const ByteCount segment_bytes_;
  Scheduler& disk_;

  std::mutex pins_mutex_;  // before mutex_: one changes pins at a time, and waits for the disk

  mutable std::mutex mutex_;  // nobody waits for the disk under it
  DiskIndex index_;
  DiskPins pins_;
  std::map<SegmentId, SegmentPointer> segments_;
  std::map<PinId, SegmentId> heads_;      // where records are appended
  std::map<SegmentId, TimePoint> noted_;  // when a segment's use was written down
  std::vector<SegmentId> to_load_;        // those that are loaded first are last
  SegmentId next_segment_ = 1;
  std::condition_variable written_;  // nothing more is to be
  std::deque<Job> queue_;
  std::unordered_set<DiskBlockId> queued_;
  std::unordered_set<DiskBlockId> not_pinned_;  // are there, and need not be looked at for pins again
  ByteCount pending_ = 0;
  bool loading_ = true;
  bool writing_ = false;  // one task at a time appends
  TimePoint paused_until_ = TimePoint::min();
  std::string problem_;
  std::function<void(const std::string&)> tell_;
  DiskCacheStats counted_;  // its counters
};

}  // namespace tusk::client
