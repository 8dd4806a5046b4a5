#include "fsserver/worker_pool.h"

#include <algorithm>
#include <utility>

#include "fsserver/creation_mask.h"

namespace tusk::server {

Turn& this_turn() {
  static thread_local Turn turn;
  return turn;
}

WorkerPool::WorkerPool(unsigned threads)
    : count_(std::clamp(threads, 2u, kWorkersMax)),
      walks_beside_others_(std::max(1u, std::thread::hardware_concurrency() / 2)) {
  for (unsigned i = 0; i < count_; ++i) threads_.emplace_back([this] { work(); });
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
}

WorkerPool::Flow WorkerPool::flow(const std::string& right, const std::string& session) {
  const std::lock_guard lock(mutex_);
  return queue_.flow(right, session);
}

bool WorkerPool::submit(const Flow& flow, Lane lane, Task task) {
  std::unique_lock lock(mutex_);
  if (FairQueue::waiting(*flow) >= kQueuedTasksMax) return false;
  queue_.push_back(flow, lane, std::move(task));
  added(lock);
  return true;
}

void WorkerPool::submit_beyond_bound(const Flow& flow, Lane lane, Task task) {
  std::unique_lock lock(mutex_);
  queue_.push_back(flow, lane, std::move(task));
  added(lock);
}

void WorkerPool::go_on_later(const Flow& flow, Lane lane, Task task) {
  std::unique_lock lock(mutex_);
  queue_.push_front(flow, lane, std::move(task));
  added(lock);
}

void WorkerPool::added(std::unique_lock<std::mutex>& lock) {
  waiting_.store(queue_.size(), std::memory_order_relaxed);
  lock.unlock();
  work_.notify_one();
}

LaneSet WorkerPool::allowed() const {
  const auto running = [this](Lane lane) { return running_[static_cast<std::size_t>(lane)]; };
  const unsigned walks_max = queue_.rights() > 1 ? walks_beside_others_ : count_;
  // Slower work counts in every quicker lane too: else they take together what is left for the quickest.
  const unsigned not_quick = running(Lane::kData) + running(Lane::kWalk) + running(Lane::kSlow);
  const bool any = running(Lane::kMetadata) + not_quick < count_;
  const bool data = any && not_quick < count_ - 1;
  const bool slow = data && running(Lane::kSlow) < std::max(1u, count_ / 2);
  return {any, data, data && running(Lane::kWalk) < walks_max, slow};
}

unsigned WorkerPool::running_max_of_right() const {
  return queue_.rights() > 1 ? count_ - std::max(1u, count_ / 4) : count_;
}

bool WorkerPool::idle() const { return queue_.size() == 0 && running_ == std::array<unsigned, kLanes>{}; }

void WorkerPool::work() {
  CreationMask::own_for_this_thread();

  std::unique_lock lock(mutex_);
  while (true) {
    auto next = queue_.pop(allowed(), running_max_of_right());
    if (next) {
      run(lock, std::move(*next));
      continue;
    }
    if (stopping_ && queue_.size() == 0) return;
    work_.wait(lock);
  }
}

void WorkerPool::run(std::unique_lock<std::mutex>& lock, FairQueue::Next next) {
  waiting_.store(queue_.size(), std::memory_order_relaxed);
  ++running_[static_cast<std::size_t>(next.lane)];
  lock.unlock();
  Turn& turn = this_turn();
  turn.waiting_ = &waiting_;
  turn.spent_ = 0;
  turn.began_ = io::now();
  next.task();
  next.task = nullptr;
  const Cost spent = turn.spent_;
  lock.lock();
  --running_[static_cast<std::size_t>(next.lane)];
  queue_.finished(*next.flow, spent);
  // This thread takes the next task itself; only at the end must the others hear of it.
  if (stopping_ && queue_.size() == 0) work_.notify_all();
  if (idle()) idle_.notify_all();
}

bool WorkerPool::wait_idle(Duration at_most) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, at_most, [&] { return idle(); });
}

}  // namespace tusk::server
