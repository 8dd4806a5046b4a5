// COPY_RANGE: bytes from file to file without crossing the network, holes included.
#include <linux/falloc.h>
#include <sys/stat.h>

#include <algorithm>
#include <climits>

#include "fsserver/file_change.h"
#include "fsserver/operations.h"
#include "fsserver/special_bits.h"
#include "proto/io/clock.h"

namespace tusk::server::ops {
namespace {

constexpr std::uint64_t kCopyBytesMax = std::uint64_t{1} << 30;  // per call
constexpr Duration kCopyTimeMax = 1s;                            // per call, looked at between pieces
constexpr std::uint64_t kPieceBytes = std::uint64_t{16} << 20;
constexpr std::size_t kBufferBytes = 1 << 20;
constexpr std::uint64_t kCopiedBytesOfCost = 4096;  // of the turn: so many take about a microsecond

struct Copy {
  const Call::File& source_file;
  const Fd& source;
  const Fd& target;
  std::uint64_t source_offset;
  std::uint64_t target_offset;
  std::uint64_t length;  // what is left
  bool by_kernel = true;

  void advance(std::uint64_t bytes) {
    source_offset += bytes;
    target_offset += bytes;
    length -= bytes;
  }
};

Result<std::uint64_t> copy_by_hand(const Copy& copy, std::uint64_t length) {
  std::vector<std::byte> buffer(std::min<std::uint64_t>(length, kBufferBytes));
  ssize_t size = 0;
  do
    size =
        ::pread(copy.source.number(), buffer.data(), buffer.size(), static_cast<off_t>(copy.source_offset));
  while (size < 0 && errno == EINTR);
  if (size < 0) return fail_errno("read");
  std::size_t done = 0;
  while (done < static_cast<std::size_t>(size)) {
    const ssize_t written =
        ::pwrite(copy.target.number(), buffer.data() + done, static_cast<std::size_t>(size) - done,
                 static_cast<off_t>(copy.target_offset + done));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && done > 0) break;  // what is there counts; the error comes again with the next call
    if (written < 0) return fail_errno("write");
    done += static_cast<std::size_t>(written);
  }
  return done;
}

bool kernel_cannot(int number) {
  return number == EXDEV || number == EOPNOTSUPP || number == ENOSYS || number == EINVAL || number == EPERM;
}

Result<std::uint64_t> copy_data(Copy& copy, std::uint64_t length) {
  length = std::min(length, kPieceBytes);
  if (copy.by_kernel) {
    auto from = static_cast<off64_t>(copy.source_offset);
    auto to = static_cast<off64_t>(copy.target_offset);
    ssize_t size = 0;
    do size = ::copy_file_range(copy.source.number(), &from, copy.target.number(), &to, length, 0);
    while (size < 0 && errno == EINTR);
    if (size > 0) return static_cast<std::uint64_t>(size);
    if (size < 0 && !kernel_cannot(errno)) return fail_errno("copy_file_range");
    copy.by_kernel = false;  // also 0 before the end: files in /proc and /sys
  }
  return copy_by_hand(copy, length);
}

// Zeros where the target has bytes. Where it ends before, reach() makes them.
Result<void> punch(const Copy& copy, std::uint64_t length) {
  TUSK_ASSIGN(const Status status, status_of(copy.target));
  if (copy.target_offset >= status.stx_size) return {};
  const std::uint64_t inside = std::min<std::uint64_t>(length, status.stx_size - copy.target_offset);
  if (::fallocate(copy.target.number(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(copy.target_offset), static_cast<off_t>(inside)) != 0)
    return fail_errno("punch hole");
  return {};
}

// Makes the file reach to `end` at least. Not by ftruncate: it would cut off what others append after our
// look at the size.
Result<void> reach(const Fd& target, std::uint64_t end) {
  TUSK_ASSIGN(const Status status, status_of(target));
  if (end <= status.stx_size) return {};
  const auto last = static_cast<off_t>(end - 1);
  if (::fallocate(target.number(), 0, last, 1) == 0) return {};
  if (errno != EOPNOTSUPP && errno != ENOSYS) return fail_errno("extend");
  if (::pwrite(target.number(), "", 1, last) != 1) return fail_errno("extend");
  return {};
}

// Where the data or hole at the copy's place ends, at most its end.
struct Extent {
  bool hole;
  std::uint64_t length;
};

Extent extent_at(const Copy& copy) {
  std::unique_lock<std::mutex> position;
  if (copy.source_file.open) position = std::unique_lock(copy.source_file.open->position);
  const auto at = static_cast<off_t>(copy.source_offset);
  const off_t data = ::lseek(copy.source.number(), at, SEEK_DATA);
  if (data < 0 && errno == ENXIO) return {true, copy.length};
  if (data > at) return {true, std::min(copy.length, static_cast<std::uint64_t>(data - at))};
  const off_t hole = data == at ? ::lseek(copy.source.number(), at, SEEK_HOLE) : -1;
  if (hole > at) return {false, std::min(copy.length, static_cast<std::uint64_t>(hole - at))};
  return {false, copy.length};  // no such knowledge on this file system
}

Result<std::uint64_t> run(const rpc::IncomingCall& incoming, Copy copy) {
  const TimePoint deadline = io::now() + kCopyTimeMax;
  std::uint64_t copied = 0;
  bool punches = true;
  bool ends_in_hole = false;
  // Something in any case: nothing would tell its end to who asks again because its connection was lost.
  const auto may_stop = [&] {
    return copied > 0 && (io::now() >= deadline || this_turn().over() || incoming.cancelled());
  };
  while (copy.length > 0 && !may_stop()) {
    const Extent extent = extent_at(copy);
    std::uint64_t step = extent.length;
    if (extent.hole && punches) {
      punches = punch(copy, extent.length).has_value();
      if (!punches) continue;  // no holes on the target's file system: copy the zeros
    } else {
      const auto size = copy_data(copy, extent.length);
      if (!size && copied > 0) break;  // what is copied counts; the error comes again with the next call
      if (!size) return std::unexpected(size.error());
      if (*size == 0) break;
      step = *size;
    }
    this_turn().spend(static_cast<Cost>(step / kCopiedBytesOfCost));
    copy.advance(step);
    copied += step;
    ends_in_hole = extent.hole && punches;
  }
  if (ends_in_hole) TUSK_TRY(reach(copy.target, copy.target_offset));
  return copied;
}

bool overlap(std::uint64_t a, std::uint64_t b, std::uint64_t length) {
  return a < b + length && b < a + length;
}

}  // namespace

Result<void> copy_range(Call& call) {
  const auto& request = call.request().copy_range();
  constexpr auto kMax = static_cast<std::uint64_t>(INT64_MAX) - kCopyBytesMax;
  if (request.source_offset() > kMax || request.target_offset() > kMax) return fail(from_errno(EFBIG));
  TUSK_ASSIGN(const Call::File source, call.file(request.source(), request.source_open_id(), O_RDONLY));
  TUSK_ASSIGN(const Call::File target, call.file(request.target(), request.target_open_id(), O_WRONLY));
  TUSK_ASSIGN(const Status status, status_of(*source.fd));

  const std::uint64_t available =
      status.stx_size > request.source_offset() ? status.stx_size - request.source_offset() : 0;
  const std::uint64_t length = std::min({request.length(), kCopyBytesMax, available});
  if (request.source() == request.target() &&
      overlap(request.source_offset(), request.target_offset(), length))
    return fail(from_errno(EINVAL), "source and target overlap");

  TUSK_ASSIGN(const FileChange change, FileChange::begin(*target.fd));
  if (length > 0) {
    call.mutated(request.target());  // as in WRITE, also by what is copied before an error
    TUSK_TRY(strip_special_bits(call, *target.fd));
  }
  const SparingReserve sparing(call.attachment().identity_real);
  TUSK_ASSIGN(const std::uint64_t copied, run(*call.incoming(), {.source_file = source,
                                                                 .source = *source.fd,
                                                                 .target = *target.fd,
                                                                 .source_offset = request.source_offset(),
                                                                 .target_offset = request.target_offset(),
                                                                 .length = length}));
  call.reply.mutable_copy_range()->set_copied(copied);
  TUSK_ASSIGN(*call.reply.mutable_copy_range()->mutable_target(),
              change.end(call, request.target(), *target.fd));
  return {};
}

}  // namespace tusk::server::ops
