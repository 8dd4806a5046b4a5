#include "fsserver/change_gate.h"

#include <algorithm>

namespace tusk::server {

bool ChangeGate::let_in(rpc::ConnectionId connection, std::uint64_t attempt) {
  const std::lock_guard lock(mutex_);
  if (attempt != 0 && attempt < attempt_) return false;
  attempt_ = std::max(attempt_, attempt);
  if (connection == current_.load()) return true;
  current_ = connection;
  ++generation_;
  older_ += std::exchange(inside_, 0);
  return true;
}

ChangeGate::Entry ChangeGate::enter(rpc::ConnectionId by) {
  const std::lock_guard lock(mutex_);
  if (by != current_.load()) return {.verdict = Verdict::kOutdated, .pass = {}};
  if (older_ > 0) return {.verdict = Verdict::kWait, .pass = {}};
  ++inside_;
  return {.verdict = Verdict::kIn, .pass = Pass(shared_from_this(), generation_)};
}

bool ChangeGate::wait(std::move_only_function<void()> ready) {
  const std::lock_guard lock(mutex_);
  if (older_ == 0) return false;
  waiting_.push_back(std::move(ready));
  return true;
}

void ChangeGate::leave(std::uint64_t generation) {
  std::vector<std::move_only_function<void()>> ready;
  {
    const std::lock_guard lock(mutex_);
    if (generation == generation_) {
      --inside_;
      return;
    }
    if (--older_ > 0) return;
    ready.swap(waiting_);
  }
  for (auto& each : ready) each();
}

}  // namespace tusk::server
