// The command `tusk`: mount, umount, status.
#pragma once

namespace tusk::client {

// Exit codes: 0, 1 for a command line that cannot be understood, 32 for a mount or unmount that failed
// (as mount(8) has them), 2 for a status that cannot be had.
[[nodiscard]] int run_command_line(int argc, char** argv);

}  // namespace tusk::client
