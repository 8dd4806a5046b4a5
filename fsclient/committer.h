// When the server is asked to bring to its disk what it has answered (COMMIT of all): some seconds after a
// change, once much is kept, and when somebody waits for it. One such COMMIT is on its way at a time.
//
// What is kept is bounded: above the bound whoever changes something waits for the COMMIT.
// Thread-safe; its mutex is a leaf.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "fsclient/remote.h"
#include "fsclient/scheduler.h"
#include "fsclient/uncommitted.h"

namespace tusk::client {

class Committer {
 public:
  using Done = std::move_only_function<void(Result<void>)>;

  static constexpr Duration kAge = std::chrono::seconds(5);    // of the oldest change, at most
  static constexpr ByteCount kBytes = 64ull * 1024 * 1024;     // or so many are kept,
  static constexpr std::size_t kChanges = 8'192;               // or so many changes
  static constexpr std::size_t kChangesMax = 65'536;           // the bound
  static constexpr Duration kAgain = std::chrono::seconds(1);  // after a COMMIT that failed and that something waits for

  // `bytes_max`: the bound of the bytes that are kept. All must outlive it.
  Committer(Remote& remote, Scheduler& scheduler, UncommittedChanges& changes, ByteCount bytes_max)
      : remote_(remote), scheduler_(scheduler), changes_(changes), bytes_max_(bytes_max) {}

  struct Events {
    std::function<void()> ended;                     // a COMMIT: there may be room
    std::function<void(const Error& error)> failed;  // the server's disk took not all up to now
  };
  // Once, before anything is changed.
  void begin(Events events);

  // What is kept is below the bound.
  [[nodiscard]] bool has_room() const;
  // `then` runs at once, or once there is room.
  void when_room(std::move_only_function<void()> then);
  // All that was answered until now is on the server's disk, or its disk failed and `Events::failed` was
  // told. However long the server is out of reach; kPeerClosed if the mount ends before.
  void commit_all(Done done);

 private:
  void consider();
  void start();
  void start_later(Duration delay);
  void arrived(UncommittedChanges::Number upto, const Result<rpc::CallReply>& reply);
  void wake(UncommittedChanges::Number upto, const Result<void>& result);

  Remote& remote_;
  Scheduler& scheduler_;
  UncommittedChanges& changes_;
  const ByteCount bytes_max_;
  Events events_;

  std::mutex mutex_;
  bool on_its_way_ = false;
  bool timer_armed_ = false;
  std::vector<std::pair<UncommittedChanges::Number, Done>> waiters_;
  std::vector<std::move_only_function<void()>> waiting_for_room_;
};

}  // namespace tusk::client
