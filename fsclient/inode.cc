#include "fsclient/inode.h"

#include <fcntl.h>

#include <algorithm>

#include "fsclient/inode_table.h"

namespace tusk::client {

Inode::~Inode() { table_.handle_gone(handle); }

ByteCount Inode::size() const {
  const ByteCount told = attributes.value().size;
  return file ? std::max(told, file->written_end) : told;
}

Attributes Inode::shown() const {
  Attributes shown = attributes.value();
  if (!file) return shown;
  shown.size = size();
  if (!file->data.all_settled() && earlier(shown.mtime, file->written_time)) {
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

}  // namespace tusk::client
