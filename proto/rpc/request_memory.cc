#include "proto/rpc/request_memory.h"

#include <algorithm>

namespace tusk::rpc {

std::shared_ptr<MemoryAccount> RequestMemory::begin(ConnectionId connection) {
  auto account = std::make_shared<MemoryAccount>(all_);
  const std::lock_guard lock(mutex_);
  accounts_.emplace(connection, account);
  return account;
}

void RequestMemory::end(ConnectionId connection) {
  const std::lock_guard lock(mutex_);
  accounts_.erase(connection);
}

std::vector<RequestMemory::Victim> RequestMemory::take_victims() {
  const ByteCount all = all_->held();
  if (all <= limit_) return {};
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return {};  // another shard is about to see to it
  std::vector<Victim> holders;
  ByteCount held = 0;
  for (const auto& [connection, account] : accounts_) {
    holders.push_back({connection, account->held()});
    held += holders.back().held;
  }
  // What connections left behind that are gone the service lets go of by itself, in its own time. The
  // others do not pay for it, unless it is as much again.
  const ByteCount left_behind = all - std::min(all, held);
  const ByteCount allowed = std::min(limit_, 2 * limit_ - std::min(2 * limit_, left_behind));
  if (held <= allowed) return {};
  std::ranges::sort(holders, std::greater(), &Victim::held);
  std::size_t victims = 0;
  for (; victims < holders.size() && held > allowed; ++victims) {
    held -= holders[victims].held;
    accounts_.erase(holders[victims].connection);
  }
  holders.resize(victims);
  return holders;
}

}  // namespace tusk::rpc
