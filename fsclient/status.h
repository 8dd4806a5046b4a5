// What a mount's daemon tells about itself, and the socket it tells it on.
//
// Every daemon listens on a Unix socket of its own in control_directory(): nobody needs to touch the
// mount, whose server may be out of reach. A connection sends one line and reads the answer to its end:
//
//   status   one JSON object, see below
//   flush    lines {"pending_bytes": N, "uncommitted": CHANGES, "connected": true or false, "silent": true or
//            false} about once a second, the last one when all is on the server's disk: {"pending_bytes": 0,
//            "flushed": true, "untold": N, "untold_last": TEXT}: how many changes programs were told are
//            done, could not be done, and nobody has been told of. "flushed" is false if the mount ended
//            before.
//   drop     {"lost_bytes": N}; then the mount is taken from its users and the daemon ends, without waiting
//            for the server
//   pin PATH, unpin PATH
//            PATH is relative to the mount, as escape_path() writes it. {"ok": true}, or {"ok": false,
//            "error": why}
//
// Keys of `status` (stable: keys are added, never changed; times in seconds, sizes in bytes):
//
//   version            of the daemon
//   pid
//   mountpoint
//   server             "tusk://HOST:PORT/EXPORT", without token
//   server_name        as the server calls itself
//   server_key         fingerprint, base64url
//   client_key         the same of this client's key, for `tuskd allow`
//   read_only          true or false
//   identity           "real" or "user"
//   priority           "normal" or "background": yields to all others on the line
//   connected          true while the connection stands, also while nothing is heard on it: see silent_s
//   refused            true while the server answers but does not let this mount in any more
//   key_changed        true if that is since it has another key than it had: down_because says which
//   down_because       while not connected: the reason, or ""
//   silent_s           for how long the server has owed an answer and sent nothing; 0 when it owes none
//   silent             true when that is longer than losses explain: the server cannot be reached, or hangs
//   mounted_s          since the mount
//   path               object: address, rtt_s, rtt_min_s, queueing_delay_s, send_bytes_per_s,
//                      receive_bytes_per_s, loss (fraction), cipher (that of packets), mtu, bytes_sent,
//                      bytes_received, packets_sent, packets_received, packets_lost, connections,
//                      reconnects, calls_in_flight
//   read_bytes         by programs, from the daemon; the kernel's own cache is in front of it
//   read_cached_bytes  of these, without waiting for the server
//   fetched_bytes      file data from the server
//   fetched_ahead_bytes  of these, before a program asked
//   written_bytes      by programs
//   sent_bytes         file data the server has taken
//   pending_bytes      written by programs and not on the server yet
//   lookups            names and attributes asked for
//   lookups_cached     of these, without asking the server
//   operations         of all kinds
//   cache_used_bytes, cache_max_bytes
//   disk_cache         null without -o cache=DIR, else an object: folder, used_bytes, max_bytes,
//                      pinned_bytes, blocks; since the mount: hits (blocks), hit_bytes, stored_bytes,
//                      evicted_bytes, skipped_bytes (not stored: the disk was too slow, or full), damaged
//                      (blocks that were not what had been written); pending_bytes (on their way to the
//                      disk), loading (true until what is there from before is known), problem (why nothing
//                      is stored, or ""), pins (paths)
//   inodes             that the kernel knows
//   coherence          what cached facts rest on: "leases (fanotify)", "leases (inotify)" or "lifetimes"
//   leases             files and directories whose attributes are under a lease
//   grace_s            for how long changes may still wait for mounts that were there before the server
//   crashed errors             how often something was lost or failed in the background last_error the last
//   of these, or ""
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fsclient/filesystem.h"
#include "proto/base/result.h"
#include "proto/io/fd.h"
#include "proto/rpc/channel.h"

namespace tusk::client {

// Facts about a mount that do not change while it lives.
struct MountFacts {
  std::string version;
  std::filesystem::path mountpoint;
  std::string server;
  std::string server_name;
  std::string server_key;
  bool read_only = false;
  bool identity_real = false;
  bool background = false;
  TimePoint mounted_at{};
};

[[nodiscard]] std::string status_json(const MountFacts& facts, const rpc::ChannelStats& path,
                                      Filesystem& filesystem, TimePoint now);
// The same for people; `json` as status_json() made it. kMalformed if it is no such thing.
[[nodiscard]] Result<std::string> status_text(std::string_view json);

// Where the sockets are: /run/tusk for root, $XDG_RUNTIME_DIR/tusk, else /tmp/tusk-UID. 0700.
[[nodiscard]] std::filesystem::path control_directory();
// What lies there is believed only where nobody else can have put it: EPERM with a sentence if the directory
// is another user's, or others may enter it. Good if there is none.
[[nodiscard]] Result<void> check_control_directory(
    const std::filesystem::path& directory = control_directory());
// Of the newest daemon for this place (resolved with resolve_mountpoint()). An earlier one may still be
// busy: its mount was taken away lazily, or its data is on its way.
[[nodiscard]] std::optional<std::filesystem::path> control_socket(
    const std::filesystem::path& mountpoint, const std::filesystem::path& directory = control_directory());
// Of all daemons of this user, dead ones included. None where check_control_directory() fails.
[[nodiscard]] std::vector<std::filesystem::path> control_sockets(
    const std::filesystem::path& directory = control_directory());

// The daemon's side.
class ControlServer {
 public:
  struct Handlers {
    std::function<std::string()> status;  // JSON
    std::function<ByteCount()> pending;   // bytes
    // Changes that may not be on the server's disk.
    std::function<std::size_t()> uncommitted = [] { return std::size_t{0}; };
    std::function<rpc::ChannelStats()> path;
    std::function<void(Done<void>)> flush;
    std::function<UntoldFailures::Value()> untold;
    std::function<void()> drop;
    std::function<Result<void>(const std::string& path)> pin;
    std::function<Result<void>(const std::string& path)> unpin;
  };

  // Makes a socket of this daemon's own, and removes those of dead daemons.
  [[nodiscard]] static Result<std::unique_ptr<ControlServer>> start(
      const std::filesystem::path& mountpoint, Handlers handlers,
      const std::filesystem::path& directory = control_directory());
  // Removes the socket; connections end.
  virtual ~ControlServer() = default;
};

// The command's side: sends `command`, calls `line` for every line of the answer; ends with the
// connection. kUnreachable when no daemon listens there, kTimedOut when it hangs.
[[nodiscard]] Result<void> control(const std::filesystem::path& socket, std::string_view command,
                                   const std::function<void(std::string_view)>& line);
// The process that listens there, also when it hangs; 0 if it is hidden in another PID namespace.
[[nodiscard]] Result<pid_t> daemon_at(const std::filesystem::path& socket);

// A connection to what listens at `socket`. EPERM with a sentence if the socket's directory, or the listening
// process, is not this user's: another user could have made it first. kUnreachable as above.
[[nodiscard]] Result<Fd> connect_to_daemon(const std::filesystem::path& socket);

// Under which name a socket was bound that is now at `socket`.
[[nodiscard]] std::filesystem::path bound_name(const std::filesystem::path& socket);

// SIGKILL to the daemon that listens at `socket`, and to no other process: /proc must show that the process
// holds this very socket. EPERM, ESRCH.
[[nodiscard]] Result<void> kill_daemon(const std::filesystem::path& socket);

}  // namespace tusk::client
