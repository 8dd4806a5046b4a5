// Time and threads as a test wants them: nothing runs until it is told to, and time only moves when asked.
#pragma once

#include <deque>
#include <map>
#include <optional>

#include "fsclient/scheduler.h"

namespace tusk::client {

class ManualScheduler final : public Scheduler {
 public:
  TimePoint now() const override { return now_; }
  void post(Task task) override { tasks_.push_back(std::move(task)); }
  void post_after(Duration delay, Task task) override { timed_.emplace(now_ + delay, std::move(task)); }
  void post_notification(Task task) override { (held_ ? *held_ : tasks_).push_back(std::move(task)); }

  // The kernel takes in nothing until it is told to go on.
  void hold_notifications() { held_.emplace(); }
  void let_notifications_go() {
    for (Task& task : *held_) tasks_.push_back(std::move(task));
    held_.reset();
  }

  // Runs what is due now. True if there was anything.
  bool run() {
    bool ran = false;
    while (!tasks_.empty() || (!timed_.empty() && timed_.begin()->first <= now_)) {
      Task task;
      if (!tasks_.empty()) {
        task = std::move(tasks_.front());
        tasks_.pop_front();
      } else {
        task = std::move(timed_.extract(timed_.begin()).mapped());
      }
      task();
      ran = true;
    }
    return ran;
  }

  void advance(Duration by) {
    now_ += by;
    run();
  }

 private:
  TimePoint now_{std::chrono::hours(1)};
  std::deque<Task> tasks_;
  std::optional<std::deque<Task>> held_;
  std::multimap<TimePoint, Task> timed_;
};

}  // namespace tusk::client
