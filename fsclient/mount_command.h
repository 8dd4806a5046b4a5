// `tusk mount`: in the foreground, or by a daemon that it waits for.
#pragma once

#include "fsclient/mount_settings.h"

namespace tusk::client {

// Returns when the mount can be used, or, in the foreground, when it has ended. The exit code.
[[nodiscard]] int mount_at(MountSettings settings);

}  // namespace tusk::client
