#include "tests/system/wan/emulator.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "proto/base/check.h"

namespace tusk::wan {
namespace {

// A lane with little to do wakes for every packet and every due time; one that is busy naps between
// batches, because a wake-up costs more than a packet. A nap is a small part of the delay.
constexpr Duration kNapMin = 20us;
constexpr Duration kNapMax = 150us;
constexpr int kNapsInDelay = 50;
constexpr Duration kBusyWindow = 1ms;
constexpr std::size_t kBusyPackets = 10;  // in a window

constexpr int kRealtimePriority = 1;
constexpr int kNicePriority = -19;  // where real time is not allowed
constexpr std::uint64_t kSeedOfBa = 0x5bd1e995;

constexpr long kNanoseconds = 1'000'000'000;

timespec to_timespec(Duration duration) {
  return {.tv_sec = duration.count() / kNanoseconds, .tv_nsec = duration.count() % kNanoseconds};
}

Duration read_clock(clockid_t id) {
  timespec now{};
  clock_gettime(id, &now);
  return Duration(now.tv_sec * kNanoseconds + now.tv_nsec);
}

Duration nap_for(const support::LinkParameters& parameters) {
  return std::clamp<Duration>(parameters.delay / kNapsInDelay, kNapMin, kNapMax);
}

void prepare_thread(bool realtime) {
  pthread_setname_np(pthread_self(), "wan-lane");
  prctl(PR_SET_TIMERSLACK, 1);
  const sched_param priority{.sched_priority = kRealtimePriority};
  if (!realtime || pthread_setschedparam(pthread_self(), SCHED_RR, &priority) != 0) {
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNicePriority);
  }
}

}  // namespace

TimePoint clock_now() { return TimePoint(read_clock(CLOCK_MONOTONIC)); }

Lane::Lane(const support::LinkParameters& parameters, const EmulatorConfig& config, std::uint64_t seed,
           TunDevice& source, TunDevice& sink)
    : realtime_(config.realtime),
      source_(source),
      sink_(sink),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      direction_(parameters, seed, config.mtu, config.memory),
      nap_(nap_for(parameters)),
      thread_([this] { run(); }) {}

Lane::~Lane() {
  stopping_ = true;
  eventfd_write(wake_.number(), 1);
  thread_.join();
}

void Lane::change(const support::LinkParameters& parameters) {
  {
    const std::lock_guard lock(mutex_);
    wanted_ = parameters;
  }
  eventfd_write(wake_.number(), 1);
}

Lane::Figures Lane::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

void Lane::run() {
  prepare_thread(realtime_);
  while (!stopping_) {
    const TimePoint now = clock_now();
    note_late(now);
    exchange(now);
    wait(now, direction_.pump(clock_now, source_, sink_));
  }
}

void Lane::note_late(TimePoint now) {
  if (wanted_at_ != kNever && now - wanted_at_ >= kStoodStillMin) stood_still_ += now - wanted_at_;
}

// Takes new parameters over and shows the figures: the only place where the lane meets other threads,
// short enough that neither ever waits for packets.
void Lane::exchange(TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (wanted_) {
    direction_.change(now, *wanted_);
    nap_ = nap_for(*wanted_);
    wanted_.reset();
  }
  figures_.statistics = direction_.statistics(now);
  figures_.cpu = read_clock(CLOCK_THREAD_CPUTIME_ID);
  figures_.stood_still = stood_still_;
}

void Lane::wait(TimePoint now, const Direction::Pumped& pumped) {
  const bool busy = is_busy(now, pumped.handled);
  wanted_at_ = pumped.more ? now : busy ? now + nap_ : pumped.next_due;
  if (pumped.more) return;
  if (busy) {
    const timespec nap = to_timespec(nap_);
    clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, nullptr);
    return;
  }
  // One more look at what happened since the last exchange, or idle lanes would show old figures.
  if (pumped.handled > 0) exchange(clock_now());
  pollfd events[] = {{.fd = source_.number(), .events = POLLIN}, {.fd = wake_.number(), .events = POLLIN}};
  const bool forever = pumped.next_due == kNever;
  const timespec timeout =
      to_timespec(forever ? Duration(0) : std::max(pumped.next_due - clock_now(), Duration(0)));
  ppoll(events, std::size(events), forever ? nullptr : &timeout, nullptr);
  if (events[1].revents != 0) {
    eventfd_t ignored = 0;
    eventfd_read(wake_.number(), &ignored);
  }
}

bool Lane::is_busy(TimePoint now, std::size_t handled) {
  if (now - window_start_ >= kBusyWindow) {
    busy_ = window_packets_ >= kBusyPackets;
    window_start_ = now;
    window_packets_ = 0;
  }
  window_packets_ += handled;
  return busy_ || window_packets_ >= kBusyPackets;
}

Emulator::Emulator(const PathParameters& parameters, const EmulatorConfig& config, TunDevice& a, TunDevice& b)
    : parameters_(parameters),
      ab_(parameters.ab, config, config.seed, a, b),
      ba_(parameters.ba, config, config.seed ^ kSeedOfBa, b, a) {}

void Emulator::change(const PathParameters& parameters) {
  if (!(parameters.ab == parameters_.ab)) ab_.change(parameters.ab);
  if (!(parameters.ba == parameters_.ba)) ba_.change(parameters.ba);
  parameters_ = parameters;
}

}  // namespace tusk::wan
