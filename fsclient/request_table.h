// The kernel's requests that are not answered yet, and what ends them early.
//
// The kernel's INTERRUPT says only that the asking thread has some signal. A look at the thread decides
// (signal_sets.h). The table looks at every request that lasts, again and again, because the kernel sends no
// second INTERRUPT when another signal follows, and none for direct I/O and for what an exit closes. A
// request that ends early fires its Interrupt, so that its operation gives up by itself. If the operation has
// not answered kEndAfter later, the table answers in its place: no wait of any operation outlasts a signal
// that kills.
//
// A request is answered by whoever takes it out of the table; by the table itself only once its handler has
// returned: with the answer the kernel may release what the handler has yet to look up. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fsclient/interrupt.h"
#include "fsclient/scheduler.h"
#include "fsclient/signal_sets.h"

namespace tusk::client {

class RequestTable {
 public:
  // What ends a request, besides the end of its process.
  enum class Ends : std::uint8_t {
    kWhenAsked,    // signals that ask the process to end
    kWithThread,   // these, and the end of its thread: pages to read, which others who wait ask for anew
    kByAnySignal,  // a lock: the kernel restarts the call where the program wants that
    kWithProcess,  // nothing: pages of a mapping. The table never answers it, since the bytes would be lost
  };
  using Look = std::function<ThreadVerdict(pid_t)>;
  // `request` has been taken out of the table: answers it with EINTR.
  using EndRequest = std::function<void(void* request)>;

  static constexpr Duration kLookEvery = std::chrono::milliseconds(250);
  // An operation that was told to give up has done so by then.
  static constexpr Duration kEndAfter = kInterruptGrace + kLookEvery;
  // Where any signal ends a wait, or nobody can tell which one came.
  static constexpr Duration kAnySignalAfter = kInterruptGrace;

  // `scheduler` must outlive it, and be stopped before it is destroyed. `silent`: the server is out of reach.
  RequestTable(Scheduler& scheduler, std::function<bool()> silent, EndRequest end, Look look = verdict_of)
      : scheduler_(scheduler), silent_(std::move(silent)), end_(std::move(end)), look_(std::move(look)) {}

  // `thread`: who asks, as FUSE says it. `request` is what end_ is given.
  [[nodiscard]] std::uint64_t add(void* request, pid_t thread, Ends ends,
                                  std::shared_ptr<Interrupt> interrupt);
  // Its handler has returned, and holds by itself what its operation needs.
  void note_begun(std::uint64_t id);
  // True: the caller answers the request now. False: it has been answered.
  [[nodiscard]] bool take(std::uint64_t id);
  // The kernel sent INTERRUPT.
  void handle_interrupt(std::uint64_t id);

 private:
  struct Waiting {
    void* request;
    pid_t thread;
    Ends ends;
    std::shared_ptr<Interrupt> interrupt;
    bool begun = false;
    std::optional<TimePoint> seen = {};         // by the first look
    std::optional<TimePoint> interrupted = {};  // by the kernel
    std::optional<TimePoint> fired = {};
  };
  static constexpr std::size_t kShards = 16;
  struct Shard {
    std::mutex mutex;
    std::unordered_map<std::uint64_t, Waiting> waiting;
  };
  [[nodiscard]] Shard& shard(std::uint64_t id) { return shards_[id % kShards]; }

  void look_later();
  void look_at_all();
  void end(std::uint64_t id, void* request);
  // Without a lock, of a copy.
  void act(std::uint64_t id, const Waiting& waiting, ThreadVerdict verdict, TimePoint now);
  [[nodiscard]] bool ends(const Waiting& waiting, ThreadVerdict verdict, TimePoint now) const;

  Scheduler& scheduler_;
  const std::function<bool()> silent_;
  const EndRequest end_;
  const Look look_;
  std::atomic<std::uint64_t> next_{1};
  std::atomic<bool> looking_{false};
  std::array<Shard, kShards> shards_;
};

}  // namespace tusk::client
