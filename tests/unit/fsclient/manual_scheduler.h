// Time and threads as a test wants them: nothing runs until it is told to, and time only moves when asked.
// Tasks may be posted from any thread, as the real one's.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <optional>

#include "fsclient/scheduler.h"

namespace tusk::client {

class ManualScheduler final : public Scheduler {
 public:
  TimePoint now() const override { return now_; }
  void post(Task task) override {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  void post_after(Duration delay, Task task) override {
    const std::lock_guard lock(mutex_);
    timed_.emplace(now_ + delay, std::move(task));
  }
  void post_notification(Task task) override {
    const std::lock_guard lock(mutex_);
    (held_ ? *held_ : tasks_).push_back(std::move(task));
  }

  // The kernel takes in nothing until it is told to go on.
  void hold_notifications() {
    const std::lock_guard lock(mutex_);
    held_.emplace();
  }
  void let_notifications_go() {
    const std::lock_guard lock(mutex_);
    for (Task& task : *held_) tasks_.push_back(std::move(task));
    held_.reset();
  }

  // What has not run never does. A task may hold the last of what posts others as it ends.
  void drop() {
    for (;;) {
      std::deque<Task> tasks;
      std::multimap<TimePoint, Task> timed;
      std::optional<std::deque<Task>> held;
      const std::lock_guard lock(mutex_);
      tasks.swap(tasks_);
      timed.swap(timed_);
      held.swap(held_);
      if (tasks.empty() && timed.empty() && !held) return;
    }
  }

  // Runs what is due now. True if there was anything.
  bool run() {
    bool ran = false;
    while (std::optional<Task> task = next_due()) {
      (*task)();
      ran = true;
    }
    return ran;
  }

  void advance(Duration by) {
    now_ += by;
    run();
  }

 private:
  std::optional<Task> next_due() {
    const std::lock_guard lock(mutex_);
    std::optional<Task> task;
    if (!tasks_.empty()) {
      task = std::move(tasks_.front());
      tasks_.pop_front();
    } else if (!timed_.empty() && timed_.begin()->first <= now_) {
      task = std::move(timed_.extract(timed_.begin()).mapped());
    }
    return task;
  }

  std::mutex mutex_;
  TimePoint now_{std::chrono::hours(1)};
  std::deque<Task> tasks_;
  std::optional<std::deque<Task>> held_;
  std::multimap<TimePoint, Task> timed_;
};

}  // namespace tusk::client
