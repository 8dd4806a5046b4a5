// The command `tusk umount`: brings what programs wrote to the server, unmounts, and sees the daemon end.
#pragma once

#include <filesystem>

namespace tusk::client {

enum class UmountWay {
  kPlain,  // not while it is in use; returns when everything is on the server and the daemon is gone
  kLazy,   // out of the tree at once; the daemon brings the rest to the server in the background
  kForce,  // at once, with the daemon: what is not on the server is lost
};

// The exit code. `place` may also be where a mount was: its daemon may still have data to send.
[[nodiscard]] int umount_at(const std::filesystem::path& place, UmountWay way);

}  // namespace tusk::client
