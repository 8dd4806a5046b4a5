// A few threads that touch disks, so that the network's never do. Their umask is 0.
//
// Lanes keep slow work from holding up quick work: each may use only so many of the threads at once. Which
// session's work is next FairQueue says. No right has all threads while another right has sessions: a quarter
// of them is left to others. Walks keep a processor busy as long as they last, and there are more threads
// than processors: threads that have work would wait for a processor.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "fsserver/fair_queue.h"
#include "proto/base/time.h"
#include "proto/io/clock.h"

namespace tusk::server {

constexpr std::size_t kQueuedTasksMax = 65'536;  // of one flow
constexpr unsigned kWorkersDefault = 8;
constexpr unsigned kWorkersMax = 256;
constexpr Duration kTurnMax = 4ms;  // of a disk that is slow, or a processor that others use

// The time that a task has with its worker. Work that goes on for long spends what it costs, looks whether
// its turn is over, and goes on in a later one. Belongs to its thread.
class Turn {
 public:
  void spend(Cost cost) { spent_ += cost; }
  // It has cost a quantum, or takes long, and others wait.
  [[nodiscard]] bool over() const {
    if (waiting_ == nullptr || waiting_->load(std::memory_order_relaxed) == 0) return false;
    return spent_ >= kTurnCost || (spent_ > 0 && io::now() - began_ >= kTurnMax);
  }
  [[nodiscard]] Cost spent() const { return spent_; }

 private:
  friend class WorkerPool;
  const std::atomic<std::size_t>* waiting_ = nullptr;  // null: the thread is no worker
  Cost spent_ = 0;
  TimePoint began_{};
};

// The calling thread's. Never over on a thread that is no worker.
[[nodiscard]] Turn& this_turn();

class WorkerPool {
 public:
  using Task = FairQueue::Task;  // must not throw
  using Flow = FairQueue::FlowPointer;

  explicit WorkerPool(unsigned threads = kWorkersDefault);
  // Runs what is queued, then joins.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // The place in the queue of one session by one right. The same one as long as somebody holds it.
  [[nodiscard]] Flow flow(const std::string& right, const std::string& session);

  // Never blocks. False, and `task` is not run: kQueuedTasksMax of this flow are waiting.
  [[nodiscard]] bool submit(const Flow& flow, Lane lane, Task task);
  // The same in any case, for what is bounded by other means and may not be refused.
  void submit_beyond_bound(const Flow& flow, Lane lane, Task task);
  // What the calling task has left to do in its next turn, before all else that its flow has in that lane.
  void go_on_later(const Flow& flow, Lane lane, Task task);

  // Waits until nothing is queued or running; false if that takes longer.
  [[nodiscard]] bool wait_idle(Duration at_most);

 private:
  void work();
  void run(std::unique_lock<std::mutex>& lock, FairQueue::Next next);
  void added(std::unique_lock<std::mutex>& lock);
  [[nodiscard]] LaneSet allowed() const;
  [[nodiscard]] unsigned running_max_of_right() const;
  [[nodiscard]] bool idle() const;

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable idle_;
  FairQueue queue_;
  std::atomic<std::size_t> waiting_ = 0;  // queue_.size()
  std::array<unsigned, kLanes> running_{};
  unsigned count_;  // of threads
  unsigned walks_beside_others_;
  bool stopping_ = false;
  std::vector<std::jthread> threads_;  // last: they use all of the above
};

}  // namespace tusk::server
