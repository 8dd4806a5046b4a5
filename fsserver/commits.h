// Brings what the clients of one export have changed to its disk, and remembers when some of it may be gone
// (docs/PROTOCOL.md, "Stable or kept").
//
// Linux tells an error of writeback to each open descriptor once, and to none that is opened later. So there
// is one descriptor for the export, and each error counts as a failure that every session is still to be
// told.
//
// A note in the state directory tells the next process under which verifier clients were answered. Nothing of
// it is synced: another boot has another verifier in any case.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>

#include "fsserver/fd.h"
#include "proto/base/result.h"

namespace tusk::server {

// Everything to the disk, of the file system of `root` and of those that are mounted inside it. Returns the
// error that one of them reports, and the one of who cannot be found or opened.
[[nodiscard]] Result<void> sync_file_systems(const Fd& root);
[[nodiscard]] Result<void> sync_file(const Fd& file, bool data_only);

// How to reach the disk; tests have disks that fail.
struct DiskSync {
  std::function<Result<void>(const Fd& root)> all = sync_file_systems;
  std::function<Result<void>(const Fd& file, bool data_only)> file = sync_file;
};

// Thread-safe.
class Commits {
 public:
  // The write verifier, and how many failures it covers.
  struct Mark {
    std::uint64_t verifier = 0;  // never 0
    std::uint64_t failures = 0;
  };

  // `note`: the file to be found by the next process; empty: none, and each process has a verifier of its
  // own.
  Commits(SharedFd root, const std::filesystem::path& note, DiskSync disk = {});
  Commits(const Commits&) = delete;
  Commits& operator=(const Commits&) = delete;

  [[nodiscard]] Mark mark() const;
  // Something has been changed that is not known to be on the disk.
  void note_change() {
    if (!changed_.load(std::memory_order_relaxed)) changed_ = true;
  }

  // Whatever was changed before the call. Calls that come together share one run. Errors: of the run, and
  // of a failure after `told`.
  [[nodiscard]] Result<void> all(std::uint64_t told);
  // The same for a file or a directory.
  [[nodiscard]] Result<void> file(const Fd& file, bool data_only, std::uint64_t told);
  // Nothing is changed any more: the next process keeps the verifier if all is on the disk.
  void end();

 private:
  void open_note(const std::filesystem::path& file);
  // With mutex_ held.
  void write_note(char state) const;
  void begin_sync();
  void end_sync();
  [[nodiscard]] std::uint64_t verifier() const;
  void note_failure(const Error& error);
  [[nodiscard]] Result<void> untold(std::uint64_t told) const;

  const SharedFd root_;
  const DiskSync disk_;
  std::string boot_;    // empty: unknown
  std::string mounts_;  // which file systems there were when the process began; empty: nobody can tell
  Fd note_;             // locked; not valid: there is none
  std::atomic<bool> changed_{false};

  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::uint64_t base_ = 0;
  std::uint64_t failures_ = 0;
  Error error_{};  // the latest failure
  bool running_ = false;
  std::uint64_t runs_begun_ = 0;
  std::uint64_t runs_ended_ = 0;
  unsigned syncing_ = 0;
};

}  // namespace tusk::server
