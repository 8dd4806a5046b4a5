#define ASIO_STANDALONE
#define ASIO_NO_DEPRECATED
// One thread runs all handlers and locks order what others post: fences add nothing, and the thread
// sanitizer does not understand them.
#define ASIO_DISABLE_FENCED_BLOCK
#include "proto/io/reactor.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proto/base/check.h"
#include "proto/io/clock.h"

namespace tusk::io {
namespace {

constexpr unsigned long kTimerSlackNanoseconds = 1000;

// Where programs compete for the processors, the scheduler lets who asks for little at a time have it soon
// (EEVDF with sched_attr.sched_runtime, Linux 6.12 and later; before it is ignored). At 2.8 ms, the default,
// a batch of packets waits longer than a short line's queue lasts.
constexpr std::uint64_t kSliceNanoseconds = 100'000;

// struct sched_attr as sched_setattr(2) has it; glibc 2.36 does not.
struct SchedulingAttributes {
  std::uint32_t size = sizeof(SchedulingAttributes);
  std::uint32_t policy = SCHED_OTHER;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0;  // ns
  std::uint64_t deadline = 0;
  std::uint64_t period = 0;
};

// Where that is forbidden, or somebody has chosen another policy for us, nothing changes.
void ask_for_short_slices() {
  if (::sched_getscheduler(0) != SCHED_OTHER) return;
  SchedulingAttributes attributes;
  attributes.nice = ::getpriority(PRIO_PROCESS, 0);
  attributes.runtime = kSliceNanoseconds;
  ::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

using Descriptor = asio::posix::stream_descriptor;

}  // namespace

struct Reactor::State {
  // Shared by the table and by the operation pending in Asio, which may outlive the entry.
  struct Watch {
    Watch(asio::io_context& context, Task task) : descriptor(context), fn(std::move(task)) {}

    // Leaves the descriptor open: it is the owner's.
    void end_watch() {
      forgotten = true;
      descriptor.release();
    }
    // Closes the descriptor: it is a copy of ours.
    void end_wait() {
      forgotten = true;
      asio::error_code ignored;
      descriptor.close(ignored);
    }

    Descriptor descriptor;
    Task fn;
    bool forgotten = false;
  };

  // One thread runs the loop: Asio then skips what only several would need. post() stays thread-safe.
  static constexpr int kConcurrencyHint = 1;

  asio::io_context context{kConcurrencyHint};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};

  // By deadline, then by the order of arming. Timers belong to their owners.
  std::set<std::tuple<TimePoint, std::uint64_t, Timer*>> timers;
  std::uint64_t next_order = 0;
  // The one timer Asio knows. It is only ever moved to an earlier time, since a wake-up too many costs
  // less than setting the clock on every acknowledgement that moves a timeout on.
  asio::steady_timer wakeup{context};
  TimePoint wakeup_at = kNever;

  std::unordered_map<int, std::shared_ptr<Watch>> readers;
  std::unordered_map<int, std::shared_ptr<Watch>> writers;

  std::mutex mutex;
  std::vector<Task> posted;   // protected by mutex
  std::vector<Task> running;  // reactor thread; keeps its memory between batches

  std::atomic<bool> stopping{false};
  std::atomic<std::thread::id> thread;
  Task idle;
  ReactorCounters counters;

