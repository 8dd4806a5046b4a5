// Which signals of a waiting thread end its wait, as /proc/TID/status tells them.
//
// The kernel sends FUSE's INTERRUPT for every signal, also for those that a local file system would let wait:
// interval timers of profilers and language runtimes, SIGCHLD, stops (fuse(4), "FUSE_INTERRUPT"). A program
// expects EINTR from a file operation for none of these. Two kinds end a wait: signals that kill the process,
// and SIGINT, SIGTERM, SIGQUIT and SIGHUP, which ask it to end, also if it catches them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace tusk::client {

// Bit n - 1 stands for signal n (proc_pid_status(5)).
struct SignalSets {
  std::uint64_t pending = 0;  // for the thread or its process
  std::uint64_t blocked = 0;
  std::uint64_t ignored = 0;
  std::uint64_t caught = 0;

  // Of the text of /proc/TID/status; nullopt: a set is missing.
  [[nodiscard]] static std::optional<SignalSets> parse(std::string_view status);
  // A signal ends the process as soon as its call returns. The kernel itself does not see that (and sends no
  // SIGKILL to its threads) where another signal was pending before.
  [[nodiscard]] bool kill() const;
  // A signal that the process catches asks it to end.
  [[nodiscard]] bool ask_to_end() const;

  // Pending, and not held back.
  [[nodiscard]] std::uint64_t comes() const;
};

enum class ThreadVerdict : std::uint8_t {
  kWaits,
  kAsked,    // SignalSets::ask_to_end()
  kKilled,   // by a signal
  kGone,     // there is no such thread any more
  kExits,    // by itself
  kUnknown,  // a thread of another PID namespace (FUSE says 0), or one that is hidden from this process
};

// Of a thread that may be exiting, by the text of /proc/TID/stat. The kernel clears the signal that killed it
// from the sets before it closes the files of the process.
[[nodiscard]] ThreadVerdict verdict_of_stat(std::string_view stat);

// Reads /proc. Takes some 20 us, never waits: it needs no lock that a page fault may hold.
[[nodiscard]] ThreadVerdict verdict_of(pid_t thread);

}  // namespace tusk::client
