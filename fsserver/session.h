// What the server keeps for one mount while its connections come and go: open files, remembered
// replies, directory streams, where its log is. (Its locks are in the LockTable, under the session's number.)
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "fsserver/aliases.h"
#include "fsserver/attributes.h"
#include "fsserver/change_gate.h"
#include "fsserver/commits.h"
#include "fsserver/export.h"
#include "fsserver/failed_writes.h"
#include "fsserver/fd.h"
#include "fsserver/lock_table.h"
#include "fsserver/locking_sessions.h"
#include "fsserver/log_turns.h"
#include "fsserver/reply_memory.h"
#include "fsserver/rights_quota.h"
#include "fsserver/worker_pool.h"
#include "proto/base/result.h"
#include "proto/rpc/log_alias.h"

namespace tusk::server {

constexpr std::size_t kSessionIdBytes = 16;
using rpc::kClientOpenIdMin;
constexpr std::size_t kDirectoryStreamsMax = 32;  // per session, held open between two pages

struct OpenFile {
  SharedFd fd;
  int access = 0;  // O_RDONLY, O_WRONLY or O_RDWR
  std::string handle;
  FileKey key;
  Quota::Place place;
  std::mutex position;  // for the calls that use the descriptor's own offset: append and seek

  [[nodiscard]] bool readable() const { return access != O_WRONLY; }
  [[nodiscard]] bool writable() const { return access != O_RDONLY; }
};

// Its share of what the server has, as one of the sessions of a right: the one that it was made by.
struct SessionShare {
  std::shared_ptr<const RightHoldings> right;
  WorkerPool::Flow flow;
  Quota::Place place;
  std::shared_ptr<BodyBudget::Share> bodies = std::make_shared<BodyBudget::Share>(right->bodies);
};

// One log of a session: the LOGs whose numbers count from 1, in their order.
struct LogStream {
  std::uint64_t redo = 0;  // LogRequest.redo; 0: of new changes
  ReplyMemory replies{kOfLogs};
  LogTurns turns;
  // Of the LOG whose turn it is.
  AliasTable aliases;
  FailedWrites failed_writes;
  // Of redoes: the files that they have come to, and whether somebody else had changed each of them before.
  // Only of files that are there: anything can stand in place of a handle. Thread-safe.
  class Visited {
   public:
    static constexpr std::size_t kMax = 131'072;  // two of each change that a client keeps (65,536); no more

    // The first word on a node stays.
    void note(std::string_view handle, bool changed_by_others) {
      const std::lock_guard lock(mutex_);
      if (nodes_.size() < kMax) nodes_.try_emplace(std::hash<std::string_view>()(handle), changed_by_others);
    }
    // nullopt: it was not noted.
    [[nodiscard]] std::optional<bool> changed_by_others(std::string_view handle) const {
      const std::lock_guard lock(mutex_);
      const auto node = nodes_.find(std::hash<std::string_view>()(handle));
      return node == nodes_.end() ? std::nullopt : std::optional(node->second);
    }
    [[nodiscard]] std::size_t size() const {
      const std::lock_guard lock(mutex_);
      return nodes_.size();
    }

   private:
    mutable std::mutex mutex_;
    std::unordered_map<std::size_t, bool> nodes_;
  };
  std::shared_ptr<Visited> visited;
};

// Thread-safe.
class Session {
 public:
  // `number` is unique in the process, `name` among all sessions there ever are. `lockers`: where it is noted
  // that this session locks; may be null. `gate`: that of the session whose place it takes, or a new one.
  Session(std::uint64_t number, std::string name, std::shared_ptr<Export> exported, SessionShare share,
          LockingSessions* lockers, std::shared_ptr<ChangeGate> gate = std::make_shared<ChangeGate>());

