// What is mounted where, read from the kernel's table: asking a mount itself could wait for its server.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tusk::client {

constexpr std::string_view kFilesystemType = "fuse.tusk";

struct MountedAt {
  std::filesystem::path mountpoint;
  std::string device;  // MAJOR:MINOR
  std::string type;    // "fuse.tusk"
  std::string source;
};

// Parses /proc/self/mountinfo (proc(5)); lines that make no sense are left out.
[[nodiscard]] std::vector<MountedAt> parse_mount_table(std::string_view text);

// The topmost mount on exactly this path, which must be absolute and normal; what autofs puts there until it
// mounts does not count.
[[nodiscard]] std::optional<MountedAt> mounted_at(const std::filesystem::path& path);

// What `path`, absolute and normal, lies on.
[[nodiscard]] std::optional<MountedAt> mount_of(const std::filesystem::path& path);

// Absolute and free of symbolic links. What is mounted at the end of it is not touched: it may be a mount
// that hangs.
[[nodiscard]] std::filesystem::path resolve_mountpoint(const std::filesystem::path& path);

}  // namespace tusk::client
