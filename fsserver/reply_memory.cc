#include "fsserver/reply_memory.h"

#include <algorithm>

#include "proto/base/check.h"

namespace tusk::server {

ReplyMemory::Verdict ReplyMemory::begin(std::uint64_t sequence, std::uint64_t done_below, Answer answer,
                                        Wanted wanted) {
  std::unique_lock lock(mutex_);
  if (done_below > done_below_) forget_below(done_below);
  if (const auto known = entries_.find(sequence); known != entries_.end()) {
    Entry& entry = known->second;
    if (!entry.reply) {
      std::optional<Repeat> replaced;  // let go after the mutex
      entry.waiting.push_back({std::move(answer), std::move(wanted)});
      // The oldest came by a connection that has long been lost: a client has one at a time.
      if (entry.waiting.size() > kRepeatsWaitingMax) {
        replaced = std::move(entry.waiting.front());
        entry.waiting.pop_front();
      }
      lock.unlock();
      return Verdict::kJoined;
    }
    schema::Reply reply;
    TUSK_CHECK(reply.ParseFromString(*entry.reply));
    lock.unlock();
    answer(reply);
    return Verdict::kAnswered;
  }
  if (sequence < done_below_) return Verdict::kForgotten;
  if (full() && bounds_.when_full == WhenFull::kRefuse) return Verdict::kFull;
  make_room();
  entries_.emplace(sequence, Entry{});
  return Verdict::kRun;
}

void ReplyMemory::forget_below(std::uint64_t sequence) {
  done_below_ = sequence;
  for (auto entry = entries_.begin(); entry != entries_.end() && entry->first < sequence;) {
    if (!entry->second.reply) {
      ++entry;
      continue;
    }
    bytes_ -= entry->second.reply->size();
    entry = entries_.erase(entry);
  }
}

void ReplyMemory::make_room() {
  for (auto entry = entries_.begin(); entry != entries_.end() && full();) {
    if (entry->second.reply) bytes_ -= entry->second.reply->size();
    entry = entry->second.reply ? entries_.erase(entry) : std::next(entry);
  }
}

void ReplyMemory::finish(std::uint64_t sequence, const schema::Reply& reply) {
  std::string encoded = reply.SerializeAsString();
  std::deque<Repeat> waiting;
  {
    const std::lock_guard lock(mutex_);
    const auto known = entries_.find(sequence);
    if (known == entries_.end()) return;
    waiting = std::move(known->second.waiting);
    if (sequence < done_below_) {
      entries_.erase(known);
    } else {
      bytes_ += encoded.size();
      known->second.reply = std::move(encoded);
    }
  }
  for (Repeat& repeat : waiting) repeat.answer(reply);
}

bool ReplyMemory::withdraw(std::uint64_t sequence) {
  std::deque<Repeat> dropped;  // let go after the mutex
  const std::lock_guard lock(mutex_);
  const auto known = entries_.find(sequence);
  if (known == entries_.end()) return true;
  TUSK_CHECK(!known->second.reply);
  const auto wanted = [](const Repeat& repeat) { return !repeat.wanted || repeat.wanted(); };
  if (std::ranges::any_of(known->second.waiting, wanted)) return false;
  dropped = std::move(known->second.waiting);
  entries_.erase(known);
  return true;
}

std::size_t ReplyMemory::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace tusk::server
