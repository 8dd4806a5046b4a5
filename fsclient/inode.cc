#include "fsclient/inode.h"

#include <fcntl.h>

#include <algorithm>

#include "fsclient/inode_table.h"
#include "proto/base/check.h"

namespace tusk::client {

Inode::~Inode() {
  if (on_server()) table_.handle_gone(handle_);
}

const std::string& Inode::handle() const {
  static const std::string kUnknown;
  return on_server() ? handle_ : kUnknown;
}

void Inode::arrive(std::string handle) {
  TUSK_CHECK(!on_server());
  handle_ = std::move(handle);
  on_server_.store(true, std::memory_order_release);
}

ByteCount Inode::size() const {
  const ByteCount told = attributes.value().size;
  return file ? std::max(told, file->written_end) : told;
}

Attributes Inode::shown() const {
  Attributes shown = attributes.value();
  if (log.shown_ino != 0) shown.ino = log.shown_ino;
  if (log.shown_ctime && shown.change == log.shown_until_change) {
    shown.ctime = *log.shown_ctime;
    if (log.shown_mtime) shown.mtime = *log.shown_mtime;
  }
  if (!file) return shown;
  shown.size = size();
  // What is in the log has its times already.
  if (log.entries == 0 && !file->data.all_settled() && earlier(shown.mtime, file->written_time)) {
    shown.mtime = file->written_time;
    shown.ctime = file->written_time;
  }
  return shown;
}

bool Inode::written_since(TimePoint started) const {
  return file && (!file->data.all_settled() || file->last_write > started);
}

std::uint64_t Inode::any_open_id() const {
  for (const OpenFile* open : open_files)
    if (const std::uint64_t known = open->open_id) return known;
  return 0;
}

OpenFile::OpenFile(std::shared_ptr<Inode> of, std::uint64_t id, std::uint32_t open_flags,
                   std::move_only_function<void(std::uint64_t)> on_close)
    : inode(std::move(of)), open_id(id), flags(open_flags), on_close_(std::move(on_close)) {}

OpenFile::~OpenFile() { on_close_(open_id); }

bool OpenFile::readable() const { return (flags & O_ACCMODE) != O_WRONLY; }
bool OpenFile::writable() const { return (flags & O_ACCMODE) != O_RDONLY; }
bool OpenFile::synchronous() const { return (flags & (O_SYNC | O_DSYNC)) != 0; }
bool OpenFile::direct() const { return (flags & O_DIRECT) != 0; }
bool OpenFile::writes_past_pages() const { return direct() || (flags & O_APPEND) != 0; }

}  // namespace tusk::client
