// One call's change of a file: while it lasts no other call changes the file, so that the change counters
// before and after it tell of this change alone. (A program on the server can still slip in between; its
// change then counts as the call's. Nothing that the kernel offers tells the two apart.)
#pragma once

#include <mutex>

#include "fsserver/call.h"

namespace tusk::server {

class FileChange {
 public:
  // Waits for other calls that are changing the same file.
  [[nodiscard]] static Result<FileChange> begin(const Fd& file);

  // The attributes after the change, which tell the change counter before it, too.
  [[nodiscard]] Result<schema::Attr> end(Call& call, std::string_view handle, const Fd& file) const;

 private:
  FileChange(std::unique_lock<std::mutex> lock, std::uint64_t before)
      : lock_(std::move(lock)), before_(before) {}

  std::unique_lock<std::mutex> lock_;
  std::uint64_t before_;
};

}  // namespace tusk::server
