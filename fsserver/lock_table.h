// Advisory locks of all sessions on all files: POSIX record locks and flock, granted, waiting, taken back.
//
// Among clients the table decides. A granted lock is also taken on the server's own file (host_lock.h),
// so that programs on the server are kept out; a lock that one of them holds is asked for again by
// retry(). Thread-safe; answers are given without the table's lock held.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "fsserver/fd.h"
#include "fsserver/host_lock.h"
#include "fsserver/quota.h"
#include "proto/base/result.h"
#include "proto/base/strong_int.h"

namespace tusk::server {

constexpr std::size_t kLocksPerFileMax = 8'192;
constexpr std::size_t kLocksPerSessionMax = 65'536;
constexpr std::size_t kLockWaitsMax = 65'536;
constexpr std::size_t kLockWaitsPerFileMax = 4'096;
// Locks looked at in search of a deadlock. A client can tie larger knots only to catch itself; whoever waits
// in one can still be interrupted.
constexpr std::size_t kDeadlockSearchMax = 65'536;

// An inode while somebody holds it open.
struct FileKey {
  std::uint64_t device = 0;
  std::uint64_t ino = 0;
  auto operator<=>(const FileKey&) const = default;
};

}  // namespace tusk::server

template <>
struct std::hash<tusk::server::FileKey> {
  std::size_t operator()(const tusk::server::FileKey& key) const {
    return std::hash<std::uint64_t>()(key.ino * 0x9e3779b97f4a7c15u + key.device);
  }
};

namespace tusk::server {

// Locks of one owner never conflict with each other.
struct LockOwner {
  std::uint64_t session = 0;
  std::uint64_t owner = 0;  // the client kernel's
  auto operator<=>(const LockOwner&) const = default;
};

struct LockWanted {
  LockKind kind = LockKind::kPosix;
  LockOwner owner;
  std::uint64_t open_id = 0;
  LockType type = LockType::kRead;  // kUnlock gives back
  std::uint64_t start = 0;
  std::uint64_t end = kLockEnd;  // inclusive
  std::uint32_t pid = 0;
};

using LockWaitId = StrongInt<struct LockWaitIdTag>;

class LockTable {
 public:
  using Answer = std::move_only_function<void(Result<void>)>;

  // `node`: the file, O_PATH. `answer` is called exactly once, before this returns or later: granted;
  // EAGAIN when somebody is in the way and not `wait`; EDEADLK when waiting would never end (POSIX
  // locks); ENOLCK at the limits; EINTR by cancel(). The id names the wait, if it became one. A file with
  // locks costs descriptors: `payer` pays for one that had none.
  LockWaitId lock(FileKey file, const SharedFd& node, const LockWanted& wanted, bool wait, Answer answer,
                  const std::shared_ptr<Quota>& payer = nullptr);

  // What is in the way of `wanted`: type kUnlock when nothing is.
  [[nodiscard]] LockWanted test(FileKey file, const SharedFd& node, const LockWanted& wanted);

  // No effect when the wait is over.
  void cancel(LockWaitId id);

  // The flock of an open file that is closed; all POSIX locks of a session on a file that it has not
  // open any more; everything of a session that is over.
  void release_open(FileKey file, std::uint64_t session, std::uint64_t open_id);
  void release_file(FileKey file, std::uint64_t session);
  void release_session(std::uint64_t session);

  // Tries again what a program on the server was in the way of. True: there is still such a wait.
  bool retry();

  [[nodiscard]] std::size_t held() const;
  [[nodiscard]] std::size_t waiting() const;

 private:
  using Held = LockWanted;
  struct Waiter {
    LockWaitId id;
    LockWanted wanted;
    Answer answer;
    bool blocked_by_host = false;
  };
  struct File {
    SharedFd node;  // keeps the inode number from being used again
    std::vector<Held> held;
    std::list<Waiter> waiting;  // first come, first served
    HostLock host;
    Quota::Place place;
  };
  struct Done {
    Answer answer;
    Result<void> result;
  };
  // Answers to give once the mutex is free.
  using Answers = std::vector<Done>;

  [[nodiscard]] static const Held* conflict(const File& file, const LockWanted& wanted);
  [[nodiscard]] static std::size_t growth(const File& file, const LockWanted& wanted);
  static void give_back_to_host(File& file, LockKind kind, std::uint64_t start, std::uint64_t end);

  // All below: with mutex_ held.
  // nullopt: it has to wait.
  [[nodiscard]] std::optional<Result<void>> attempt(File& file, const LockWanted& wanted, bool wait);
  [[nodiscard]] std::size_t held_by(std::uint64_t session) const;
  void count(std::uint64_t session, std::size_t before, std::size_t after);
  LockWaitId add_waiter(FileKey key, File& file, const LockWanted& wanted, Answer answer);
  // Takes it out of the indexes, not out of its file.
  void forget_wait(const Waiter& waiter);
  void replace_range(File& file, const LockWanted& wanted);
  [[nodiscard]] bool would_deadlock(const File& file, const LockWanted& wanted) const;
  // False: a program on the server is in the way.
  [[nodiscard]] bool grant(File& file, const LockWanted& wanted);
  void unlock(File& file, const LockWanted& wanted);
  void serve_waiting(File& file, Answers& answers);
  void drop_if_unused(FileKey key);
  template <class Matches>
  void release_matching(FileKey key, Matches matches, Answers& answers);

  mutable std::mutex mutex_;
  std::map<FileKey, File> files_;
  std::unordered_map<LockWaitId, FileKey> waits_;
  std::multimap<LockOwner, std::pair<const File*, const Waiter*>> waits_of_;
  std::unordered_map<std::uint64_t, std::size_t> held_of_;  // by session; none is 0
  LockWaitId last_wait_{0};
};

}  // namespace tusk::server
