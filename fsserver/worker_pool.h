// A few threads that touch disks, so that the network's never do. Their umask is 0.
//
// Three lanes keep slow work from holding up quick work: a lane and all slower ones together may use only
// so many of the threads at once, and a free thread serves the quickest lane that has work.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "proto/base/time.h"

namespace tusk::server {

enum class Lane : std::uint8_t {
  kMetadata = 0,  // may use every thread
  kData = 1,      // reads and writes: with slow work, all but one
  kSlow = 2,      // fsync, copies, allocation: half of them
};

constexpr std::size_t kQueuedTasksMax = 65'536;
constexpr unsigned kWorkersDefault = 8;
constexpr unsigned kWorkersMax = 256;

class WorkerPool {
 public:
  using Task = std::move_only_function<void()>;  // must not throw

  explicit WorkerPool(unsigned threads = kWorkersDefault);
  // Runs what is queued, then joins.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Never blocks. False, and `task` is not run: kQueuedTasksMax are waiting.
  [[nodiscard]] bool submit(Lane lane, Task task);
  // The same in any case, for what is bounded by other means and may not be refused.
  void submit_beyond_bound(Lane lane, Task task);

  // Waits until nothing is queued or running; false if that takes longer.
  [[nodiscard]] bool wait_idle(Duration at_most);

 private:
  static constexpr std::size_t kLanes = 3;

  void work();
  [[nodiscard]] bool submit_within(std::size_t bound, Lane lane, Task task);
  [[nodiscard]] bool may_run(std::size_t lane) const;
  [[nodiscard]] std::size_t runnable_lane() const;  // kLanes: none

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable idle_;
  std::array<std::deque<Task>, kLanes> queues_;
  std::array<unsigned, kLanes> running_{};
  std::array<unsigned, kLanes> running_max_{};  // of the lane and all slower ones
  std::size_t queued_ = 0;
  bool stopping_ = false;
  std::vector<std::jthread> threads_;  // last: they use all of the above
};

}  // namespace tusk::server
