// The command `tusk`: mount, umount, status, warm, pin, unpin.
#pragma once

#include <string>
#include <string_view>

namespace tusk::client {

// Exit codes besides 0; those of mount(8) where it has one.
constexpr int kUsage = 1;         // a command line that cannot be understood
constexpr int kNoStatus = 2;      // a status that cannot be had
constexpr int kInterrupted = 8;   // a mount that a signal ended before it was made
constexpr int kMountFailed = 32;  // or an unmount
// Unmounted here, but still in use elsewhere, or not all that programs changed could be done; not all of it
// is in the disk cache.
constexpr int kPartlyDone = 64;

// `built_from`: what --version says besides the version.
[[nodiscard]] int run_command_line(int argc, char** argv, std::string_view built_from);

// Says what happened on stderr; returns `code`.
int complain(int code, const std::string& text);

}  // namespace tusk::client
