// Descriptors that several hold, and the one way back from an O_PATH descriptor to a path.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "proto/base/result.h"
#include "proto/io/fd.h"

namespace tusk::server {

// Evicting a descriptor from a table must not close it under an operation that still uses it.
using SharedFd = std::shared_ptr<const Fd>;

[[nodiscard]] inline SharedFd share(Fd fd) { return std::make_shared<const Fd>(std::move(fd)); }

// For system calls that have no form for O_PATH descriptors (chmod, xattrs, truncate): the kernel goes
// from this path straight to the inode, also when that is a symlink; no name is resolved again.
[[nodiscard]] inline std::string proc_path(const Fd& fd) {
  return "/proc/self/fd/" + std::to_string(fd.number());
}

}  // namespace tusk::server
