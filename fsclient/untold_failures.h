// Changes that programs were told are done, that could not be done, and of which nobody has been told: each
// is counted once, wherever it may be told (who has the file open, who syncs its directory), and no more once
// it has been told anywhere. Of very many the oldest are a number only, which stays: a program that goes on
// and never syncs would fill the memory with them. Thread-safe; no other lock is taken within.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tusk::client {

class UntoldFailures {
 public:
  using Id = std::uint64_t;  // 0: none
  struct Value {
    std::uint64_t count = 0;
    std::string last;  // of those that count
  };
  // Of more only the daemon's log has the words.
  static constexpr std::uint64_t kTextsMax = 4096;
  // Of more that count only the number is known, and nobody can be told of one of them any more. Those that
  // do not count are as many as files are open for writing.
  static constexpr std::size_t kOneByOneMax = 65'536;

  // Somebody is there who will be told.
  [[nodiscard]] Id note(std::string text) {
    const std::lock_guard lock(mutex_);
    noted_.emplace(++last_id_, std::move(text));
    for (auto* failures : {&noted_, &counted_})
      if (const auto old = failures->find(last_id_ - kTextsMax); old != failures->end())
        std::string().swap(old->second);
    return last_id_;
  }
  // Nobody is, any more. Not if it has been told.
  void count(Id id) {
    const std::lock_guard lock(mutex_);
    auto failure = noted_.extract(id);
    if (failure.empty()) return;
    counted_.insert(std::move(failure));
    if (counted_.size() <= kOneByOneMax) return;
    counted_.erase(counted_.begin());
    ++counted_before_;
  }
  [[nodiscard]] Id add(std::string text) {
    const Id id = note(std::move(text));
    count(id);
    return id;
  }
  void tell(Id id) {
    const std::lock_guard lock(mutex_);
    if (noted_.erase(id) == 0) counted_.erase(id);
  }

  // Or it is one of which only the number is known.
  [[nodiscard]] bool told(Id id) const {
    const std::lock_guard lock(mutex_);
    return !noted_.contains(id) && !counted_.contains(id);
  }
  [[nodiscard]] bool counts(Id id) const {
    const std::lock_guard lock(mutex_);
    return counted_.contains(id);
  }
  [[nodiscard]] Value value() const {
    const std::lock_guard lock(mutex_);
    const std::uint64_t count = counted_before_ + counted_.size();
    if (count == 0) return {};
    const bool known = !counted_.empty() && !counted_.rbegin()->second.empty();
    return {count, known ? counted_.rbegin()->second : "see the daemon's log"};
  }

 private:
  using Texts = std::map<Id, std::string>;

  mutable std::mutex mutex_;
  Texts noted_;    // have not been told, and do not count (yet)
  Texts counted_;  // have not been told, and count
  Id last_id_ = 0;
  std::uint64_t counted_before_ = 0;  // those that are not in counted_ any more
};

// The failures that the next fsync of a directory tells. What is told elsewhere meanwhile is let go each time
// their number has doubled. No lock.
class UntoldOfDirectory {
 public:
  static constexpr std::size_t kFew = 16;

  void add(UntoldFailures::Id id, const UntoldFailures& all) {
    if (ids_.size() >= look_at_) {
      std::erase_if(ids_, [&all](auto known) { return all.told(known); });
      look_at_ = std::max(kFew, 2 * ids_.size());
    }
    ids_.push_back(id);
  }
  [[nodiscard]] bool any_counts(const UntoldFailures& all) const {
    return std::ranges::any_of(ids_, [&all](auto id) { return all.counts(id); });
  }
  void tell(UntoldFailures& all) {
    for (const auto id : std::exchange(ids_, {})) all.tell(id);
    look_at_ = kFew;
  }
  [[nodiscard]] std::size_t size() const { return ids_.size(); }

 private:
  std::vector<UntoldFailures::Id> ids_;
  std::size_t look_at_ = kFew;  // once there are so many
};

}  // namespace tusk::client