  [[nodiscard]] std::uint64_t number() const { return number_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] Export& exported() const { return *export_; }
  [[nodiscard]] const SessionShare& share() const { return share_; }
  [[nodiscard]] const std::shared_ptr<Quota>& descriptors() const { return share_.right->descriptors; }
  [[nodiscard]] const std::shared_ptr<ChangeGate>& gate() const { return gate_; }
  [[nodiscard]] ReplyMemory& replies() { return replies_; }
  // By LogRequest.redo. A redo that is not the newest is nobody's any more: nullptr.
  [[nodiscard]] std::shared_ptr<LogStream> log(std::uint64_t redo);

  // What brings its changes to the disk; constant once the session has begun.
  void commit_by(std::shared_ptr<Commits> commits);
  [[nodiscard]] Commits& commits() const { return *commits_; }
  // The verifier that its client knows since it attached, and the failures that it has been told.
  [[nodiscard]] Commits::Mark answered_under() const;
  // Its client is told the present verifier, if it has not been told every failure.
  void renew_verifier();
  // An answer tells all failures until now.
  void note_told();

  // The session is over: a call still running must leave nothing behind that outlives it.
  void end();
  [[nodiscard]] bool ended() const { return ended_; }

  // It has no main connection (any more): after a while its locks are others' for the taking, so nothing that
  // comes over its lanes is done.
  void set_away(bool away) { away_ = away; }
  [[nodiscard]] bool away() const { return away_; }

  // Before its first lock is granted, and when it has its locks of before a restart again.
  void note_locking();
  // A lock on this file that was taken through an open file of before a restart: closing others does not end
  // it.
  void note_reclaimed(const FileKey& file);
  [[nodiscard]] bool reclaimed(const FileKey& file) const;

  // The new file's open_id, never 0 and never one of an earlier server's.
  [[nodiscard]] std::uint64_t add(std::shared_ptr<OpenFile> file);
  // The same under an id that the client has chosen. False: there is such a file, or it is not for it to
  // choose.
  [[nodiscard]] bool add(std::uint64_t open_id, std::shared_ptr<OpenFile> file);
  // nullptr when there is none (any more).
  [[nodiscard]] std::shared_ptr<OpenFile> find(std::uint64_t open_id) const;
  // `last`: nothing else of this session has that file open.
  struct Closed {
    std::shared_ptr<OpenFile> file;
    bool last = false;
  };
  [[nodiscard]] Closed close(std::uint64_t open_id);
  [[nodiscard]] std::size_t open_files() const;
  // Nothing is open, and no reply is kept: its client loses nothing when the session ends.
  [[nodiscard]] bool holds_nothing() const;

  // A directory opened for reading whose next entry is the one at `cookie`, or nothing: then the caller
  // opens it and seeks.
  [[nodiscard]] Fd take_stream(std::string_view handle, std::uint64_t cookie);
  void keep_stream(std::string_view handle, std::uint64_t cookie, Fd fd);

 private:
  struct Stream {
    std::string handle;
    std::uint64_t cookie;
    Fd fd;
    Quota::Place place;
  };
  const std::uint64_t number_;
  const std::string name_;
  const std::shared_ptr<Export> export_;
  const SessionShare share_;
  const std::shared_ptr<ChangeGate> gate_;
  ReplyMemory replies_;
  const std::shared_ptr<LogStream> log_ = std::make_shared<LogStream>();
  std::shared_ptr<Commits> commits_;
  LockingSessions* const lockers_;
  std::atomic<bool> ended_{false};
  std::atomic<bool> away_{false};
  std::once_flag noted_;

  mutable std::mutex mutex_;
  Commits::Mark answered_under_;
  std::unordered_map<std::uint64_t, std::shared_ptr<OpenFile>> files_;
  std::unordered_map<FileKey, std::size_t> opens_of_;
  std::uint64_t next_open_id_;
  std::list<Stream> streams_;  // least recently used first
  std::set<FileKey> reclaimed_;
  std::shared_ptr<LogStream> redo_;  // the newest; null: there was none
};

}  // namespace tusk::server
