#include "fsserver/fair_queue.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

namespace tusk::server {
namespace {

template <class Value, class Map>
std::shared_ptr<Value> find_or_make(Map& map, const std::string& name) {
  if (const auto known = map.find(name); known != map.end())
    if (auto held = known->second.lock()) return held;
  std::erase_if(map, [](const auto& item) { return item.second.expired(); });
  auto made = std::make_shared<Value>();
  map.emplace(name, made);
  return made;
}

}  // namespace

bool FairQueue::Account::has_work(const LaneSet& allowed) const {
  for (std::size_t lane = 0; lane < kLanes; ++lane)
    if (allowed[lane] && queued[lane] > 0) return true;
  return false;
}

void FairQueue::Account::charge(Cost cost) { left = std::max(left - cost, -kDebtMax); }

// Who pays off a debt is not new.
template <class Member>
void FairQueue::Ring<Member>::enter(const std::shared_ptr<Member>& member) {
  Account& account = member->account;
  if (account.listed) return;
  account.listed = true;
  if (account.left >= 0) account.left = kTurnCost;
  (account.left > 0 ? new_ : old_).push_back(member);
}

template <class Member>
template <class Admits>
std::shared_ptr<Member> FairQueue::Ring<Member>::next(const LaneSet& allowed, Admits admits) {
  for (bool paid = true; paid;) {
    paid = false;
    for (auto* list : {&new_, &old_}) {
      for (auto place = list->begin(); place != list->end();) {
        const auto current = place++;
        Account& account = (*current)->account;
        if (account.idle() && list == &old_) {
          account.listed = false;
          leave(**current);
          list->erase(current);
        } else if (account.idle()) {
          old_.splice(old_.end(), new_, current);  // else it would be new again before all others
        } else if (account.has_work(allowed) && admits(**current)) {
          if (account.left > 0) return *current;
          account.left += kTurnCost;
          paid = true;
          old_.splice(old_.end(), *list, current);
        }
      }
    }
  }
  return nullptr;
}

template <class Member>
void FairQueue::Ring<Member>::clear() {
  for (auto* list : {&new_, &old_}) {
    for (const auto& member : *list) member->account.listed = false;
    list->clear();
  }
}

// Flows keep their right, a right keeps its flows that have work, and a task may keep its flow.
FairQueue::~FairQueue() {
  std::vector<Task> dropped;
  for (const auto& [right_name, weak_right] : rights_) {
    const std::shared_ptr<Right> right = weak_right.lock();
    if (!right) continue;
    right->flows.clear();
    for (const auto& [flow_name, weak_flow] : right->known) {
      const FlowPointer flow = weak_flow.lock();
      if (!flow) continue;
      for (auto& tasks : flow->tasks)
        std::ranges::move(std::exchange(tasks, {}), std::back_inserter(dropped));
    }
  }
}

FairQueue::FlowPointer FairQueue::flow(const std::string& right, const std::string& session) {
  const auto its_right = find_or_make<Right>(rights_, right);
  const auto flow = find_or_make<Flow>(its_right->known, session);
  flow->right = its_right;
  return flow;
}

void FairQueue::enter(const FlowPointer& flow, Lane lane) {
  ++flow->account.queued[static_cast<std::size_t>(lane)];
  ++flow->right->account.queued[static_cast<std::size_t>(lane)];
  ++size_;
  flow->right->flows.enter(flow);
  ring_.enter(flow->right);
}

void FairQueue::push_back(const FlowPointer& flow, Lane lane, Task task) {
  flow->tasks[static_cast<std::size_t>(lane)].push_back(std::move(task));
  enter(flow, lane);
}

void FairQueue::push_front(const FlowPointer& flow, Lane lane, Task task) {
  flow->tasks[static_cast<std::size_t>(lane)].push_front(std::move(task));
  enter(flow, lane);
}

std::optional<FairQueue::Next> FairQueue::pop(const LaneSet& allowed, unsigned running_max) {
  const auto right = ring_.next(allowed, [&](const Right& each) { return each.running < running_max; });
  if (!right) return std::nullopt;
  const auto flow = right->flows.next(allowed, [](const Flow&) { return true; });
  std::size_t lane = 0;
  while (!allowed[lane] || flow->tasks[lane].empty()) ++lane;
  Next next{.flow = flow, .lane = static_cast<Lane>(lane), .task = std::move(flow->tasks[lane].front())};
  flow->tasks[lane].pop_front();
  --flow->account.queued[lane];
  --right->account.queued[lane];
  --size_;
  flow->account.charge(kTaskCost);
  right->account.charge(kTaskCost);
  ++right->running;
  return next;
}

void FairQueue::finished(Flow& flow, Cost cost) {
  flow.account.charge(cost);
  flow.right->account.charge(cost);
  --flow.right->running;
}

std::size_t FairQueue::waiting(const Flow& flow) {
  return std::accumulate(flow.account.queued.begin(), flow.account.queued.end(), std::size_t{0});
}

}  // namespace tusk::server
