// Changes that programs were told are done, that could not be done, and of which nobody has been told: each
// is counted once, wherever it may be told (who has the file open, who syncs its directory), and no more once
// it has been told anywhere. Thread-safe; no other lock is taken within.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

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

  // Somebody is there who will be told.
  [[nodiscard]] Id note(std::string text) {
    const std::lock_guard lock(mutex_);
    failures_.emplace(++last_id_, Failure{std::move(text)});
    if (const auto old = failures_.find(last_id_ - kTextsMax); old != failures_.end())
      old->second.text.clear();
    return last_id_;
  }
  // Nobody is, any more. Not if it has been told.
  void count(Id id) {
    const std::lock_guard lock(mutex_);
    const auto found = failures_.find(id);
    if (found != failures_.end() && !std::exchange(found->second.counts, true)) ++counted_;
  }
  [[nodiscard]] Id add(std::string text) {
    const Id id = note(std::move(text));
    count(id);
    return id;
  }
  void tell(Id id) {
    const std::lock_guard lock(mutex_);
    const auto found = failures_.find(id);
    if (found == failures_.end()) return;
    if (found->second.counts) --counted_;
    failures_.erase(found);
  }

  [[nodiscard]] bool told(Id id) const {
    const std::lock_guard lock(mutex_);
    return !failures_.contains(id);
  }
  [[nodiscard]] bool counts(Id id) const {
    const std::lock_guard lock(mutex_);
    const auto found = failures_.find(id);
    return found != failures_.end() && found->second.counts;
  }
  [[nodiscard]] Value value() const {
    const std::lock_guard lock(mutex_);
    if (counted_ == 0) return {};
    auto last = failures_.rbegin();
    while (!last->second.counts) ++last;
    return {counted_, last->second.text.empty() ? "see the daemon's log" : last->second.text};
  }

 private:
  struct Failure {
    std::string text;
    bool counts = false;
  };

  mutable std::mutex mutex_;
  std::map<Id, Failure> failures_;  // that have not been told
  Id last_id_ = 0;
  std::uint64_t counted_ = 0;
};

}  // namespace tusk::client
