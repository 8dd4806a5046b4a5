// Descriptors that several hold, and the ways between them and paths.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
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

// Whether `path`, symlinks followed, leads to what is open here.
[[nodiscard]] inline bool is_at(const Fd& fd, const std::filesystem::path& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(fd.number(), &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

}  // namespace tusk::server
