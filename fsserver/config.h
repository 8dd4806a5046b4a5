// tuskd's configuration file: what is exported, to whom, where, within which limits.
//
//   state_dir = "/var/lib/tusk"
//   listen = ["[::]:8875"]
//   sandbox = true                  # forbid system calls that no file server needs
//   watch = "auto"                  # how changes by local programs are noticed: "fanotify", "inotify",
//                                   # "none" (no leases), or the best of them that can be had
//
//   [limits]                        # all optional
//   workers = 8                     # threads that touch disks
//   mounts = 4096                   # at once
//   connections = 4096              # at once
//   reply_memory_mib = 1024         # file data on its way to clients
//   request_memory_mib = 2048       # file data on its way from clients
//   attr_lifetime_ms = 1000         # how long clients trust attributes without asking
//   session_keep_s = 600            # how long a mount may be away and keep its open files and locks
//
//   [[export]]
//   name = "data"                   # in tusk://HOST/data
//   path = "/srv/data"
//   access = "rw"                   # or "ro", the default
//   clients = ["FINGERPRINT", ...]  # enter without a token
//   as = "www-data"                 # whom the server acts as; only when tuskd runs as root
//   setuid = false                  # clients may make set-user-ID programs and device nodes
//
// Unknown keys are errors. Pure: touches no file and no network; what only a machine can tell, such as
// whether there is a directory, is asked of a function.
#pragma once

#include <chrono>
#include <cstdint>
#include <expected>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fsserver/change_watch.h"
#include "fsserver/export.h"
#include "fsserver/toml_reader.h"
#include "fsserver/worker_pool.h"
#include "proto/base/strong_int.h"
#include "proto/io/address.h"
#include "proto/rpc/mount_url.h"

namespace tusk::server {

constexpr std::size_t kExportsMax = 1000;
constexpr std::size_t kListenAddressesMax = 64;

struct ServerLimits {
  unsigned workers = kWorkersDefault;
  std::size_t mounts = 4096;
  std::uint32_t connections = 4096;
  ByteCount reply_memory_bytes = ByteCount{1} << 30;
  ByteCount request_memory_bytes = ByteCount{2} << 30;
  std::uint32_t attr_lifetime_ms = 1000;
  std::chrono::seconds session_keep{600};

  friend bool operator==(const ServerLimits&, const ServerLimits&) = default;
};

struct ServerConfig {
  std::filesystem::path state_dir;  // empty: the default one
  std::vector<io::Address> listen = {io::Address::any(rpc::kDefaultPort)};
  WatchWish watch = WatchWish::kAuto;
  bool sandbox = true;
  ServerLimits limits;
  std::vector<ExportSettings> exports;
};

// Complains about an export, with the reader that it came from.
using ExportCheck = std::function<void(const ExportSettings&, TomlReader&)>;

// All that is wrong at once, not only the first. `check` is called for each export.
[[nodiscard]] std::expected<ServerConfig, Complaints> parse_config(std::string_view text,
                                                                   const ExportCheck& check = {});

// auto, fanotify, inotify, none; nullopt: another word.
[[nodiscard]] std::optional<WatchWish> watch_wish(std::string_view word);

// The names of what differs and is read only when a server starts, for a sentence: "listen, limits". Empty:
// nothing.
[[nodiscard]] std::string needs_restart(const ServerConfig& running, const ServerConfig& fresh);

}  // namespace tusk::server
