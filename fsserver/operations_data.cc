// Operations on a file's bytes: read, write, commit, allocate, seek.
#include <linux/falloc.h>
#include <sys/uio.h>

#include <algorithm>
#include <climits>

#include "fsserver/file_change.h"
#include "fsserver/made_at.h"
#include "fsserver/operations.h"
#include "fsserver/special_bits.h"
#include "proto/rpc/compression.h"

namespace tusk::server {
namespace {

// How many bytes take about a microsecond of a worker.
constexpr std::size_t kReadBytesOfCost = 4096;
constexpr std::size_t kWrittenBytesOfCost = 2048;
constexpr std::size_t kPackedBytesOfCost = 256;

Result<void> check_range(std::uint64_t offset, std::uint64_t length) {
  constexpr auto kMax = static_cast<std::uint64_t>(INT64_MAX);
  if (offset > kMax || length > kMax - offset) return fail(from_errno(EFBIG), "past the largest offset");
  return {};
}

// At `offset`, or with RWF_APPEND in `flags` at the end (and the descriptor's own position follows).
Result<void> write_fully(const Fd& fd, std::uint64_t offset, std::span<const std::byte> bytes, int flags) {
  this_turn().spend(static_cast<Cost>(bytes.size() / kWrittenBytesOfCost));
  const bool append = (flags & RWF_APPEND) != 0;
  std::size_t done = 0;
  while (done < bytes.size()) {
    iovec piece{.iov_base = const_cast<std::byte*>(bytes.data() + done), .iov_len = bytes.size() - done};
    const off_t at = append ? -1 : static_cast<off_t>(offset + done);
    const ssize_t size = ::pwritev2(fd.number(), &piece, 1, at, flags);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return fail_errno("write");
    if (size == 0) return fail(from_errno(EIO), "write: the file takes no bytes");
    done += static_cast<std::size_t>(size);
  }
  return {};
}

// Where appended bytes went: the kernel leaves the descriptor's position behind them.
Result<std::uint64_t> append(const Call::File& file, std::span<const std::byte> bytes, int flags) {
  std::unique_lock<std::mutex> position;
  if (file.open) position = std::unique_lock(file.open->position);
  TUSK_TRY(write_fully(*file.fd, 0, bytes, flags | RWF_APPEND));
  const off_t behind = ::lseek(file.fd->number(), 0, SEEK_CUR);
  if (behind < 0) return fail_errno("append");
  return static_cast<std::uint64_t>(behind) - bytes.size();
}

Result<SharedBytes> written_bytes(const Call& call) {
  const auto& request = call.request().write();
  if (request.length() > kWriteBytesMax) return fail(from_errno(EINVAL), "more than the largest write");
  SharedBytes body = call.incoming()->body();
  if (request.compressed()) return rpc::decompress(body.bytes, request.length());
  if (body.size() != request.length())
    return fail(ErrorCode::kMalformed, "a write of another length than announced");
  return body;
}

}  // namespace

std::optional<SharedBytes> compress(std::span<const std::byte> bytes) {
  this_turn().spend(static_cast<Cost>(bytes.size() / kPackedBytesOfCost));
  return rpc::compress_if_it_helps(bytes);
}

Result<std::size_t> read_fully(const Fd& fd, std::uint64_t offset, std::span<std::byte> into) {
  this_turn().spend(static_cast<Cost>(into.size() / kReadBytesOfCost));
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t size =
        ::pread(fd.number(), into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return fail_errno("read");
    if (size == 0) break;
    done += static_cast<std::size_t>(size);
  }
  return done;
}

Result<SharedBytes> read_body(const Fd& fd, std::uint64_t offset, std::size_t length) {
  const MutableSharedBytes memory = allocate_bytes(length);
  TUSK_ASSIGN(const std::size_t size, read_fully(fd, offset, memory.bytes));
  return memory.first(size);
}

namespace ops {

Result<void> read(Call& call) {
  const auto& request = call.request().read();
  const ByteCount capacity = call.incoming()->reply_body_capacity();
  if (request.length() > kReadBytesMax || request.length() > capacity)
    return fail(from_errno(EINVAL), "more than the largest read, or than there is room for");
  TUSK_TRY(check_range(request.offset(), request.length()));
  TUSK_ASSIGN(const Call::File file, call.file(request.handle(), request.open_id(), O_RDONLY));
  TUSK_ASSIGN(const Status which, status_of(*file.fd));
  const schema::Cover cover = call.lease_node(request.handle(), which);
  TUSK_ASSIGN(const Status before, status_of(*file.fd));
  TUSK_ASSIGN(SharedBytes bytes, read_body(*file.fd, request.offset(), request.length()));

  schema::ReadReply& reply = *call.reply.mutable_read();
  reply.set_length(static_cast<std::uint32_t>(bytes.size()));
  reply.set_change(observed_change(before));
  reply.set_cover(cover);
  reply.set_end_of_file(bytes.size() < request.length() ||
                        request.offset() + bytes.size() >= before.stx_size);
  if (request.compress()) {
    if (auto frame = compress(bytes.bytes); frame && frame->size() <= capacity) {
      reply.set_compressed(true);
      bytes = std::move(*frame);
    }
  }
  call.body = std::move(bytes);
  return {};
}

Result<void> write(Call& call) {
  const auto& request = call.request().write();
  TUSK_ASSIGN(const SharedBytes bytes, written_bytes(call));
  TUSK_TRY(check_range(request.append() ? 0 : request.offset(), request.length()));
  TUSK_ASSIGN(const Call::File file, call.file(request.handle(), request.open_id(), O_WRONLY));
  TUSK_ASSIGN(const FileChange change, FileChange::begin(*file.fd));
  const int flags = request.sync() ? RWF_DSYNC : 0;
  std::uint64_t offset = request.offset();
  call.mutated(request.handle());  // also by what is written before a disk is full
  // Before the first byte, as the kernel does: nobody runs what is half written with somebody else's rights.
  TUSK_TRY(strip_special_bits(call, *file.fd));
  {
    const SparingReserve sparing(call.attachment().identity_real);
    if (request.append()) {
      TUSK_ASSIGN(offset, append(file, bytes.bytes, flags));
    } else {
      TUSK_TRY(write_fully(*file.fd, offset, bytes.bytes, flags));
    }
  }
  set_made_at(call, *file.fd, MadeTimes::kModification);
  call.reply.mutable_write()->set_offset(offset);
  TUSK_ASSIGN(*call.reply.mutable_write()->mutable_attr(), change.end(call, request.handle(), *file.fd));
  return {};
}

Result<void> allocate(Call& call) {
  const auto& request = call.request().allocate();
  TUSK_TRY(check_range(request.offset(), request.length()));
  constexpr std::uint32_t kKnown = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE |
                                   FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE |
                                   FALLOC_FL_UNSHARE_RANGE;
  if ((request.mode() & ~kKnown) != 0) return fail(from_errno(EOPNOTSUPP), "fallocate mode");
  TUSK_ASSIGN(const Call::File file, call.file(request.handle(), request.open_id(), O_WRONLY));
  TUSK_ASSIGN(const FileChange change, FileChange::begin(*file.fd));
  call.mutated(request.handle());  // also by the blocks that a full disk still had
  TUSK_TRY(strip_special_bits(call, *file.fd));
  {
    const SparingReserve sparing(call.attachment().identity_real);
    if (::fallocate(file.fd->number(), static_cast<int>(request.mode()), static_cast<off_t>(request.offset()),
                    static_cast<off_t>(request.length())) != 0)
      return fail_errno("fallocate");
  }
  TUSK_ASSIGN(*call.reply.mutable_attr()->mutable_attr(), change.end(call, request.handle(), *file.fd));
  return {};
}

Result<void> seek(Call& call) {
  const auto& request = call.request().seek();
  const int whence = static_cast<int>(request.whence());
  if (whence != SEEK_DATA && whence != SEEK_HOLE)
    return fail(from_errno(EINVAL), "only SEEK_DATA and SEEK_HOLE");
  if (request.offset() > static_cast<std::uint64_t>(INT64_MAX)) return fail(from_errno(ENXIO));
  TUSK_ASSIGN(const Call::File file, call.file(request.handle(), request.open_id(), O_RDONLY));
  std::unique_lock<std::mutex> position;
  if (file.open) position = std::unique_lock(file.open->position);
  const off_t found = ::lseek(file.fd->number(), static_cast<off_t>(request.offset()), whence);
  if (found < 0) return fail_errno("seek");
  call.reply.mutable_seek()->set_offset(static_cast<std::uint64_t>(found));
  return {};
}

}  // namespace ops
}  // namespace tusk::server
