// What a user said about a mount: the URL, the place, and -o options as mount(8) knows them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/base/result.h"
#include "proto/base/strong_int.h"
#include "proto/base/time.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/lanes.h"
#include "proto/rpc/mount_url.h"

namespace tusk::client {

enum class IdentityWish { kAuto, kReal, kUser };

struct MountSettings {
  rpc::MountUrl url;
  std::string url_file;  // where the URL is read from; empty: on the command line
  std::filesystem::path mountpoint;
  std::filesystem::path state_directory;
  bool foreground = false;

  // -o
  bool read_only = false;
  bool allow_other = false;
  bool acls = true;  // where owners are real
  bool auto_unmount = true;
  IdentityWish identity = IdentityWish::kAuto;
  std::optional<uid_t> uid;  // as whom the server's user appears; implies identity=user
  std::optional<gid_t> gid;
  mode_t umask = 0;
  ByteCount cache_bytes = 0;           // 0: cache_bytes_default()
  std::filesystem::path cache_folder;  // empty: no disk cache
  ByteCount cache_folder_bytes = 0;    // 0: DiskFolder::default_size()
  std::optional<Duration> attr_timeout;
  rpc::OutagePolicy outage;
  std::chrono::seconds connect_timeout{10};
  bool background = false;
  unsigned connections = 1;  // 0: as many as are worth having
  bool log = true;
  std::vector<std::string> kernel_options;  // "nosuid", ...
};

// 1 GiB, or an eighth of the machine's memory if that is less; at least 64 MiB.
// At most so much memory for file data, and so much until the path is known to need more.
[[nodiscard]] ByteCount cache_bytes_default();
constexpr ByteCount kCacheBytesFirst = 128 * 1024 * 1024;

// "122 B", "1.4 GiB".
[[nodiscard]] std::string size_text(double bytes);
// "64M", "1GiB", "300000".
[[nodiscard]] Result<ByteCount> parse_size(std::string_view text);

// Takes in a comma-separated list. What mount(8) and fstab need for themselves (x-*, _netdev, nofail,
// noauto, user, ...) is ignored. kBadConfig names the option, and a known one like it.
[[nodiscard]] Result<void> apply_options(std::string_view list, MountSettings& settings);

// What no option says alone: kBadConfig for those that make no sense together.
[[nodiscard]] Result<void> check_options(const MountSettings& settings);

// Names of the options with values and a sentence about each, for --help and completions.
[[nodiscard]] std::string options_help();

}  // namespace tusk::client
