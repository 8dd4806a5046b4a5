#include "fsclient/signal_sets.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <string>

#include "proto/io/fd.h"

namespace tusk::client {
namespace {

constexpr std::uint64_t bit(int signal) { return 1ull << (signal - 1); }
template <class... Signals>
constexpr std::uint64_t bits(Signals... signals) {
  return (bit(signals) | ...);
}

constexpr std::uint64_t kAsksToEnd = bits(SIGINT, SIGTERM, SIGQUIT, SIGHUP);
// By default (signal(7)): these are ignored, or they stop or continue the process.
constexpr std::uint64_t kKillsNobody =
    bits(SIGCHLD, SIGURG, SIGWINCH, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU);

constexpr std::uint64_t kExiting = 0x4;  // PF_EXITING (linux/sched.h)

std::optional<std::uint64_t> hexadecimal_after(std::string_view text, std::string_view label) {
  const auto at = text.find(label);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + label.size());
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::optional<std::string> read_proc(pid_t thread, const char* name) {
  if (thread == 0) return std::nullopt;
  const Fd file(::open(("/proc/" + std::to_string(thread) + "/" + name).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return std::nullopt;
  std::array<char, 4096> text;  // enough for either
  const ssize_t size = ::read(file.number(), text.data(), text.size());
  if (size <= 0) return std::nullopt;
  return std::string(text.data(), static_cast<std::size_t>(size));
}

}  // namespace

std::optional<SignalSets> SignalSets::parse(std::string_view status) {
  const auto thread = hexadecimal_after(status, "\nSigPnd:");
  const auto process = hexadecimal_after(status, "\nShdPnd:");
  const auto blocked = hexadecimal_after(status, "\nSigBlk:");
  const auto ignored = hexadecimal_after(status, "\nSigIgn:");
  const auto caught = hexadecimal_after(status, "\nSigCgt:");
  if (!thread || !process || !blocked || !ignored || !caught) return std::nullopt;
  return SignalSets{*thread | *process, *blocked, *ignored, *caught};
}

std::uint64_t SignalSets::comes() const { return pending & ~(blocked & ~bit(SIGKILL)); }

bool SignalSets::kill() const { return (comes() & ~caught & ~ignored & ~kKillsNobody) != 0; }

bool SignalSets::ask_to_end() const { return (comes() & caught & kAsksToEnd) != 0; }

ThreadVerdict verdict_of_stat(std::string_view stat) {
  // The command's name, the second field, may hold anything; the last ")" ends it.
  constexpr int kFlags = 9;
  constexpr int kExitCode = 52;
  const auto name_end = stat.rfind(')');
  if (name_end == std::string_view::npos) return ThreadVerdict::kUnknown;
  stat.remove_prefix(name_end + 1);
  std::uint64_t flags = 0;
  std::uint64_t exit_code = 0;
  for (int field = 3; field <= kExitCode && !stat.empty(); ++field) {
    stat.remove_prefix(std::min(stat.find_first_not_of(" \n"), stat.size()));
    const std::string_view value = stat.substr(0, stat.find_first_of(" \n"));
    if (field == kFlags) std::from_chars(value.data(), value.data() + value.size(), flags);
    if (field == kExitCode) std::from_chars(value.data(), value.data() + value.size(), exit_code);
    stat.remove_prefix(value.size());
  }
  constexpr std::uint64_t kSignal = 0x7f;  // as wait(2) tells it
  if ((flags & kExiting) == 0) return ThreadVerdict::kWaits;
  return (exit_code & kSignal) != 0 ? ThreadVerdict::kKilled : ThreadVerdict::kExits;
}

ThreadVerdict verdict_of(pid_t thread) {
  const auto status = read_proc(thread, "status");
  const auto sets = status ? SignalSets::parse(*status) : std::nullopt;
  // A mount of /proc may hide it (hidepid).
  if (!sets) {
    const bool gone = thread != 0 && ::kill(thread, 0) != 0 && errno == ESRCH;
    return gone ? ThreadVerdict::kGone : ThreadVerdict::kUnknown;
  }
  if (sets->kill()) return ThreadVerdict::kKilled;
  // Its memory goes first where a process exits.
  if (status->find("\nVmSize:") == std::string::npos) {
    const auto stat = read_proc(thread, "stat");
    const ThreadVerdict exit = stat ? verdict_of_stat(*stat) : ThreadVerdict::kUnknown;
    if (exit != ThreadVerdict::kWaits) return exit;
  }
  return sets->ask_to_end() ? ThreadVerdict::kAsked : ThreadVerdict::kWaits;
}

}  // namespace tusk::client
