// A client's lock made felt on the server itself: the same range locked on the server's own file.
//
// All of tuskd is one owner here (OFD locks and flock belong to an open file); which client holds what
// is the LockTable's. Where the file cannot be opened or locked (permissions, file systems without
// without locks) it is silently left out: the lock then holds among clients only. The file is opened for
// writing for record locks that need it and for nothing else: the kernel would execute it for nobody.
#pragma once

#include <cstdint>
#include <functional>

#include "fsserver/fd.h"

namespace tusk::server {

enum class LockKind : std::uint8_t { kPosix, kFlock };
enum class LockType : std::uint8_t { kRead = 0, kWrite = 1, kUnlock = 2 };  // as F_RDLCK, F_WRLCK, F_UNLCK

constexpr std::uint64_t kLockEnd = (std::uint64_t{1} << 63) - 1;  // "to the end of the file", inclusive

// Not thread-safe: belongs to a file of the LockTable.
class HostLock {
 public:
  enum class Outcome : std::uint8_t {
    kDone,      // or left out
    kInTheWay,  // a program on the server has a lock there
    kLeased,    // or a lease (F_SETLEASE), which the kernel has now called back
  };
  // Waits for nobody.
  [[nodiscard]] Outcome apply(const Fd& node, LockKind kind, LockType type, std::uint64_t start,
                              std::uint64_t end);

  // Before a record lock for writing. `again` takes on the new descriptor what the old one holds: locks for
  // reading, which cannot be refused as long as the old one holds them, too. False: the file is leased.
  [[nodiscard]] bool open_for_writing(const Fd& node, const std::function<void()>& again);

  // What a program on the server holds in the way of `type` there; kUnlock if nothing (or flock, which
  // cannot be asked about). Who has a lease may have any lock.
  struct Holder {
    LockType type = LockType::kUnlock;
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    std::uint32_t pid = 0;
  };
  [[nodiscard]] Holder test(const Fd& node, LockType type, std::uint64_t start, std::uint64_t end);

 private:
  // Opened for reading once, when first needed.
  enum class Open : std::uint8_t { kYes, kNever, kNotNow };
  struct Descriptor {
    Fd fd;
    bool tried = false;
    [[nodiscard]] Open open(const Fd& node);
  };
  Descriptor flock_;
  Descriptor records_;
  bool tried_writing_ = false;
  bool writable_ = false;  // records_ is
};

}  // namespace tusk::server
