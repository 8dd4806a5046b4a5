#include "proto/rpc/request_memory.h"

#include <algorithm>

namespace tusk::rpc {

std::shared_ptr<MemoryAccount> RequestMemory::begin(ConnectionId connection) {
  auto account = std::make_shared<MemoryAccount>(all_);
  const std::lock_guard lock(mutex_);
  accounts_.emplace(connection, Account{account, {}});
  return account;
}

void RequestMemory::count_together(ConnectionId connection, std::string owner) {
  const std::lock_guard lock(mutex_);
  if (const auto found = accounts_.find(connection); found != accounts_.end())
    found->second.owner = std::move(owner);
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
  struct Holder {
    ByteCount held = 0;
    std::vector<ConnectionId> connections;
  };
  std::unordered_map<std::string, Holder> owners;
  std::vector<Holder> holders;
  ByteCount held = 0;
  for (const auto& [connection, account] : accounts_) {
    Holder& holder = account.owner.empty() ? holders.emplace_back() : owners[account.owner];
    holder.held += account.memory->held();
    holder.connections.push_back(connection);
    held += account.memory->held();
  }
  for (auto& [owner, holder] : owners) holders.push_back(std::move(holder));
  // What connections left behind that are gone the service lets go of by itself, in its own time. The
  // others do not pay for it, unless it is as much again.
  const ByteCount left_behind = all - std::min(all, held);
  const ByteCount allowed = std::min(limit_, 2 * limit_ - std::min(2 * limit_, left_behind));
  if (held <= allowed) return {};
  std::ranges::sort(holders, std::greater(), &Holder::held);
  std::vector<Victim> victims;
  for (const Holder& holder : holders) {
    if (held <= allowed) break;
    held -= holder.held;
    for (const ConnectionId connection : holder.connections) {
      victims.push_back({connection, holder.held});
      accounts_.erase(connection);
    }
  }
  return victims;
}

}  // namespace tusk::rpc
