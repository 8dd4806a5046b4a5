// The changes that this mount has answered by itself, on their way to the server: one log, in the order in
// which they were made (docs/PROTOCOL.md, "The log").
//
// Entries are gathered into LOGs, which are sent without waiting for one another; the server carries them out
// in their order, and their answers are handed on in their order, too. What it does not do: know what entries
// mean (filesystem_log.cc), or send again (rpc::Caller does).
//
// Entries are taken only under an exclusiveness that the server has not taken back: append() and take_back()
// decide that under one lock, so that behind take_back()'s answer there is no entry left.
//
// Thread-safe; its mutex is a leaf. Answers run on the network thread, one at a time, with no lock held.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fsclient/remote.h"
#include "fsclient/scheduler.h"
#include "proto/base/result.h"
#include "proto/base/shared_bytes.h"
#include "proto/rpc/log_alias.h"

namespace tusk::client {

class OperationLog {
 public:
  // The reply tells the write verifier: of the server machine that made it, which may have been restarted
  // since, as answers wait for those before them.
  using Answer = std::move_only_function<void(Result<schema::Reply>)>;
  using Task = std::move_only_function<void()>;
  using GaveUp = std::move_only_function<void(const Error&)>;

  // Unanswered, at most: what the server keeps room for on its disk.
  static constexpr std::size_t kEntriesMax = 16'384;
  static constexpr ByteCount kBytesMax = 64 * 1024 * 1024;
  // LOGs on their way: the server keeps that many of those that come before their turn.
  static constexpr std::size_t kInFlightMax = 512;
  // Of one LOG: it goes when it is full, when somebody waits for it, or when it is so old.
  static constexpr std::size_t kBatchEntries = 256;
  static constexpr ByteCount kBatchBytes = 192 * 1024;
  static constexpr Duration kBatchAge = std::chrono::milliseconds(1);

  // Both must outlive it.
  OperationLog(Remote& remote, Scheduler& scheduler) : remote_(remote), scheduler_(scheduler) {}

  // The server has given exclusiveness under this number.
  void grant(std::uint64_t exclusive);
  // It has not been taken back. 0 never stands.
  [[nodiscard]] bool stands(std::uint64_t exclusive) const;

  // What an entry calls its nodes (Inode::name_in_log()) is read while one of these is held, and it is held
  // until the entry has been appended: the server forgets an alias when it hears that its node's handle is
  // known here, and must not hear that before the entry that was written without it. Must not outlive the
  // log.
  class Naming {
   public:
    Naming(Naming&& other) noexcept : log_(std::exchange(other.log_, nullptr)), since_(other.since_) {}
    Naming& operator=(Naming&&) = delete;
    ~Naming();

   private:
    friend OperationLog;
    Naming(OperationLog& log, std::multiset<std::uint64_t>::iterator since) : log_(&log), since_(since) {}
    OperationLog* log_;
    std::multiset<std::uint64_t>::iterator since_;
  };
  [[nodiscard]] Naming naming();

  // False: the exclusiveness is over, and nothing was taken. `bytes` are those of a WRITE.
  [[nodiscard]] bool append(const Naming& naming, std::uint64_t exclusive, const Asker& asker,
                            schema::Request entry, SharedBytes bytes, Answer done);
  // What is gathered goes now: what is appended next is large, and would hold up its answer.
  void send_gathered();
  // An alias or an open id of this mount's own, never given before.
  [[nodiscard]] std::uint64_t next_name() { return next_name_++; }
  // For an open that the server is told of under an id of ours.
  [[nodiscard]] std::uint64_t next_open_id() { return rpc::kClientOpenIdMin | next_name(); }

  // All that was appended until now has been answered. Never within the call: who looks whether a file is in
  // the log, and finds it there until another thread is done with it, asks again and again, and would not
  // come back. `gave_up` runs instead, if there is one, when the server is out of reach for longer than calls
  // wait. The entries wait on.
  void when_answered(Task then, GaveUp gave_up = nullptr);
  [[nodiscard]] bool has_room() const;
  // There is room again, and less than so many bytes are on their way. The same.
  void when_room(Task then, GaveUp gave_up = nullptr, ByteCount below = kBytesMax);
  // It is so.
  void give_up(const Error& error);
  // There may be room (Remote::has_room).
  void look_for_room() { wake(); }

