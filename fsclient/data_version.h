// Which version of a file the cached bytes are, by the server's change counter, kept right through this
// mount's own changes.
//
// Every answer to a change of ours tells the counter before and after it. Changes of ours that follow one
// another form a chain, whatever order their answers come in; a change of somebody else's is a gap in it,
// and the version stays where it was before the gap: the next open sees that it is not the file's.
//
// Pure state without a lock: it belongs to an Inode, whose mutex protects it.
#pragma once

#include <cstdint>
#include <unordered_map>

namespace tusk::client {

class DataVersion {
 public:
  // The bytes are those of `change`.
  void set(std::uint64_t change) {
    change_ = change;
    ahead_.clear();
  }
  // They are of several versions, or nobody knows of which: of none that could be asked for.
  void mix() { set(kMixed); }

  // A change of ours took the file from `before` to `after`; 0: the server does not say.
  void follow(std::uint64_t before, std::uint64_t after) {
    if (change_ == kMixed || change_ == after || before == after) return;
    if (before == 0 || ahead_.size() >= kAheadMax) return mix();
    ahead_.emplace(before, after);
    for (auto next = ahead_.find(change_); next != ahead_.end(); next = ahead_.find(change_)) {
      change_ = next->second;
      ahead_.erase(next);
    }
  }

  [[nodiscard]] bool is(std::uint64_t change) const { return change_ != kMixed && change_ == change; }
  [[nodiscard]] bool mixed() const { return change_ == kMixed; }
  // For the server to compare; 0: mixed.
  [[nodiscard]] std::uint64_t value() const { return change_; }

 private:
  static constexpr std::uint64_t kMixed = 0;
  static constexpr std::size_t kAheadMax = 16384;  // answers that overtook others; calls in flight at most

  std::uint64_t change_ = kMixed;
  std::unordered_map<std::uint64_t, std::uint64_t> ahead_;  // before: after
};

}  // namespace tusk::client
