#include "fsserver/exclusive_table.h"

namespace tusk::server {

std::optional<SessionNumber> ExclusiveTable::holder(Key directory) const {
  const auto found = of_.find(directory);
  return found == of_.end() ? std::nullopt : std::optional(found->second);
}

bool ExclusiveTable::holds(SessionNumber session) const {
  const auto found = parts_.find(session);
  return found != parts_.end() && !found->second.directories.empty();
}

std::uint64_t ExclusiveTable::number(SessionNumber session) const {
  const auto found = parts_.find(session);
  return found == parts_.end() || found->second.directories.empty() ? 0 : found->second.number;
}

bool ExclusiveTable::grant(SessionNumber session, Key directory) {
  Part& part = parts_[session];
  if (part.directories.size() >= kDirectoriesMax) return false;
  if (part.directories.empty()) {
    ++holders_;
    part.number = ++last_number_;
  }
  part.directories.insert(directory);
  of_[directory] = session;
  return true;
}

std::uint64_t ExclusiveTable::begin_recall(SessionNumber session) {
  Part& part = parts_[session];
  part.recalling = true;
  return part.number;
}

bool ExclusiveTable::recalling(SessionNumber session) const {
  const auto found = parts_.find(session);
  return found != parts_.end() && found->second.recalling;
}

std::uint64_t ExclusiveTable::end(SessionNumber session) {
  const auto found = parts_.find(session);
  if (found == parts_.end() || found->second.directories.empty()) return 0;
  Part& part = found->second;
  for (const Key directory : part.directories) of_.erase(directory);
  part.directories.clear();
  part.recalling = false;
  --holders_;
  return part.number;
}

void ExclusiveTable::forget(SessionNumber session) {
  (void)end(session);
  parts_.erase(session);
}

void ExclusiveTable::contest(Key directory, TimePoint now) {
  while (!contests_.empty() &&
         (contests_.size() >= kContestedMax || now - contests_.front().second >= contested_for_)) {
    const auto [key, since] = contests_.front();
    contests_.pop_front();
    if (const auto found = contested_.find(key); found != contested_.end() && found->second == since)
      contested_.erase(found);
  }
  contested_[directory] = now;
  contests_.emplace_back(directory, now);
}

bool ExclusiveTable::contested(Key directory, TimePoint now) const {
  const auto found = contested_.find(directory);
  return found != contested_.end() && now - found->second < contested_for_;
}

}  // namespace tusk::server
