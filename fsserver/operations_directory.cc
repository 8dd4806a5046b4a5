// READDIR: a directory by pages, optionally with every entry's handle and attributes.
#include <dirent.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "fsserver/operations.h"

namespace tusk::server::ops {
namespace {

constexpr std::uint32_t kPageBytesDefault = 64 * 1024;
constexpr std::uint32_t kPageBytesMax = 1 << 20;
constexpr int kEntriesMax = 4096;
constexpr std::size_t kKernelBufferBytes = 32 * 1024;
constexpr int kKernelReadsMax =
    1024;  // in one call: entries that vanish meanwhile make a page shorter, not endless

struct RawEntry {
  std::uint64_t ino;
  std::uint64_t cookie;
  std::uint8_t type;
  std::string_view name;
};

// Reads entries one after the other from an open directory.
class DirectoryReader {
 public:
  explicit DirectoryReader(Fd fd) : fd_(std::move(fd)) {}

  // False: at the end.
  [[nodiscard]] Result<bool> next(RawEntry& entry) {
    if (place_ == filled_) {
      if (++reads_ > kKernelReadsMax) return false;
      const long size = ::syscall(SYS_getdents64, fd_.number(), buffer_.data(), buffer_.size());
      if (size < 0) return fail_errno("getdents64");
      place_ = 0;
      filled_ = static_cast<std::size_t>(size);
      ended_ = filled_ == 0;
      if (ended_) return false;
    }
    // struct linux_dirent64: ino (8) off (8) reclen (2) type (1) name (NUL-terminated)
    const char* const raw = buffer_.data() + place_;
    std::uint16_t length = 0;
    std::memcpy(&entry.ino, raw, 8);
    std::memcpy(&entry.cookie, raw + 8, 8);
    std::memcpy(&length, raw + 16, 2);
    entry.type = static_cast<std::uint8_t>(raw[18]);
    entry.name = raw + 19;
    place_ += length;
    return true;
  }

  [[nodiscard]] bool ended() const { return ended_; }
  // True when the descriptor's own position is right behind the last entry that next() gave.
  [[nodiscard]] bool drained() const { return place_ == filled_; }
  [[nodiscard]] Fd take_fd() { return std::move(fd_); }

 private:
  Fd fd_;
  alignas(8) std::array<char, kKernelBufferBytes> buffer_;
  std::size_t place_ = 0;
  std::size_t filled_ = 0;
  int reads_ = 0;
  bool ended_ = false;
};

Result<Fd> open_stream(Call& call, const Fd& directory, std::uint64_t cookie) {
  Fd kept = call.session().take_stream(call.request().readdir().handle(), cookie);
  if (kept.valid()) return kept;
  TUSK_ASSIGN(Fd fd, reopen(directory, O_RDONLY | O_DIRECTORY));
  if (cookie != 0 && ::lseek(fd.number(), static_cast<off_t>(cookie), SEEK_SET) < 0)
    return fail_errno("seekdir");
  return fd;
}

enum class Examined : std::uint8_t { kYes, kNo, kVanished };

Examined examine(Call& call, const SharedFd& directory, schema::DirEntry& entry) {
  const std::string& handle = call.request().readdir().handle();
  const auto found = call.nodes().lookup(directory, handle, entry.name(), NodeTable::Keep::kNo);
  if (!found) return found.error().code == from_errno(ENOENT) ? Examined::kVanished : Examined::kNo;
  *entry.mutable_node() = call.node_of(*found);
  entry.set_ino(entry.node().attr().ino());
  entry.set_type(IFTODT(found->status.stx_mode));
  return Examined::kYes;
}

struct Page {
  std::uint64_t last_cookie;
  std::size_t bytes_left;
};

// Adds the entry to the reply; false when the page is full and it must come first in the next one.
bool add(Call& call, const SharedFd& directory, std::uint64_t device, const RawEntry& raw, Page& page) {
  schema::ReadDirReply& reply = *call.reply.mutable_readdir();
  if (reply.entries_size() >= kEntriesMax) return false;
  schema::DirEntry& entry = *reply.add_entries();
  entry.set_name(std::string(raw.name));
  entry.set_type(raw.type);
  entry.set_ino(export_ino(device, raw.ino, call.nodes().root_device()));
  entry.set_cookie(raw.cookie);
  if (call.request().readdir().with_nodes() && examine(call, directory, entry) == Examined::kVanished) {
    reply.mutable_entries()->RemoveLast();
    return true;
  }
  constexpr std::size_t kFieldHeadBytes = 4;
  const std::size_t size = entry.ByteSizeLong() + kFieldHeadBytes;
  // One entry fits in any page, so that every page goes forward.
  if (size > page.bytes_left && reply.entries_size() > 1) {
    reply.mutable_entries()->RemoveLast();
    return false;
  }
  page.bytes_left -= std::min(size, page.bytes_left);
  return true;
}

Result<void> fill(Call& call, const SharedFd& directory, std::uint64_t device, DirectoryReader& reader,
                  Page& page) {
  RawEntry raw{};
  while (true) {
    TUSK_ASSIGN(const bool more, reader.next(raw));
    if (!more) return {};
    const bool dots = raw.name == "." || raw.name == "..";
    if (!dots && !add(call, directory, device, raw, page)) return {};
    page.last_cookie = raw.cookie;
  }
}

}  // namespace

Result<void> readdir(Call& call) {
  const auto& request = call.request().readdir();
  TUSK_ASSIGN(const SharedFd directory, call.node(request.handle()));
  TUSK_ASSIGN(const Status status, status_of(*directory));
  if (!S_ISDIR(status.stx_mode)) return fail(from_errno(ENOTDIR));
  TUSK_ASSIGN(Fd stream, open_stream(call, *directory, request.cookie()));

  const std::uint32_t limit = request.limit_bytes() == 0 ? kPageBytesDefault : request.limit_bytes();
  Page page{.last_cookie = request.cookie(), .bytes_left = std::min(limit, kPageBytesMax)};
  DirectoryReader reader(std::move(stream));
  TUSK_TRY(fill(call, directory, device_of(status), reader, page));

  schema::ReadDirReply& reply = *call.reply.mutable_readdir();
  reply.set_end(reader.ended());
  *reply.mutable_directory() = call.attr(status);
  if (!reader.ended()) {
    Fd fd = reader.take_fd();
    // The kernel is a buffer ahead of the page's end.
    if (::lseek(fd.number(), static_cast<off_t>(page.last_cookie), SEEK_SET) >= 0)
      call.session().keep_stream(request.handle(), page.last_cookie, std::move(fd));
  }
  return {};
}

}  // namespace tusk::server::ops
