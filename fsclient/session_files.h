// The sessions that this machine's mounts have at servers: a file each, locked while its mount lives.
//
// A mount that is killed says no goodbye: its server keeps its leases for as long as it waits for who has
// gone silent, and its locks for longer. The next mount finds the file that nobody has locked any more and
// names the session at its ATTACH, and nobody waits. The files lie beside the control sockets, on this
// machine and gone with its next boot: who copies a home directory to another machine does not end there what
// goes on here.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "proto/base/result.h"
#include "proto/io/fd.h"

namespace tusk::client {

// Not thread-safe.
class SessionFiles {
 public:
  static constexpr std::size_t kIdBytes = 16;
  // More that ended are named by the mounts that follow. The server's limit is the same (PROTOCOL).
  static constexpr std::size_t kEndedMax = 16;

  // `owner`: what a session is known by beside its id, of any text: server, export and key.
  SessionFiles(std::filesystem::path directory, std::string owner);
  SessionFiles(const SessionFiles&) = delete;
  SessionFiles& operator=(const SessionFiles&) = delete;
  // The session of this mount is over, and the server knows, unless it was left behind.
  ~SessionFiles();

  // The ids of this owner's sessions whose mounts are gone and left them behind.
  [[nodiscard]] std::vector<std::string> ended() const;
  // The server has been told of these.
  void forget(const std::vector<std::string>& ids) const;
  // From now on `id`, kIdBytes of any kind, is that of this mount. Once. Fails as the directory does, which
  // must be private.
  [[nodiscard]] Result<void> begin(std::string_view id);
  // The server could not be told that it ends: that is left to the next mount.
  void leave_behind() { left_behind_ = true; }

 private:
  [[nodiscard]] std::filesystem::path file_of(std::string_view id) const;

  const std::filesystem::path directory_;
  const std::string owner_;
  std::filesystem::path own_;  // empty: there is none
  Fd lock_;
  bool left_behind_ = false;
};

}  // namespace tusk::client
