// Where work runs that must not run on the thread that caused it, and when.
//
// Four kinds: tasks (a few threads, in any order: large replies to the kernel, parsing), timed tasks (the
// same threads, later), and two kinds of notifications (one thread each, in order), which alone may ask the
// kernel to drop what it caches, because that can wait for requests in progress. Dropping a name waits for
// the lock of its directory, which a LOOKUP holds whose answer may wait for pages to be dropped: so no answer
// to the kernel may be behind a name.
#pragma once

#include <functional>
#include <memory>

#include "proto/base/time.h"

namespace tusk::client {

// All methods are thread-safe and do not block.
class Scheduler {
 public:
  using Task = std::move_only_function<void()>;

  virtual ~Scheduler() = default;
  [[nodiscard]] virtual TimePoint now() const = 0;
  virtual void post(Task task) = 0;
  virtual void post_after(Duration delay, Task task) = 0;
  virtual void post_notification(Task task) = 0;
  virtual void post_name_notification(Task task) { post_notification(std::move(task)); }
};

// With real threads and the real clock.
class ThreadScheduler final : public Scheduler {
 public:
  explicit ThreadScheduler(unsigned workers = 2);
  // Stops as stop() does.
  ~ThreadScheduler() override;

  [[nodiscard]] TimePoint now() const override;
  void post(Task task) override;
  void post_after(Duration delay, Task task) override;
  void post_notification(Task task) override;
  void post_name_notification(Task task) override;

  // Runs what was posted, drops what is not due yet, joins the threads. What is posted from then on is
  // dropped. Idempotent; not from a task.
  void stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tusk::client