  bool sync_wakeup();
  void fire_due_timers();
  void run_posted();
  void handle_batch();
  void wait_readable(const std::shared_ptr<Watch>& watch);
};

// --- Descriptors.

void Reactor::State::wait_readable(const std::shared_ptr<Watch>& watch) {
  watch->descriptor.async_wait(Descriptor::wait_read, [this, watch](const asio::error_code& error) {
    if (watch->forgotten || error == asio::error::operation_aborted) return;
    watch->fn();
    if (!watch->forgotten && !error) wait_readable(watch);
  });
}

Result<void> Reactor::watch_readable(int fd, Task fn) {
  TUSK_CHECK(!state_->readers.contains(fd));
  auto watch = std::make_shared<State::Watch>(state_->context, std::move(fn));
  asio::error_code error;
  watch->descriptor.assign(fd, error);
  if (error) return fail(from_errno(error.value()), "watch a descriptor");
  watch->descriptor.non_blocking(true, error);
  if (error) {
    watch->descriptor.release();
    return fail(from_errno(error.value()), "make a descriptor non-blocking");
  }
  state_->readers.emplace(fd, watch);
  state_->wait_readable(watch);
  return {};
}

Result<void> Reactor::wait_writable_once(int fd, Task fn) {
  State& s = *state_;
  // A descriptor of its own for the wait: Asio goes on listening for writability once it has been asked
  // to, and then every buffer the kernel frees would wake the loop.
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return fail_errno("wait for a descriptor to become writable");
  auto watch = std::make_shared<State::Watch>(s.context, std::move(fn));
  asio::error_code error;
  watch->descriptor.assign(copy, error);
  if (error) {
    ::close(copy);
    return fail(from_errno(error.value()), "wait for a descriptor to become writable");
  }
  if (const auto earlier = std::exchange(s.writers[fd], watch)) earlier->end_wait();
  watch->descriptor.async_wait(Descriptor::wait_write, [&s, fd, watch](const asio::error_code& failure) {
    if (watch->forgotten || failure == asio::error::operation_aborted) return;
    s.writers.erase(fd);  // first, so that the callback may wait anew
    watch->fn();
  });
  return {};
}

void Reactor::forget(int fd) {
  if (auto reader = state_->readers.extract(fd)) {
    reader.mapped()->end_watch();
  }
  if (auto writer = state_->writers.extract(fd)) {
    writer.mapped()->end_wait();
  }
}

// --- Timers.

void Timer::arm(TimePoint deadline, Task fn) {
  cancel();
  if (deadline == kNever) return;
  deadline_ = deadline;
  fn_ = std::move(fn);
  order_ = reactor_.state_->next_order++;
  reactor_.state_->timers.emplace(deadline_, order_, this);
}

void Timer::cancel() {
  if (!armed()) return;
  reactor_.state_->timers.erase({deadline_, order_, this});
  deadline_ = kNever;
  fn_ = nullptr;
}

// Sees to it that the loop wakes up for the first timer. False when that one is due already.
bool Reactor::State::sync_wakeup() {
  if (timers.empty()) return true;
  const TimePoint first = std::get<TimePoint>(*timers.begin());
  if (first <= now()) return false;
  if (first >= wakeup_at) return true;
  wakeup_at = first;
  // steady_clock stands still while the machine sleeps, ours does not.
  wakeup.expires_after(first - now());
  wakeup.async_wait([this](const asio::error_code& error) {
    if (!error) wakeup_at = kNever;
  });
  return true;
}

void Reactor::State::fire_due_timers() {
  if (timers.empty()) return;
  const TimePoint time = now();
  const std::uint64_t first_new = next_order;  // what a callback arms for the past waits for the next batch
  while (!timers.empty()) {
    const auto [deadline, order, timer] = *timers.begin();
    if (deadline > time || order >= first_new) return;
    timers.erase(timers.begin());
    timer->deadline_ = kNever;
    Task fn = std::exchange(timer->fn_, nullptr);  // the callback may destroy the timer
    fn();
  }
}

// --- Tasks.

void Reactor::post(Task task) {
  State& s = *state_;
  bool first = false;
  {
    const std::scoped_lock lock(s.mutex);
    first = s.posted.empty();
    s.posted.push_back(std::move(task));
    TUSK_CHECK(s.posted.size() <= kMaxPostedTasks);
  }
  // One wake-up takes the whole queue along.
  if (first) asio::post(s.context, [&s] { s.run_posted(); });
}

void Reactor::State::run_posted() {
  {
    const std::scoped_lock lock(mutex);
    std::swap(posted, running);
  }
  for (Task& task : running) task();
  running.clear();
}

// --- The loop.

Result<std::unique_ptr<Reactor>> Reactor::create() {
  try {
    return std::unique_ptr<Reactor>(new Reactor(std::make_unique<State>()));
  } catch (const std::system_error& error) {
    return fail(from_errno(error.code().value()), "create an event loop");
  }
}

Reactor::Reactor(std::unique_ptr<State> state) : state_(std::move(state)) {}

Reactor::~Reactor() {
  TUSK_CHECK(state_->timers.empty());
  for (auto& [fd, watch] : state_->readers) watch->end_watch();
}

void Reactor::State::handle_batch() {
  std::size_t handled = sync_wakeup() ? context.run_one() : context.poll_one();
  if (handled > 0) {
    const TimePoint end = now() + kMaxBatchDuration;
    while (handled < kMaxEventsPerBatch && now() < end && context.poll_one() > 0) ++handled;
  }
  counters.events += handled;
  ++counters.batches;
}

void Reactor::run() noexcept {
  State& s = *state_;
  s.thread = std::this_thread::get_id();
  ::prctl(PR_SET_TIMERSLACK, kTimerSlackNanoseconds, 0, 0, 0);
  ask_for_short_slices();
  do {
    s.handle_batch();
    s.fire_due_timers();
    if (s.idle) s.idle();
  } while (!s.stopping.exchange(false));
  s.thread = std::thread::id();
}

void Reactor::stop() {
  state_->stopping = true;
  post([] {});
}

bool Reactor::in_reactor_thread() const { return state_->thread == std::this_thread::get_id(); }
void Reactor::on_idle(Task fn) { state_->idle = std::move(fn); }
const ReactorCounters& Reactor::counters() const { return state_->counters; }

}  // namespace tusk::io
