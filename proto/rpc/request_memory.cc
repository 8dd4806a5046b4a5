#include "proto/rpc/request_memory.h"

#include <algorithm>

namespace tusk::rpc {

std::shared_ptr<MemoryAccount> RequestMemory::begin(ConnectionId connection) {
  auto account = std::make_shared<MemoryAccount>(all_);
  const std::lock_guard lock(mutex_);
  accounts_.emplace(connection, Account{account, {}, {}});
  return account;
}

void RequestMemory::count_together(ConnectionId connection, std::string owner, std::string right) {
  const std::lock_guard lock(mutex_);
  const auto found = accounts_.find(connection);
  if (found == accounts_.end()) return;
  found->second.owner = std::move(owner);
  found->second.right = std::move(right);
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
    std::string right;
  };
  std::unordered_map<std::string, ByteCount> rights;
  std::unordered_map<std::string, Holder> owners;
  std::vector<Holder> holders;
  ByteCount held = 0;
  for (const auto& [connection, account] : accounts_) {
    Holder& holder = account.owner.empty() ? holders.emplace_back() : owners[account.owner];
    holder.held += account.memory->held();
    holder.right = account.right;
    if (!account.right.empty()) rights[account.right] += account.memory->held();
    holder.connections.push_back(connection);
    held += account.memory->held();
  }
  for (auto& [owner, holder] : owners) holders.push_back(std::move(holder));
  // What connections left behind that are gone the service lets go of by itself, in its own time. The
  // others do not pay for it, unless it is as much again.
  const ByteCount left_behind = all - std::min(all, held);
  const ByteCount allowed = std::min(limit_, 2 * limit_ - std::min(2 * limit_, left_behind));
  if (held <= allowed) return {};
  const auto of_right = [&](const Holder& holder) {
    return holder.right.empty() ? holder.held : rights[holder.right];
  };
  std::vector<Victim> victims;
  while (held > allowed && !holders.empty()) {
    // Anew each time: what goes is its right's.
    const auto most = std::ranges::max_element(
        holders, {}, [&](const Holder& holder) { return std::pair(of_right(holder), holder.held); });
    const Holder holder = std::move(*most);
    holders.erase(most);
    held -= holder.held;
    if (!holder.right.empty()) rights[holder.right] -= holder.held;
    for (const ConnectionId connection : holder.connections) {
      victims.push_back({connection, holder.held});
      accounts_.erase(connection);
    }
  }
  return victims;
}

}  // namespace tusk::rpc
