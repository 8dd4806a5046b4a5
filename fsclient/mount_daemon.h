// The process behind a mount: connects, mounts, serves, and at the end brings everything to the server.
#pragma once

#include <signal.h>

#include <functional>
#include <string>

#include "fsclient/mount_settings.h"
#include "proto/base/result.h"

namespace tusk::client {

// Signals that end a mount.
constexpr int kEndingSignals[] = {SIGTERM, SIGINT, SIGHUP};
[[nodiscard]] sigset_t ending_signals();

struct MountEvents {
  std::function<void()> live;  // programs can use it
  // By a signal, before anything is mounted. Ends the process: what it waits for, a name server or the
  // server, cannot be woken. On a thread of its own.
  std::function<void()> interrupted;
};

// Runs until the mount is gone. Blocks kEndingSignals in the calling thread for good: they flush and
// unmount, a second one does not wait any longer. Errors are those of getting there, kCancelled if a signal
// came while it was being mounted and it is gone again; call explain() for people.
[[nodiscard]] Result<void> run_mount(const MountSettings& settings, const MountEvents& events);

// One line: what failed and what to do about it.
[[nodiscard]] std::string explain(const Error& error, const MountSettings& settings);

}  // namespace tusk::client
