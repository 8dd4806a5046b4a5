// Under which names files were last seen, kept on disk: how a server that is not root finds the files of
// old handles again after a restart. (Root asks the file system for the inode instead.)
//
// An append-only file of records, rewritten when it is opened. Nothing depends on it being right: what is
// found under a name is compared with the handle. remember() and flush() are thread-safe.
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
                                                                const Visitor& visit);
  ~NameMemory() { flush(); }

  // Of little cost: the disk is written by flush().
  void remember(std::string_view handle, std::string_view parent, std::string_view name);
  void flush();
  // Starts anew with the records that `visit_all` gives to its visitor.
  [[nodiscard]] Result<void> rewrite(const std::function<void(const Visitor&)>& visit_all);

 private:
  explicit NameMemory(std::filesystem::path file) : file_(std::move(file)) {}

  const std::filesystem::path file_;
  std::mutex writing_;  // flush()
  Fd fd_;

  std::mutex mutex_;
  std::string pending_;
  std::size_t size_ = 0;  // of the file and what is pending
  bool full_ = false;
};

}  // namespace tusk::server
