// The server as the rest of the client sees it: requests with the asking user's identity, mutations
// with their sequence numbers, replies of the kind that was asked for.
//
// Every mutation of the mount passes through mutate(), but for LOGs (operation_log.h), which have numbers of
// their own.
// What it does not do: cache, retry (rpc::Caller does), or know of inodes.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "fsclient/interrupt.h"
#include "fsclient/path_estimate.h"
#include "fsclient/scheduler.h"
#include "fsclient/uncommitted.h"
#include "proto/base/result.h"
#include "proto/rpc/caller.h"
#include "proto/schema/tusk.pb.h"

namespace tusk::client {

// Who asks for an operation and how they can take it back.
struct Asker {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t pid = 0;
  std::shared_ptr<Interrupt> interrupt;  // null: cannot be interrupted
};

class Remote {
 public:
  using Answer = std::move_only_function<void(Result<rpc::CallReply>)>;
  using Kind = schema::Reply::ResultCase;

  // All must outlive the Remote and all its calls; `path` is only used by these.
  Remote(rpc::Caller& caller, Scheduler& scheduler, const PathEstimate& path,
         const schema::AttachReply& attached);

  // All thread-safe; `done` runs on the network thread, or never if the caller is destroyed first; an
  // interrupted insist() answers on a worker, and a caller that is closed refuses on the calling thread. A
  // reply of another kind than `expected` is kMalformed.
  void ask(const Asker& asker, schema::Request request, Kind expected, Answer done);
  void mutate(const Asker& asker, schema::Request request, Kind expected, Answer done);
  // A lock can take for ever to come, so giving up needs no grace period.
  void wait_for(const Asker& asker, schema::Request request, Kind expected, Answer done);
  // What has to be done although the asker may be gone: an interrupted one is answered, the call goes on.
  void insist(const Asker& asker, schema::Request request, Kind expected, Answer done);
  // With bulk bytes. `call` must not have a sequence number.
  rpc::CallId transfer(rpc::CallRequest call, Kind expected, Answer done);
  // transfer() that must happen once only (append, open).
  void mutate_with_body(const Asker& asker, rpc::CallRequest call, Kind expected, Answer done);
  void cancel(rpc::CallId id) { caller_.cancel(id); }

  // Says who asks.
  void identify(const Asker& asker, schema::Request& request) const;

  // The session was attached anew. Thread-safe.
  void handle_attached(const schema::AttachReply& attached);
  // Where changes are kept once they are answered, and who waits while there is no room. Before the first
  // one; without it: nowhere.
  using Task = std::move_only_function<void()>;
  struct Room {
    std::function<bool()> is_there;
    std::function<void(Task)> when_there;
  };
  void keep_in(UncommittedChanges& changes, Room room) {
    changes_ = &changes;
    room_ = std::move(room);
  }
  [[nodiscard]] bool has_room() const { return !room_.is_there || room_.is_there(); }
  // A change was answered that is none of mutate()'s.
  void keep(schema::Request request, const schema::Reply& reply, SharedBytes body);
  // Of the server that was attached to last; not 0. Changes when its machine restarts. Thread-safe.
  [[nodiscard]] std::uint64_t verifier() const { return verifier_; }
  // Under which a change was answered.
  [[nodiscard]] std::uint64_t verifier_of(const schema::Reply& reply) const;

 private:
  enum class GiveUp : std::uint8_t { kAtOnce, kAfterGrace };
  void send(const Asker& asker, rpc::CallRequest call, Kind expected, GiveUp give_up, Answer done);
  [[nodiscard]] std::uint64_t begin_mutation();
  void end_mutation(std::uint64_t sequence);
  [[nodiscard]] std::uint64_t answered_below() const;

  rpc::Caller& caller_;
  Scheduler& scheduler_;
  const PathEstimate& path_;
  const bool identity_real_;

  UncommittedChanges* changes_ = nullptr;
  Room room_;
  std::atomic<std::uint64_t> verifier_;

  mutable std::mutex mutex_;
  std::uint64_t next_sequence_ = 1;
  std::set<std::uint64_t> unanswered_;
};

}  // namespace tusk::client
