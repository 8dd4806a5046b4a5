// READDIR: a directory by pages, optionally with every entry's handle and attributes.
#include <algorithm>

#include "fsserver/directory_reader.h"
#include "fsserver/operations.h"

namespace tusk::server::ops {
namespace {

constexpr std::uint32_t kPageBytesDefault = 64 * 1024;
constexpr std::uint32_t kPageBytesMax = 1 << 20;
constexpr int kEntriesMax = 4096;

Result<Fd> open_stream(Call& call, const Fd& directory, std::uint64_t cookie) {
  Fd kept = call.session().take_stream(call.request().readdir().handle(), cookie);
  if (kept.valid()) return kept;
  TUSK_ASSIGN(Fd fd, reopen(directory, O_RDONLY | O_DIRECTORY));
  if (cookie != 0 && ::lseek(fd.number(), static_cast<off_t>(cookie), SEEK_SET) < 0)
    return fail_errno("seekdir");
  return fd;
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
  const auto& request = call.request().readdir();
  if (request.with_nodes() && examine(call, directory, request.handle(), entry) == Examined::kVanished) {
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
    if (!raw.dots() && !add(call, directory, device, raw, page)) return {};
    page.last_cookie = raw.cookie;
    // The client asks for what comes then.
    if (this_turn().over() && call.reply.readdir().entries_size() > 0) return {};
  }
}

}  // namespace

Result<void> readdir(Call& call) {
  const auto& request = call.request().readdir();
  TUSK_ASSIGN(const SharedFd directory, call.node(request.handle()));
  TUSK_ASSIGN(const Status status, status_of(*directory));
  if (!S_ISDIR(status.stx_mode)) return fail(from_errno(ENOTDIR));
  call.lease_names(request.handle(), *directory);
  // Before the names: who compares the change counter later must not take older names for newer ones.
  TUSK_ASSIGN(*call.reply.mutable_readdir()->mutable_directory(),
              call.leased_attr(request.handle(), *directory));
  TUSK_ASSIGN(Fd stream, open_stream(call, *directory, request.cookie()));

  const std::uint32_t limit = request.limit_bytes() == 0 ? kPageBytesDefault : request.limit_bytes();
  Page page{.last_cookie = request.cookie(), .bytes_left = std::min(limit, kPageBytesMax)};
  DirectoryReader reader(std::move(stream));
  const Result<void> filled = fill(call, directory, device_of(status), reader, page);
  // With its root all of an export is gone, and readdir(3) takes ENOENT for the end of an empty directory:
  // who copies what is there, and deletes the rest, would delete all.
  if (!filled && filled.error().code == from_errno(ENOENT) && !call.exported().root_exists())
    return fail(from_errno(ESTALE), "the exported directory has been removed");
  TUSK_TRY(filled);

  schema::ReadDirReply& reply = *call.reply.mutable_readdir();
  reply.set_end(reader.ended());
  if (!reader.ended()) {
    Fd fd = reader.take_fd();
    // The kernel is a buffer ahead of the page's end.
    if (::lseek(fd.number(), static_cast<off_t>(page.last_cookie), SEEK_SET) >= 0)
      call.session().keep_stream(request.handle(), page.last_cookie, std::move(fd));
  }
  return {};
}

}  // namespace tusk::server::ops
