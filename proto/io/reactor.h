// The event loop of one thread: readiness of file descriptors, timers, work from other threads.
//
// A thin wrapper over Asio, which stays out of this header. It handles what is ready as one batch and
// then calls the idle hook once, so that the owner answers a hundred packets with one send.
// It does not read or write anything itself; descriptors stay their owner's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "proto/base/result.h"
#include "proto/base/time.h"

namespace tusk::io {

// Callbacks must not throw: an exception ends the program.
using Task = std::move_only_function<void()>;

// A batch ends, and the idle hook runs, after so many events or so much time, even when more is ready:
// a flood of packets must not hold back what is to be sent.
constexpr std::size_t kMaxEventsPerBatch = 64;
constexpr Duration kMaxBatchDuration = 100us;

// Tasks waiting for the reactor thread. Callers bound their own work far below this.
constexpr std::size_t kMaxPostedTasks = 1 << 20;

struct ReactorCounters {
  std::uint64_t batches = 0;
  std::uint64_t events = 0;  // readiness, wake-ups by post and by timer
};

// The thread inside run() is the reactor thread. All but post(), stop() and in_reactor_thread() are for
// that thread, or for any one thread while none is inside run().
class Reactor {
 public:
  // Fails when the process has no descriptors left (EMFILE).
  [[nodiscard]] static Result<std::unique_ptr<Reactor>> create();
  // Not inside run(). Timers must be gone; tasks and watches are dropped uncalled.
  ~Reactor();
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  // Handles events until stop(). May be called again afterwards. Sets the thread's timer slack to 1 us and
  // its scheduler's slice to 100 us.
  void run() noexcept;
  // Makes run() return after the batch under way; before run(), the next run() returns after one batch.
  void stop();
  // Runs `task` on the reactor thread, in the order of the calls of each thread. From the reactor thread
  // itself: later, never inside this call.
  void post(Task task);
  [[nodiscard]] bool in_reactor_thread() const;

  // Calls `fn` in every batch in which `fd` is readable (level-triggered: what is left unread comes again),
  // hung up or in error, until forget(fd). Sets `fd` non-blocking. One watch per descriptor.
  [[nodiscard]] Result<void> watch_readable(int fd, Task fn);
  // Calls `fn` once, when `fd` is writable, hung up or in error. Replaces an earlier wait for `fd`.
  [[nodiscard]] Result<void> wait_writable_once(int fd, Task fn);
  // Ends the watch and the wait for `fd`, also from within their callbacks. Call it before closing `fd`.
  void forget(int fd);

  // Calls `fn` after each batch, once due timers have run: the place to transmit and to arm timers.
  void on_idle(Task fn);

  [[nodiscard]] const ReactorCounters& counters() const;

 private:
  friend class Timer;
  struct State;
  explicit Reactor(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Calls a function at a time, never before it. Reactor thread only; the reactor must outlive it.
class Timer {
 public:
  explicit Timer(Reactor& reactor) : reactor_(reactor) {}
  ~Timer() { cancel(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Replaces what was armed before. Timers due together run in the order of their deadlines, equal ones in
  // the order they were armed. A time in the past means: in the next batch, without waiting. kNever: cancel.
  void arm(TimePoint deadline, Task fn);
  void cancel();

  [[nodiscard]] bool armed() const { return deadline_ != kNever; }
  [[nodiscard]] TimePoint deadline() const { return deadline_; }  // kNever when not armed

 private:
  friend class Reactor;
  Reactor& reactor_;
  TimePoint deadline_ = kNever;
  std::uint64_t order_ = 0;
  Task fn_;
};

}  // namespace tusk::io
