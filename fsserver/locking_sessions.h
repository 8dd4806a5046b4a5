// The mounts that have asked for locks, on the disk: when the server has been restarted, it gives nobody else
// locks before these are back, or have had their time to come back (docs/SEMANTICS.md, C5).
//
// One file per mount, with the name of its export, so that servers that share a state directory do not meet.
// What cannot be stored is logged and left: that mount's locks then do not survive a restart.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace tusk::server {

// Thread-safe.
class LockingSessions {
 public:
  // Made when it is first needed.
  explicit LockingSessions(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // `session`: a name that can be a file's; `number`: which of those that have it. Durable when it returns.
  void add(const std::string& session, std::uint64_t number, const std::string& export_name);
  // Not what a successor of the same name has added; 0: of the process before.
  void remove(const std::string& session, std::uint64_t number);
  [[nodiscard]] std::set<std::string> of_export(const std::string& export_name) const;

 private:
  // Whoever holds a mutex waits for the disk: one for some of the names.
  struct Part {
    std::mutex mutex;
    std::map<std::string, std::uint64_t> added;
  };
  [[nodiscard]] Part& part_of(const std::string& session) {
    return parts_[std::hash<std::string>{}(session) % parts_.size()];
  }

  const std::filesystem::path folder_;
  std::array<Part, 16> parts_;
};

}  // namespace tusk::server
