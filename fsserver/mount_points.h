// Where file systems are mounted, as this process sees it (/proc/self/mountinfo).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fsserver/fd.h"
#include "proto/base/result.h"

namespace tusk::server {

struct MountPoint {
  std::uint64_t device = 0;  // as device_of()
  std::string path;
  std::string type;  // of its file system
};

// Where the descriptor's file is now.
[[nodiscard]] Result<std::string> path_of(const Fd& fd);
// The same directory, or one inside it. Both as the kernel writes them.
[[nodiscard]] bool lies_beneath(std::string_view path, std::string_view root);

// All at or beneath `root`, a path as path_of() tells it. Errors: mountinfo cannot be read.
[[nodiscard]] Result<std::vector<MountPoint>> mount_points_beneath(std::string_view root);

}  // namespace tusk::server
