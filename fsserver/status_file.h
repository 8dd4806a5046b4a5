// connected.toml in the state directory: what a running server tells `tuskd clients`.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "fsserver/file_service.h"
#include "proto/base/result.h"

namespace tusk::server {

struct ServerStatus {
  pid_t pid = 0;
  std::vector<std::string> listen;
  std::vector<ConnectedClient> clients;
};

[[nodiscard]] std::filesystem::path status_file(const std::filesystem::path& state_dir);
[[nodiscard]] std::string to_toml(const ServerStatus& status);
// Nothing when no server is running there (a file left behind by one that was killed does not count).
[[nodiscard]] Result<std::optional<ServerStatus>> read_status(const std::filesystem::path& state_dir);

}  // namespace tusk::server
