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
#include <set>
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
constexpr std::size_t kLockWaitsPerSessionMax = 4'096;  // so that one mount does not take all the places
// A lock that would not wait is asked for so often by retry() while the file is leased (F_SETLEASE): who has
// the lease may give it back at once, and no program expects to be refused for it.
constexpr int kLeaseTries = 10;
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
  std::uint64_t owner = 0;  // the client's: of its kernel, for a flock the open file's
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

  // From here to end_grace() nobody gets a lock but by reclaim(): what else is asked for waits until then,
  // and is decided in its turn. For clients that held locks before the server was restarted.
  void begin_grace();
  void end_grace();
  // A lock that its owner held when the server was restarted. EAGAIN when somebody is in the way after all; a
  // lease is not: the lock is then taken on the server's own file by retry(), or lost to a program there that
  // is quicker.
  [[nodiscard]] Result<void> reclaim(FileKey file, const SharedFd& node, const LockWanted& wanted,
                                     const std::shared_ptr<Quota>& payer);

  // Whether its owner has some lock on all of the range. Its kind of access may just be changing.
  [[nodiscard]] bool holds(FileKey file, const LockWanted& wanted) const;

  // What is in the way of `wanted`: type kUnlock when nothing is.
  [[nodiscard]] LockWanted test(FileKey file, const SharedFd& node, const LockWanted& wanted);

  // No effect when the wait is over.
  void cancel(LockWaitId id);

  // The flock of an open file that is closed; all POSIX locks of a session on a file that it has not
  // open any more; everything of a session that is over.
  void release_open(FileKey file, std::uint64_t session, std::uint64_t open_id);
  void release_file(FileKey file, std::uint64_t session);
  void release_session(std::uint64_t session);
  [[nodiscard]] bool holds_any(std::uint64_t session) const;

  // The session is out of reach for long, or is back. While it is away it keeps its locks on a file only
  // until somebody else wants one that they are in the way of. Waits for nobody; true if that is news.
  bool mark_away(std::uint64_t session, bool away);
  // Serves those who have been waiting for locks of sessions that are away.
  void serve_instead_of_absent();

  // Tries again what a program on the server was in the way of. True: it still is.
  bool retry();
  // Sessions that have been told that they hold what retry() has found lost since this was asked last.
  [[nodiscard]] std::set<std::uint64_t> take_robbed();

  [[nodiscard]] std::size_t held() const;
  [[nodiscard]] std::size_t waiting() const;

 private:
  using Held = LockWanted;
  struct Waiter {
    LockWaitId id;
    LockWanted wanted;
    Answer answer;
    bool blocked_by_host = false;
    std::optional<int> tries;  // left, of who does not wait but for a lease to be given back
  };
  struct File {
    SharedFd node;  // keeps the inode number from being used again
    std::vector<Held> held;
    std::list<Waiter> waiting;  // first come, first served
    HostLock host;
    bool owes_host = false;  // reclaimed while it was leased, and not yet locked there
    Quota::Place place;
  };
  struct Done {
    Answer answer;
    Result<void> result;
  };
  // Answers to give once the mutex is free.
  using Answers = std::vector<Done>;
  enum class How : std::uint8_t { kNow, kWait, kReclaim };
  // Asked for in the time of grace.
  struct PutAside {
    LockWaitId id;
    FileKey key;
    SharedFd node;
    LockWanted wanted;
    How how;
    Answer answer;
    std::shared_ptr<Quota> payer;
  };

  [[nodiscard]] static const Held* conflict(const File& file, const LockWanted& wanted);
  [[nodiscard]] static std::size_t growth(const File& file, const LockWanted& wanted);
  // Whose lock a program on the server is in the way of goes to `robbed`. False: the file is leased; what is
  // left was not tried.
  static bool give_back_to_host(File& file, LockKind kind, std::uint64_t start, std::uint64_t end,
                                std::set<std::uint64_t>* robbed = nullptr);

  // All below: with mutex_ held.
  // Takes the locks of sessions that are away, if they are all that is in the way.
  void take_from_absent(File& file, const LockWanted& wanted);
  // All that these sessions have on the file: part of their locks would protect nothing.
  void take_all_of(File& file, const std::set<std::uint64_t>& sessions);
  void settle_with_host(File& file, Answers& answers);
  // nullopt: it has to wait.
  [[nodiscard]] std::optional<Result<void>> attempt(File& file, const LockWanted& wanted, How how);
  [[nodiscard]] std::size_t held_by(std::uint64_t session) const;
  void count(std::uint64_t session, std::size_t before, std::size_t after);
  // Of waits and of what is put aside.
  [[nodiscard]] bool may_wait(std::uint64_t session) const;
  void begin_wait(std::uint64_t session) { ++waiting_of_[session]; }
  void end_wait(std::uint64_t session);
  // True: it waits, as `asked.id`.
  [[nodiscard]] bool decide(PutAside asked, Answers& answers);
  void add_waiter(PutAside asked, File& file);
  // Takes it out of the indexes, not out of its file.
  void forget_wait(const Waiter& waiter);
  template <class Matches>
  void withdraw_aside(Matches matches, Answers& answers);
  void replace_range(File& file, const LockWanted& wanted);
  [[nodiscard]] bool would_deadlock(const File& file, const LockWanted& wanted) const;
  // All but kDone: nothing has changed.
  [[nodiscard]] HostLock::Outcome grant(File& file, const LockWanted& wanted);
  void unlock(File& file, const LockWanted& wanted);
  void serve_waiting(File& file, Answers& answers);
  void give_up_on_leases(File& file, Answers& answers);
  using WaiterPlace = std::list<Waiter>::iterator;
  WaiterPlace answer_waiter(File& file, WaiterPlace waiter, Result<void> result, Answers& answers);
  void drop_if_unused(FileKey key);
  template <class Matches>
  void release_matching(FileKey key, Matches matches, Answers& answers);

  std::mutex away_mutex_;  // after mutex_
  std::set<std::uint64_t> away_;

  mutable std::mutex mutex_;
  std::map<FileKey, File> files_;
  std::unordered_map<LockWaitId, FileKey> waits_;
  std::multimap<LockOwner, std::pair<const File*, const Waiter*>> waits_of_;
  std::unordered_map<std::uint64_t, std::size_t> held_of_;     // by session; none is 0
  std::unordered_map<std::uint64_t, std::size_t> waiting_of_;  // likewise
  LockWaitId last_wait_{0};
  bool in_grace_ = false;
  std::set<std::uint64_t> robbed_;
  std::vector<PutAside> put_aside_;
};

}  // namespace tusk::server
