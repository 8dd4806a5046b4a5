#include "fsclient/disk_segment.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "proto/base/shared_bytes.h"

namespace tusk::client {
namespace {

constexpr std::uint32_t kTrailerMagic = 0x31464b54;  // "TKF1"

struct Trailer {
  std::uint32_t magic = kTrailerMagic;
  std::uint32_t count = 0;
  std::uint64_t table_bytes = 0;
  std::uint64_t table_checksum = 0;
  std::uint64_t checksum = 0;

  [[nodiscard]] std::uint64_t own_checksum() const {
    return disk_checksum(std::as_bytes(std::span(this, 1)).first(offsetof(Trailer, checksum)))[0];
  }
};
static_assert(sizeof(Trailer) == DiskSegment::kTrailerBytes && std::endian::native == std::endian::little);

// False at the end of the file as well.
bool pread_all(int fd, ByteCount offset, std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t size = ::pread(fd, into.data(), into.size(), static_cast<off_t>(offset));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) {
      if (size == 0) errno = 0;
      return false;
    }
    into = into.subspan(static_cast<std::size_t>(size));
    offset += static_cast<ByteCount>(size);
  }
  return true;
}

bool pwrite_all(int fd, ByteCount offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t size = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(size));
    offset += static_cast<ByteCount>(size);
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<DiskSegment>> DiskSegment::create(const Path& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return fail_errno(path.string());
  return std::unique_ptr<DiskSegment>(new DiskSegment(path, fd));
}

Result<std::unique_ptr<DiskSegment>> DiskSegment::open(const Path& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return fail_errno(path.string());
  std::unique_ptr<DiskSegment> segment(new DiskSegment(path, fd));
  struct stat st {};
  if (::fstat(fd, &st) != 0) return fail_errno(path.string());
  segment->end_ = static_cast<ByteCount>(st.st_size);
  return segment;
}

DiskSegment::~DiskSegment() { ::close(fd_); }

// ---------------------------------------------------------------- at the start

Result<void> DiskSegment::load(const std::function<void(const DiskHead&, Offset)>& found) {
  const ByteCount size = end_;
  sealed_ = load_table(size, found);
  if (sealed_) return {};
  load_records(size, found);
  if (end_ < size && ::ftruncate(fd_, static_cast<off_t>(end_)) != 0) return fail_errno(name());
  return {};
}

bool DiskSegment::load_table(ByteCount size, const std::function<void(const DiskHead&, Offset)>& found) {
  Trailer trailer;
  if (size < sizeof trailer) return false;
  if (!pread_all(fd_, size - sizeof trailer, std::as_writable_bytes(std::span(&trailer, 1)))) return false;
  if (trailer.magic != kTrailerMagic || trailer.checksum != trailer.own_checksum() ||
      trailer.table_bytes > size - sizeof trailer)
    return false;
  std::string table(trailer.table_bytes, '\0');
  const ByteCount records_end = size - sizeof trailer - trailer.table_bytes;
  if (!pread_all(fd_, records_end, std::as_writable_bytes(std::span(table))) ||
      disk_checksum(as_byte_span(table))[0] != trailer.table_checksum)
    return false;
  std::span<const std::byte> rest = as_byte_span(table);
  ByteCount offset = 0;
  while (const auto head = decode_disk_head(rest)) {
    if (offset + head->record_bytes() > records_end) break;
    found(*head, static_cast<Offset>(offset));
    offset += head->record_bytes();
    rest = rest.subspan(head->head_bytes());
  }
  return true;
}

void DiskSegment::load_records(ByteCount size, const std::function<void(const DiskHead&, Offset)>& found) {
  end_ = 0;
  std::array<std::byte, kDiskHeadFixed + kDiskHandleMax> buffer;
  while (end_ < size && end_ <= ~Offset{0}) {
    const auto room = std::span(buffer).first(std::min<ByteCount>(buffer.size(), size - end_));
    if (!pread_all(fd_, end_, room)) return;
    const auto head = decode_disk_head(room);
    if (!head || head->record_bytes() > size - end_) return;
    found(*head, static_cast<Offset>(end_));
    table_ += encode_disk_head(*head);
    ++count_;
    end_ += head->record_bytes();
  }
}

// ---------------------------------------------------------------- writing

Result<DiskSegment::Offset> DiskSegment::append(const DiskHead& head, std::span<const std::byte> bytes) {
  const std::string encoded = encode_disk_head(head);
  if (end_ + encoded.size() + bytes.size() > ~Offset{0}) return fail(from_errno(EFBIG), name());
  // The head last: a record that is not whole is not seen.
  if (!pwrite_all(fd_, end_ + encoded.size(), bytes) || !pwrite_all(fd_, end_, as_byte_span(encoded))) {
    const auto error = fail_errno(name());
    (void)!::ftruncate(fd_, static_cast<off_t>(end_));
    return error;
  }
  const auto offset = static_cast<Offset>(end_);
  end_ += encoded.size() + bytes.size();
  table_ += encoded;
  ++count_;
  return offset;
}

Result<void> DiskSegment::seal() {
  Trailer trailer{.count = count_, .table_bytes = table_.size()};
  trailer.table_checksum = disk_checksum(as_byte_span(table_))[0];
  trailer.checksum = trailer.own_checksum();
  table_ += as_text(std::as_bytes(std::span(&trailer, 1)));
  const bool written = pwrite_all(fd_, end_, as_byte_span(table_));
  const auto size = table_.size();
  table_ = {};
  sealed_ = true;  // whether it could be written or not
  if (!written) {
    const auto error = fail_errno(name());
    (void)!::ftruncate(fd_, static_cast<off_t>(end_));
    return error;
  }
  end_ += size;
  return {};
}

// ---------------------------------------------------------------- reading

Result<void> DiskSegment::read(const DiskKey& key, Offset offset, std::span<std::byte> target) const {
  std::array<std::byte, kDiskHeadFixed + kDiskHandleMax> buffer;
  const auto head_room = std::span(buffer).first(std::min(buffer.size(), kDiskHeadFixed + key.handle.size()));
  iovec pieces[] = {{.iov_base = head_room.data(), .iov_len = head_room.size()},
                    {.iov_base = target.data(), .iov_len = target.size()}};
  ssize_t size = 0;
  do size = ::preadv(fd_, pieces, std::size(pieces), static_cast<off_t>(offset));
  while (size < 0 && errno == EINTR);
  if (size < 0) return fail_errno(name());
  const auto head = decode_disk_head(head_room);
  if (static_cast<std::size_t>(size) != head_room.size() + target.size() || !head || !head->is(key) ||
      head->length != target.size() || head->checksum != disk_checksum(target))
    return fail(ErrorCode::kMalformed, name() + ": damaged bytes");
  return {};
}

// ---------------------------------------------------------------- the file

std::string DiskSegment::name() const {
  const std::lock_guard lock(path_mutex_);
  return path_.string();
}

void DiskSegment::note_use() const { (void)::futimens(fd_, nullptr); }

void DiskSegment::remove() {
  const std::lock_guard lock(path_mutex_);
  ::unlink(path_.c_str());
}

Result<void> DiskSegment::rename(const Path& path) {
  const std::lock_guard lock(path_mutex_);
  if (::rename(path_.c_str(), path.c_str()) != 0) return fail_errno(path.string());
  path_ = path;
  return {};
}

}  // namespace tusk::client
