#include "fsserver/worker_pool.h"

#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <numeric>

namespace tusk::server {

WorkerPool::WorkerPool(unsigned threads) {
  threads = std::clamp(threads, 2u, kWorkersMax);
  running_max_ = {threads, threads - 1, std::max(1u, threads / 2)};
  for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
}

bool WorkerPool::submit(Lane lane, Task task) {
  return submit_within(kQueuedTasksMax, lane, std::move(task));
}

void WorkerPool::submit_beyond_bound(Lane lane, Task task) {
  (void)submit_within(SIZE_MAX, lane, std::move(task));
}

bool WorkerPool::submit_within(std::size_t bound, Lane lane, Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (queued_ >= bound) return false;
    queues_[static_cast<std::size_t>(lane)].push_back(std::move(task));
    ++queued_;
  }
  work_.notify_one();
  return true;
}

bool WorkerPool::may_run(std::size_t lane) const {
  // A slow task counts in every quicker lane too: else the two together take the threads of the quickest.
  for (std::size_t quicker = 0; quicker <= lane; ++quicker)
    if (std::accumulate(running_.begin() + static_cast<std::ptrdiff_t>(quicker), running_.end(), 0u) >=
        running_max_[quicker])
      return false;
  return true;
}

std::size_t WorkerPool::runnable_lane() const {
  for (std::size_t lane = 0; lane < kLanes; ++lane)
    if (!queues_[lane].empty() && may_run(lane)) return lane;
  return kLanes;
}

void WorkerPool::work() {
  // Modes are made exactly as clients ask for them: their own umask has been applied. A umask of the
  // thread's own leaves the rest of the process alone; containers that forbid it get one for all.
  (void)::unshare(CLONE_FS);
  ::umask(0);

  std::unique_lock lock(mutex_);
  while (true) {
    const std::size_t lane = runnable_lane();
    if (lane == kLanes) {
      if (stopping_ && queued_ == 0) return;
      work_.wait(lock);
      continue;
    }
    Task task = std::move(queues_[lane].front());
    queues_[lane].pop_front();
    --queued_;
    ++running_[lane];
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
    --running_[lane];
    // This thread takes the next task itself; only at the end must the others hear of it.
    if (stopping_ && queued_ == 0) work_.notify_all();
    if (queued_ == 0 && running_ == std::array<unsigned, kLanes>{}) idle_.notify_all();
  }
}

bool WorkerPool::wait_idle(Duration at_most) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, at_most,
                        [&] { return queued_ == 0 && running_ == std::array<unsigned, kLanes>{}; });
}

}  // namespace tusk::server
