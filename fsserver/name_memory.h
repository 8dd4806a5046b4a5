// Under which names files were last seen, kept on disk: how a server that is not root finds the files of
// old handles again after a restart. (Root asks the file system for the inode instead.)
//
// An append-only file of records, rewritten when it is full: then what was used longest ago may be left out.
// Nothing depends on it being right: what is found under a name is compared with the handle. All but open()
// is thread-safe.
//
//   record = sizes (3 x u16, little endian) handle parent name
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "fsserver/fd.h"
#include "proto/base/result.h"
#include "proto/base/time.h"

namespace tusk::server {

// About 600,000 names.
constexpr std::size_t kNameMemoryBytesMax = std::size_t{64} << 20;

class NameMemory {
 public:
  using Visitor =
      std::function<void(std::string_view handle, std::string_view parent, std::string_view name)>;

  // Calls `visit` for each record, oldest first; a half record at the end (a crash) is left out, and so is
  // what lies beyond `bytes_max`. The file is made (0600, in a directory 0700) if there is none.
  [[nodiscard]] static Result<std::unique_ptr<NameMemory>> open(std::filesystem::path file,
                                                                const Visitor& visit,
                                                                std::size_t bytes_max = kNameMemoryBytesMax);
  ~NameMemory();

  // Of little cost: the disk is written by flush().
  void remember(std::string_view handle, std::string_view parent, std::string_view name);
  // What cannot be written stays for a later time. Does nothing while that has not come.
  void flush(TimePoint now);
  // Something does not fit, and would if only the newest record of each file were there: rewrite(). Not soon
  // again after that has failed.
  [[nodiscard]] bool worn(TimePoint now) const;
  // Starts anew with the records that `visit_all` gives to its visitor, newest first: of all that was
  // remembered before, each file's newest. What is remembered meanwhile comes behind them. If it fails, all
  // is as before.
  [[nodiscard]] Result<void> rewrite(TimePoint now, const std::function<void(const Visitor&)>& visit_all);
  // There is something that is not in the file.
  [[nodiscard]] bool pending() const;

 private:
  // When to try again what the disk has refused.
  class Patience {
   public:
    [[nodiscard]] bool due(TimePoint now) const { return now >= next_; }
    // True: that is the first time.
    bool note_failure(TimePoint now);
    void note_success() { *this = {}; }

   private:
    TimePoint next_{};
    Duration pause_{};
  };

  NameMemory(std::filesystem::path file, std::size_t bytes_max)
      : file_(std::move(file)), bytes_max_(bytes_max) {}

  // With writing_ held.
  [[nodiscard]] Result<void> append(std::string_view text);
  [[nodiscard]] Result<void> cut_tail();
  // With mutex_ held.
  void add(std::string_view record);

  const std::filesystem::path file_;
  const std::size_t bytes_max_;
  std::mutex writing_;  // the file; before mutex_
  Fd fd_;
  std::optional<off_t> tail_;  // what lies there and behind it is to be cut off before more is written
  Patience appending_;

  mutable std::mutex mutex_;
  std::string pending_;
  std::size_t size_ = 0;  // of the file and what is pending
  bool full_ = false;
  bool told_full_ = false;
  Patience rewriting_;
};

}  // namespace tusk::server
