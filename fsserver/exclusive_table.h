// Which directories' names one session has for itself alone (docs/PROTOCOL.md, "Exclusiveness").
//
// All that a session has is one thing with a number: it ends as a whole, and what it gets later has a higher
// one, also from the next server process: clients only know up to which number all is over. While
// it is being taken back it is still the session's, but grows no more. What others have asked for is not
// given to anybody for a while: two clients that work in one directory are not to take it from each other all
// the time.
//
// Pure state; who may have what LeaseTable says.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "proto/base/time.h"

namespace tusk::server {

using SessionNumber = std::uint64_t;

// How the tables of leases know nodes.
[[nodiscard]] inline std::uint64_t node_key(std::string_view handle) {
  return std::hash<std::string_view>()(handle);
}

class ExclusiveTable {
 public:
  using Key = std::uint64_t;                               // node_key() of the directory
  static constexpr std::size_t kDirectoriesMax = 262'144;  // of one session
  static constexpr std::size_t kContestedMax = 65'536;

  // Numbers rise from `first` on.
  ExclusiveTable(Duration contested_for, std::uint64_t first)
      : contested_for_(contested_for), last_number_(first) {}

  // Who has it; nobody has it: nullopt.
  [[nodiscard]] std::optional<SessionNumber> holder(Key directory) const;
  [[nodiscard]] bool holds(SessionNumber session) const;
  // Of what the session has; 0: nothing.
  [[nodiscard]] std::uint64_t number(SessionNumber session) const;
  [[nodiscard]] std::size_t holders() const { return holders_; }

  // False: it has as many as it may have.
  [[nodiscard]] bool grant(SessionNumber session, Key directory);
  // Returns the number that is over with it. Twice: the same.
  std::uint64_t begin_recall(SessionNumber session);
  [[nodiscard]] bool recalling(SessionNumber session) const;
  // It has nothing any more. Returns the number that is over with it; 0: it had nothing.
  std::uint64_t end(SessionNumber session);
  // There is no such session any more.
  void forget(SessionNumber session);

  void contest(Key directory, TimePoint now);
  [[nodiscard]] bool contested(Key directory, TimePoint now) const;

 private:
  struct Part {
    std::uint64_t number = 0;
    bool recalling = false;
    std::unordered_set<Key> directories;
  };
  const Duration contested_for_;
  std::uint64_t last_number_;
  std::unordered_map<SessionNumber, Part> parts_;
  std::unordered_map<Key, SessionNumber> of_;
  std::size_t holders_ = 0;  // parts with directories
  std::unordered_map<Key, TimePoint> contested_;
  std::deque<std::pair<Key, TimePoint>> contests_;  // in the order of time
};

}  // namespace tusk::server
