#include "fsserver/reply_memory.h"

#include <algorithm>

namespace tusk::server {

ReplyMemory::Verdict ReplyMemory::begin(std::uint64_t sequence, std::uint64_t done_below, Answer answer) {
  std::unique_lock lock(mutex_);
  if (done_below > done_below_) {
    done_below_ = done_below;
    std::erase_if(entries_, [&](const auto& item) { return item.first < done_below && item.second.reply; });
  }
  if (const auto known = entries_.find(sequence); known != entries_.end()) {
    Entry& entry = known->second;
    if (!entry.reply) {
      if (entry.waiting.size() >= kRepeatsWaitingMax) return Verdict::kFull;
      entry.waiting.push_back(std::move(answer));
      return Verdict::kJoined;
    }
    const schema::Reply reply = *entry.reply;
    lock.unlock();
    answer(reply);
    return Verdict::kAnswered;
  }
  if (sequence < done_below_) return Verdict::kForgotten;
  if (entries_.size() >= kRememberedRepliesMax) return Verdict::kFull;
  entries_.emplace(sequence, Entry{});
  return Verdict::kRun;
}

void ReplyMemory::finish(std::uint64_t sequence, const schema::Reply& reply) {
  std::vector<Answer> waiting;
  {
    const std::lock_guard lock(mutex_);
    const auto known = entries_.find(sequence);
    if (known == entries_.end()) return;
    waiting = std::move(known->second.waiting);
    if (sequence < done_below_)
      entries_.erase(known);
    else
      known->second.reply = reply;
  }
  for (Answer& answer : waiting) answer(reply);
}

std::size_t ReplyMemory::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace tusk::server
