#include "fsserver/directory_reader.h"

#include <dirent.h>
#include <sys/syscall.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <string>

namespace tusk::server {
namespace {

constexpr long kNameBytesOfCost = 256;        // names are read so much quicker than they are looked up
constexpr std::size_t kEntryHeadBytes = 4;    // its tag and length
constexpr std::size_t kNodeBytesUsual = 100;  // handle and attributes
// A directory that once held many names takes long to read though few are left.
constexpr std::uint64_t kQuickDirectoryMax = 64 * 1024;

}  // namespace

Result<bool> DirectoryReader::next(RawEntry& entry) {
  if (place_ == filled_) {
    if (++reads_ > kKernelReadsMax) return false;
    const long size = ::syscall(SYS_getdents64, fd_.number(), buffer_.data(), buffer_.size());
    if (size < 0) return fail_errno("getdents64");
    this_turn().spend(1 + size / kNameBytesOfCost);
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

Examined examine(Call& call, const SharedFd& directory, std::string_view handle, schema::DirEntry& entry) {
  this_turn().spend(kEntryCost);
  const auto found = call.nodes().lookup(directory, handle, entry.name(), NodeTable::Keep::kNo);
  if (!found) return found.error().code == from_errno(ENOENT) ? Examined::kVanished : Examined::kNo;
  // What it is there now it will tell who asks for it.
  if (S_ISDIR(found->status.stx_mode) && call.exclusive_of_another(found->handle)) return Examined::kNo;
  *entry.mutable_node() = call.node_of(*found);
  entry.set_ino(entry.node().attr().ino());
  entry.set_type(IFTODT(found->status.stx_mode));
  if (S_ISLNK(found->status.stx_mode)) {
    std::string target(PATH_MAX, '\0');
    const ssize_t size = ::readlinkat(found->fd->number(), "", target.data(), target.size());
    if (size > 0) entry.set_link_target(target.data(), static_cast<std::size_t>(size));
  }
  return Examined::kYes;
}

Result<bool> names_fit(const NodeTable::Found& directory, std::size_t limit) {
  if (directory.status.stx_size > kQuickDirectoryMax) return false;
  TUSK_ASSIGN(Fd fd, reopen(*directory.fd, O_RDONLY | O_DIRECTORY));
  DirectoryReader reader(std::move(fd));
  RawEntry raw{};
  std::size_t size = 0;
  while (size <= limit) {
    TUSK_ASSIGN(const bool more, reader.next(raw));
    if (!more) return reader.ended();
    if (!raw.dots()) size += raw.name.size() + kNodeBytesUsual;
  }
  return false;
}

Result<WholeLister> WholeLister::begin(Call& call, NodeTable::Found directory, schema::WalkListing& listing,
                                       std::size_t left) {
  if (!S_ISDIR(directory.status.stx_mode)) return fail(from_errno(ENOTDIR));
  TUSK_ASSIGN(Fd fd, reopen(*directory.fd, O_RDONLY | O_DIRECTORY));
  listing.set_names(call.cover_names(directory.handle, *directory.fd));
  return WholeLister(std::move(directory), std::move(fd), listing, left);
}

Result<WholeLister::Progress> WholeLister::go_on(Call& call) {
  RawEntry raw{};
  while (room_) {
    if (this_turn().over()) return Progress::kTurnOver;
    TUSK_ASSIGN(const bool more, reader_->next(raw));
    if (!more) return reader_->ended() ? Progress::kWhole : Progress::kNoRoom;
    if (!raw.dots()) add(call, raw);
  }
  return Progress::kNoRoom;
}

void WholeLister::add(Call& call, const RawEntry& raw) {
  schema::DirEntry& entry = *listing_->add_entries();
  entry.set_name(raw.name.data(), raw.name.size());
  ++examined_;
  switch (examine(call, directory_.fd, directory_.handle, entry)) {
    case Examined::kVanished:
      listing_->mutable_entries()->RemoveLast();
      return;
    case Examined::kNo:
      entry.set_type(raw.type);
      entry.set_ino(export_ino(device_of(directory_.status), raw.ino, call.nodes().root_device()));
      break;
    case Examined::kYes:  // its node says both
      entry.clear_type();
      entry.clear_ino();
      break;
  }
  const std::size_t size = entry.ByteSizeLong() + kEntryHeadBytes;
  room_ = size <= left_;
  if (room_) left_ -= size;
}

}  // namespace tusk::server
