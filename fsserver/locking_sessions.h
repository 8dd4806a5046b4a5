// The mounts that have asked for locks, on the disk: when the server has been restarted, it gives nobody else
// locks before these are back, or have had their time to come back (docs/SEMANTICS.md, C5).
//
// One file per mount, with the name of its export, so that servers that share a state directory do not meet.
// What cannot be stored is logged and left: that mount's locks then do not survive a restart.
#pragma once

#include <filesystem>
#include <set>
#include <string>

namespace tusk::server {

// Thread-safe: it has no state but the folder.
class LockingSessions {
 public:
  // Made when it is first needed.
  explicit LockingSessions(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // `session`: a name that can be a file's. Durable when it returns.
  void add(const std::string& session, const std::string& export_name) const;
  void remove(const std::string& session) const;
  [[nodiscard]] std::set<std::string> of_export(const std::string& export_name) const;

 private:
  const std::filesystem::path folder_;
};

}  // namespace tusk::server