  // All exclusiveness up to this number is over; `answered` runs when the log is out.
  void take_back(std::uint64_t exclusive, Task answered);
  // Another server process, or the leases are over: nothing is exclusive.
  void take_back_all();

  // Forgets all that is in it, unanswered: the mount ends.
  void drop();

  [[nodiscard]] std::size_t entries() const;
  [[nodiscard]] ByteCount bytes() const;
  // Every LOG up to this number has been answered.
  [[nodiscard]] std::uint64_t answered() const;
  // Which LOGs have been sent and which have been answered: where a server that was restarted is to begin.
  void tell(schema::AttachRequest& request) const;

 private:
  struct Entry {
    ByteCount bytes = 0;
    std::uint64_t alias = 0;  // of what it makes
    std::unique_ptr<schema::Request>
        kept;  // to be made again; null: a WRITE or CLOSE, which this class does not keep
    Answer done;
  };
  struct Batch {
    rpc::CallRequest call;
    std::vector<SharedBytes> bytes;
    ByteCount size = 0;          // of them, and about that of the entries
    std::uint64_t answered = 0;  // as it tells the server
    std::vector<Entry> entries;
    bool ended = false;  // its call: it does not come to the server again
    std::optional<Result<schema::Reply>> reply;
  };
  struct Waiter {
    std::uint64_t number = 0;  // every LOG up to it
    Task then;
    GaveUp gave_up;  // may be null
    ByteCount below = 0;
  };

  // With the mutex held: closes the open batch. The call is to be sent once the mutex is let go.
  [[nodiscard]] std::optional<std::uint64_t> seal();
  void send(std::uint64_t number);
  // Handles in place of aliases. The server process that gave them to the nodes may have been killed; the one
  // after it knows only those of LOGs that come to it.
  void name_by_handles(schema::LogRequest& log) const;
  // With the mutex held.
  void note_handles(std::uint64_t number, const Batch& batch);
  void forget_handles();
  void arrived(std::uint64_t number, Result<rpc::CallReply> reply);
  void hand_on();
  void answer(Batch& batch);
  void name_by_handles(schema::Request& entry) const;  // with the mutex held
  void wake();
  [[nodiscard]] std::uint64_t answered_locked() const { return batches_.begin()->first - 1; }
  // What the server may know to be answered.
  [[nodiscard]] std::uint64_t tellable_locked() const {
    return namings_.empty() ? answered_locked() : *namings_.begin();
  }
  [[nodiscard]] bool has_room_locked(ByteCount below) const {
    return entries_ < kEntriesMax && bytes_ < below && batches_.size() <= kInFlightMax && remote_.has_room();
  }

  Remote& remote_;
  Scheduler& scheduler_;
  std::atomic<std::uint64_t> next_name_{1};

  mutable std::mutex mutex_;
  std::uint64_t granted_ = 0;
  std::uint64_t over_ = 0;
  // By number: those on their way and, last, the one that is being gathered, which may be empty.
  std::map<std::uint64_t, Batch> batches_ = first_batch();
  std::size_t entries_ = 0;
  ByteCount bytes_ = 0;
  std::multiset<std::uint64_t> namings_;  // what was answered when each of those that are held began
  // What the server has said of each alias that an entry on its way may still name a node by.
  std::unordered_map<std::uint64_t, std::string> handles_;
  std::map<std::uint64_t, std::vector<std::uint64_t>> named_;  // their aliases, by LOG
  bool handing_on_ = false;
  std::vector<Waiter> waiters_;
  std::vector<Waiter> waiting_for_room_;  // their numbers mean nothing; of the others, what they are below of

  [[nodiscard]] static std::map<std::uint64_t, Batch> first_batch();
};

}  // namespace tusk::client
