// Under which names files were last seen, kept on disk: how a server that is not root finds the files of
// old handles again after a restart. (Root asks the file system for the inode instead.)
//
// An append-only file of records, rewritten when it is opened and when it is full. Nothing depends on it
// being right: what is found under a name is compared with the handle. All but open() is thread-safe.
//
//   record = sizes (3 x u16, little endian) handle parent name
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "fsserver/fd.h"
#include "proto/base/result.h"

namespace tusk::server {

// About 600,000 names; further ones do not survive a restart.
constexpr std::size_t kNameMemoryBytesMax = std::size_t{64} << 20;

class NameMemory {
 public:
  using Visitor =
      std::function<void(std::string_view handle, std::string_view parent, std::string_view name)>;

  // Calls `visit` for each record, oldest first; a half record at the end (a crash) is left out. The file
  // is made (0600, in a directory 0700) if there is none.
  [[nodiscard]] static Result<std::unique_ptr<NameMemory>> open(std::filesystem::path file,
                                                                const Visitor& visit,
                                                                std::size_t bytes_max = kNameMemoryBytesMax);
  ~NameMemory() { flush(); }

  // Of little cost: the disk is written by flush().
  void remember(std::string_view handle, std::string_view parent, std::string_view name);
  // What cannot be written stays for the next time.
  void flush();
  // Something did not fit, and would if only the newest record of each file were there: rewrite().
  [[nodiscard]] bool worn() const;
  // Starts anew with the records that `visit_all` gives to its visitor: of all that was remembered before,
  // each file's newest. What is remembered meanwhile comes behind them.
  [[nodiscard]] Result<void> rewrite(const std::function<void(const Visitor&)>& visit_all);

 private:
  NameMemory(std::filesystem::path file, std::size_t bytes_max)
      : file_(std::move(file)), bytes_max_(bytes_max) {}

  // With writing_ held.
  [[nodiscard]] Result<void> append(std::string_view text);

  const std::filesystem::path file_;
  const std::size_t bytes_max_;
  std::mutex writing_;  // the file; before mutex_
  Fd fd_;
  bool failing_ = false;

  mutable std::mutex mutex_;
  std::string pending_;
  std::size_t size_ = 0;  // of the file and what is pending
  bool full_ = false;
  bool given_up_ = false;  // to rewrite it would gain too little
};

}  // namespace tusk::server
