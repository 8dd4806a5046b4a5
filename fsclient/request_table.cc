#include "fsclient/request_table.h"

#include <utility>

namespace tusk::client {

std::uint64_t RequestTable::add(void* request, pid_t thread, Ends ends,
                                std::shared_ptr<Interrupt> interrupt) {
  const std::uint64_t id = next_++;
  {
    Shard& home = shard(id);
    const std::lock_guard lock(home.mutex);
    home.waiting.emplace(id, Waiting{request, thread, ends, std::move(interrupt)});
  }
  look_later();
  return id;
}

void RequestTable::note_begun(std::uint64_t id) {
  Shard& home = shard(id);
  const std::lock_guard lock(home.mutex);
  if (const auto found = home.waiting.find(id); found != home.waiting.end()) found->second.begun = true;
}

bool RequestTable::take(std::uint64_t id) {
  std::shared_ptr<Interrupt> gone;  // once the lock is let go
  Shard& home = shard(id);
  const std::lock_guard lock(home.mutex);
  auto node = home.waiting.extract(id);
  if (!node) return false;
  gone = std::move(node.mapped().interrupt);
  return true;
}

void RequestTable::handle_interrupt(std::uint64_t id) {
  const TimePoint now = scheduler_.now();
  std::optional<Waiting> copy;
  {
    Shard& home = shard(id);
    const std::lock_guard lock(home.mutex);
    const auto found = home.waiting.find(id);
    if (found == home.waiting.end() || found->second.fired) return;
    found->second.interrupted = now;
    copy = found->second;
  }
  act(id, *copy, look_(copy->thread), now);
}

void RequestTable::look_later() {
  if (!looking_.load(std::memory_order_relaxed) && !looking_.exchange(true))
    scheduler_.post_after(kLookEvery, [this] { look_at_all(); });
}

// Many requests may be one thread's: read-ahead.
void RequestTable::look_at_all() {
  const TimePoint now = scheduler_.now();
  looking_ = false;  // before the look: the next one finds what comes during this one
  bool any = false;
  std::vector<std::pair<std::uint64_t, Waiting>> old;
  for (Shard& each : shards_) {
    const std::lock_guard lock(each.mutex);
    for (auto& [id, waiting] : each.waiting) {
      any = true;
      if (waiting.seen)
        old.emplace_back(id, waiting);
      else
        waiting.seen = now;
    }
  }
  std::unordered_map<pid_t, ThreadVerdict> verdicts;
  for (const auto& [id, waiting] : old) {
    const auto [verdict, first] = verdicts.try_emplace(waiting.thread, ThreadVerdict::kUnknown);
    if (first) verdict->second = look_(waiting.thread);
    act(id, waiting, verdict->second, now);
  }
  if (any) look_later();
}

bool RequestTable::ends(const Waiting& waiting, ThreadVerdict verdict, TimePoint now) const {
  if (verdict == ThreadVerdict::kKilled) return true;
  // A thread that is gone may have begun what others of its process wait for (direct I/O of io_submit(2)).
  if (verdict == ThreadVerdict::kGone) return waiting.ends == Ends::kWithThread;
  // It hears nothing of the answer, and the kernel drops every signal to it: nothing else could end its wait.
  if (verdict == ThreadVerdict::kExits && silent_()) return true;
  if (!waiting.interrupted || waiting.ends == Ends::kWithProcess) return false;
  if (verdict == ThreadVerdict::kAsked) return true;
  const bool any = waiting.ends == Ends::kByAnySignal || verdict == ThreadVerdict::kUnknown;
  return any && now - *waiting.interrupted >= kAnySignalAfter;
}

void RequestTable::act(std::uint64_t id, const Waiting& waiting, ThreadVerdict verdict, TimePoint now) {
  // Else nobody is there to hear what the operation may still come to.
  const bool alive = verdict == ThreadVerdict::kAsked || verdict == ThreadVerdict::kWaits ||
                     verdict == ThreadVerdict::kUnknown;
  const bool may_end = waiting.begun && waiting.ends != Ends::kWithProcess;
  if (waiting.fired) {
    if (may_end && (!alive || now - *waiting.fired >= kEndAfter)) end(id, waiting.request);
    return;
  }
  if (!ends(waiting, verdict, now)) return;
  {
    Shard& home = shard(id);
    const std::lock_guard lock(home.mutex);
    const auto found = home.waiting.find(id);
    if (found == home.waiting.end()) return;
    found->second.fired = now;
  }
  waiting.interrupt->fire();
  if (may_end && !alive) end(id, waiting.request);
}

// Later: whoever told of the INTERRUPT may still hold the request.
void RequestTable::end(std::uint64_t id, void* request) {
  scheduler_.post([this, id, request] {
    if (take(id)) end_(request);
  });
}

}  // namespace tusk::client
