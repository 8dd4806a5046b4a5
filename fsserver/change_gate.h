// Through which of a session's connections its changes are made (docs/PROTOCOL.md, "Sessions").
//
// A client that has lost its connection sends again, over the next one, what was not answered, and goes on.
// What still came, or still waits, over the old one would change what is newer by then. So the attach of a
// new connection is a line between the two: from then on no change comes in by the old one, and none comes in
// by the new one before all that are inside by old ones have gone out.
//
// Knows nothing of calls. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "proto/rpc/service.h"

namespace tusk::server {

// Held by a shared_ptr: who is inside outlives the session.
class ChangeGate : public std::enable_shared_from_this<ChangeGate> {
 public:
  // From here until the end of its life a change is inside.
  class Pass {
   public:
    Pass() = default;
    Pass(Pass&&) = default;
    Pass& operator=(Pass&& other) noexcept {
      std::swap(gate_, other.gate_);
      std::swap(generation_, other.generation_);
      return *this;
    }
    ~Pass() {
      if (gate_) gate_->leave(generation_);
    }

   private:
    friend class ChangeGate;
    Pass(std::shared_ptr<ChangeGate> gate, std::uint64_t generation)
        : gate_(std::move(gate)), generation_(generation) {}

    std::shared_ptr<ChangeGate> gate_;
    std::uint64_t generation_ = 0;
  };
  enum class Verdict : std::uint8_t {
    kIn,
    kWait,      // wait(), and try again
    kOutdated,  // another connection has taken the place of that one
  };
  struct Entry {
    Verdict verdict = Verdict::kIn;
    Pass pass;  // of who is in
  };

  // The newest connection, over which changes are made from now on. Again the same one: nothing happens.
  // `attempt`: the client's number of it; 0: it does not say. False, and nothing happens: there was one of a
  // higher number.
  [[nodiscard]] bool let_in(rpc::ConnectionId connection, std::uint64_t attempt = 0);
  // The one that was let in last. Waits for nobody.
  [[nodiscard]] rpc::ConnectionId current() const { return current_.load(); }

  [[nodiscard]] Entry enter(rpc::ConnectionId by);
  // `ready` runs, once, when those who are inside by older connections have gone out, on the thread of the
  // last of them. False, and it is dropped: there is none any more.
  [[nodiscard]] bool wait(std::move_only_function<void()> ready);

 private:
  void leave(std::uint64_t generation);

  std::atomic<rpc::ConnectionId> current_{};  // written with mutex_ held
  std::mutex mutex_;
  std::uint64_t generation_ = 0;                          // of connections
  std::uint64_t attempt_ = 0;                             // the highest
  std::uint64_t inside_ = 0;                              // by the current one
  std::uint64_t older_ = 0;                               // inside by older ones
  std::vector<std::move_only_function<void()>> waiting_;  // only while older_ > 0
};

}  // namespace tusk::server
