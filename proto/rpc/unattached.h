// The connections of a server that have not attached yet, in the order in which they came, for all its
// shards. A source has a limited number: beyond it the oldest of its own gives way. When there is no more
// place at all, the oldest of the source that has most gives way, wherever it is.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "proto/rpc/service.h"
#include "proto/rpc/source.h"

namespace tusk::rpc {

class Unattached {
 public:
  // Those of an honest client attach within a few round trips; each takes 100 KiB before.
  static constexpr std::size_t kOfSourceMax = 128;

  // A connection's place among them; never 0.
  [[nodiscard]] std::uint64_t enter(ConnectionId connection, const Source& source) {
    const std::lock_guard lock(mutex_);
    waiting_.emplace(++last_, Waiting{connection, source});
    places_[source].insert(last_);
    return last_;
  }
  // It has attached, or is gone.
  void leave(std::uint64_t place) {
    const std::lock_guard lock(mutex_);
    remove(place);
  }
  // The oldest of that source if it has too many; the one to be taken is nobody else's then.
  [[nodiscard]] std::optional<ConnectionId> take_surplus(const Source& source) {
    const std::lock_guard lock(mutex_);
    const auto found = places_.find(source);
    if (found == places_.end() || found->second.size() <= kOfSourceMax) return std::nullopt;
    return remove(*found->second.begin());
  }
  // The oldest of the source that has most.
  [[nodiscard]] std::optional<ConnectionId> take_oldest() {
    const std::lock_guard lock(mutex_);
    const auto most =
        std::ranges::max_element(places_, {}, [](const auto& its) { return its.second.size(); });
    if (most == places_.end()) return std::nullopt;
    return remove(*most->second.begin());
  }

 private:
  struct Waiting {
    ConnectionId connection;
    Source source;
  };

  std::optional<ConnectionId> remove(std::uint64_t place) {
    const auto found = waiting_.find(place);
    if (found == waiting_.end()) return std::nullopt;
    const Waiting gone = found->second;
    waiting_.erase(found);
    const auto its = places_.find(gone.source);
    its->second.erase(place);
    if (its->second.empty()) places_.erase(its);
    return gone.connection;
  }

  std::mutex mutex_;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, Waiting> waiting_;
  std::map<Source, std::set<std::uint64_t>> places_;
};

}  // namespace tusk::rpc
