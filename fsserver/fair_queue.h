// Whose task is next: deficit round robin (Shreedhar and Varghese, 1996) over rights, and within each right
// over its sessions, with the lists of new and old flows of RFC 8290, section 4.2.
//
// A right is a token or a listed key: whoever may enter by it shares what it gets. A flow is one session. A
// task's cost is known when it has run, so it is charged then, and a flow in debt waits for as many rounds as
// the debt takes. A flow that asks for little is new again and again, and is served before those that ask for
// much.
//
// It knows no threads and no time. Not thread-safe: belongs to a WorkerPool.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace tusk::server {

enum class Lane : std::uint8_t {
  kMetadata = 0,  // may use every thread
  kData = 1,      // reads and writes: with walks and slow work, all but one
  kWalk = 2,      // what examines many entries: while there are other rights, half as many as processors
  kSlow = 3,      // fsync, copies, allocation: half of the threads
};
constexpr std::size_t kLanes = 4;
using LaneSet = std::array<bool, kLanes>;

// What a task costs: about a microsecond of a worker each, by what it examines.
using Cost = std::int64_t;
constexpr Cost kTaskCost = 20;     // of any task, however little it does
constexpr Cost kTurnCost = 1'000;  // the quantum: so much a flow may cost before it is another's turn
constexpr Cost kDebtMax = 20'000;  // what costs more, for instance one long system call, is forgiven

class FairQueue {
 public:
  using Task = std::move_only_function<void()>;

 private:
  // What rights and sessions have in common: a place among their like.
  struct Account {
    Cost left = 0;  // may be in debt
    bool listed = false;
    std::array<std::size_t, kLanes> queued{};

    [[nodiscard]] bool idle() const { return queued == std::array<std::size_t, kLanes>{}; }
    [[nodiscard]] bool has_work(const LaneSet& allowed) const;
    void charge(Cost cost);
  };

  struct Right;

 public:
  // A session's place in the queue. Keeps the right's.
  class Flow {
    friend class FairQueue;
    Account account;
    std::shared_ptr<Right> right;
    std::array<std::deque<Task>, kLanes> tasks;
  };
  using FlowPointer = std::shared_ptr<Flow>;

 private:
  template <class Member>
  class Ring {
   public:
    void enter(const std::shared_ptr<Member>& member);
    // The next one with work of an allowed lane that `admits`; nullptr: there is none.
    template <class Admits>
    [[nodiscard]] std::shared_ptr<Member> next(const LaneSet& allowed, Admits admits);
    // All are idle.
    void clear();

   private:
    std::list<std::shared_ptr<Member>> new_;
    std::list<std::shared_ptr<Member>> old_;
  };

 public:
  FairQueue() = default;
  FairQueue(const FairQueue&) = delete;
  FairQueue& operator=(const FairQueue&) = delete;
  // What waits is never run.
  ~FairQueue();

  // The same one for the same names, as long as somebody holds it.
  [[nodiscard]] FlowPointer flow(const std::string& right, const std::string& session);

  // Behind what the flow has waiting in that lane, or before it: a task that has yielded.
  void push_back(const FlowPointer& flow, Lane lane, Task task);
  void push_front(const FlowPointer& flow, Lane lane, Task task);

  struct Next {
    FlowPointer flow;
    Lane lane;
    Task task;
  };
  // Of the flow whose turn it is, from its quickest lane that is allowed. No right has more than
  // `running_max` tasks running. Each one taken is reported by finished().
  [[nodiscard]] std::optional<Next> pop(const LaneSet& allowed, unsigned running_max);
  void finished(Flow& flow, Cost cost);

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] static std::size_t waiting(const Flow& flow);
  // Rights that somebody had a flow of when the newest came, without "", which is nobody's.
  [[nodiscard]] std::size_t rights() const { return rights_.size() - rights_.count({}); }

 private:
  struct Right {
    Account account;
    Ring<Flow> flows;
    std::map<std::string, std::weak_ptr<Flow>> known;
    unsigned running = 0;
  };

  void enter(const FlowPointer& flow, Lane lane);
  static void leave(Flow&) {}
  static void leave(Right& right) { right.flows.clear(); }  // they keep it

  Ring<Right> ring_;
  std::map<std::string, std::weak_ptr<Right>> rights_;
  std::size_t size_ = 0;
};

}  // namespace tusk::server
