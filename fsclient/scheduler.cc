#include "fsclient/scheduler.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "proto/io/clock.h"

namespace tusk::client {

class ThreadScheduler::Impl {
 public:
  explicit Impl(unsigned workers) {
    for (unsigned i = 0; i < workers; ++i) threads_.emplace_back([this] { work(); });
    for (Notifications* queue : {&notifications_, &name_notifications_})
      threads_.emplace_back([this, queue] { notify(*queue); });
  }

  void post(Task task) {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    tasks_.push_back(std::move(task));
    work_.notify_one();
  }

  void post_at(TimePoint due, Task task) {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    const bool earliest = timed_.empty() || due < timed_.begin()->first;
    timed_.emplace(due, std::move(task));
    if (earliest) work_.notify_one();
  }

  void post_notification(Task task) { post(notifications_, std::move(task)); }
  void post_name_notification(Task task) { post(name_notifications_, std::move(task)); }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      work_.notify_all();
      notifications_.came.notify_all();
      name_notifications_.came.notify_all();
    }
    for (std::thread& thread : threads_)
      if (thread.joinable()) thread.join();
    timed_.clear();
  }

 private:
  struct Notifications {
    std::condition_variable came;
    std::deque<Task> tasks;
  };

  void post(Notifications& queue, Task task) {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    queue.tasks.push_back(std::move(task));
    queue.came.notify_one();
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (!timed_.empty() && timed_.begin()->first <= io::now()) {
        Task task = std::move(timed_.extract(timed_.begin()).mapped());
        run(lock, std::move(task));
      } else if (!tasks_.empty()) {
        Task task = std::move(tasks_.front());
        tasks_.pop_front();
        run(lock, std::move(task));
      } else if (stopping_) {
        return;
      } else if (timed_.empty()) {
        work_.wait(lock);
      } else {
        const auto due = timed_.begin()->first;
        work_.wait_for(lock, due - io::now());
      }
    }
  }

  void run(std::unique_lock<std::mutex>& lock, Task task) {
    // Another thread watches the next deadline while this one is busy.
    if (!timed_.empty()) work_.notify_one();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }

  void notify(Notifications& queue) {
    std::unique_lock lock(mutex_);
    for (;;) {
      queue.came.wait(lock, [&] { return stopping_ || !queue.tasks.empty(); });
      if (queue.tasks.empty()) return;
      Task task = std::move(queue.tasks.front());
      queue.tasks.pop_front();
      lock.unlock();
      task();
      task = nullptr;
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable work_;
  std::deque<Task> tasks_;
  std::multimap<TimePoint, Task> timed_;
  Notifications notifications_;
  Notifications name_notifications_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

ThreadScheduler::ThreadScheduler(unsigned workers) : impl_(std::make_unique<Impl>(workers)) {}
ThreadScheduler::~ThreadScheduler() { stop(); }
TimePoint ThreadScheduler::now() const { return io::now(); }
void ThreadScheduler::post(Task task) { impl_->post(std::move(task)); }
void ThreadScheduler::post_after(Duration delay, Task task) {
  impl_->post_at(io::now() + delay, std::move(task));
}
void ThreadScheduler::post_notification(Task task) { impl_->post_notification(std::move(task)); }
void ThreadScheduler::post_name_notification(Task task) { impl_->post_name_notification(std::move(task)); }
void ThreadScheduler::stop() { impl_->stop(); }

}  // namespace tusk::client
