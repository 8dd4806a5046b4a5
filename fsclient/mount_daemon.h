// The process behind a mount: connects, mounts, serves, and at the end brings everything to the server.
#pragma once

#include <functional>
#include <string>

#include "fsclient/mount_settings.h"
#include "proto/base/result.h"

namespace tusk::client {

// Runs until the mount is gone; calls `live` when programs can use it. Blocks SIGTERM, SIGINT and
// SIGHUP in the calling thread for good: they flush and unmount, a second one does not wait any longer.
// Errors are those of getting there; call explain() for people.
[[nodiscard]] Result<void> run_mount(const MountSettings& settings, const std::function<void()>& live);

// One line: what failed and what to do about it.
[[nodiscard]] std::string explain(const Error& error, const MountSettings& settings);

}  // namespace tusk::client
