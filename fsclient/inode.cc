#include "fsclient/inode.h"

#include <fcntl.h>

#include <algorithm>

#include "fsclient/inode_table.h"
#include "proto/base/check.h"

namespace tusk::client {
namespace {

// Bytes: of Attributes::blocks; of what a file takes up at least, where more is only what the server likes to
// transfer.
constexpr std::uint32_t kUnit = 512;
constexpr std::uint32_t kPage = 4096;

}  // namespace

Inode::~Inode() {
  for (const std::string& handle : handles_) table_.handle_gone(handle);
}

const std::string& Inode::handle() const {
  static const std::string kUnknown;
  const std::string* const known = handle_.load(std::memory_order_acquire);
  return known != nullptr ? *known : kUnknown;
}

void Inode::arrive(std::string handle) {
  TUSK_CHECK(!on_server());
  take_handle(std::move(handle));
}

void Inode::take_handle(std::string handle) {
  handle_.store(&handles_.emplace_back(std::move(handle)), std::memory_order_release);
}

ByteCount Inode::size() const {
  const ByteCount told = attributes.value().size;
  return file ? std::max(told, file->written_end()) : told;
}

// Those that the server has told and those of our own writes, as if none of these lay in the others; not more
// than the whole file takes. Too many rather than too few: of a file without blocks programs take for granted
// that it is a hole.
std::uint64_t Inode::blocks() const {
  const Attributes& told = attributes.value();
  const std::uint64_t page = std::clamp(told.block_size, kUnit, kPage);
  const auto pages_to = [page](ByteCount end) { return (end + page - 1) / page; };
  const std::uint64_t whole = pages_to(size()) * (page / kUnit);
  if (!file || told.blocks >= whole) return told.blocks;
  std::uint64_t pages = 0;
  std::uint64_t counted_to = 0;  // in pages
  for (const Interval& piece : file->written.intervals()) {
    const std::uint64_t first = std::max(piece.begin / page, counted_to);
    counted_to = pages_to(piece.end);
    pages += counted_to - std::min(first, counted_to);
  }
  return std::min(told.blocks + pages * (page / kUnit), whole);
}

void Inode::show_times(Attributes& shown) const {
  if (log.shown_ctime && shown.change == log.shown_until_change) {
    shown.ctime = *log.shown_ctime;
    if (log.shown_mtime) shown.mtime = *log.shown_mtime;
  }
  // What is in the log has its times already.
  if (file && log.entries == 0 && !file->data.all_settled() && earlier(shown.mtime, file->written_time)) {
    shown.mtime = file->written_time;
    shown.ctime = file->written_time;
  }
}

timespec Inode::shown_ctime() const {
  Attributes shown = attributes.value();
  show_times(shown);
  return shown.ctime;
}

Attributes Inode::shown() const {
  Attributes shown = attributes.value();
  if (log.shown_ino != 0 && !table_.numbers().collided(log.shown_ino)) shown.ino = log.shown_ino;
  show_times(shown);
  if (file) {
    shown.size = size();
    shown.blocks = blocks();
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

Attributes attributes_of(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  return inode.attributes.value();
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
