// What each running server tells `tuskd clients` and `tuskd token`: running/PID-RANDOM.toml in the state
// directory, one for each server that uses it.
//
// A server holds a lock on its file, which the kernel takes away when it dies, however it dies: a file that
// nobody holds was left behind. (Its pid tells nothing: another process may have it by now.)
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "fsserver/fd.h"
#include "fsserver/file_service.h"
#include "proto/base/result.h"

namespace tusk::server {

struct ServerStatus {
  struct Exported {
    std::string name;
    std::filesystem::path path;
    Access access = Access::kReadOnly;
  };
  pid_t pid = 0;
  std::string sandbox;  // what is in force of it; empty: an older server, which had none
  std::vector<std::string> listen;
  std::vector<Exported> exports;
  std::vector<ConnectedClient> clients;
  // After a crash changes may wait so long for mounts that were there before; 0: they do not.
  std::int64_t grace_until_unix_s = 0;
};

// This server's own; removed with the object.
class StatusFile {
 public:
  explicit StatusFile(const std::filesystem::path& state_dir);
  ~StatusFile() { remove(); }
  StatusFile(const StatusFile&) = delete;
  StatusFile& operator=(const StatusFile&) = delete;

  // Writes only what differs from the last time, and does not try again what failed.
  [[nodiscard]] Result<void> update(const ServerStatus& status);
  void remove();

 private:
  const std::filesystem::path file_;
  std::string text_;
  Fd held_;
};

// By pid. Files that dead servers left behind are removed.
[[nodiscard]] Result<std::vector<ServerStatus>> running_servers(const std::filesystem::path& state_dir);

}  // namespace tusk::server
