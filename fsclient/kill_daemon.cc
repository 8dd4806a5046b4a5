// Ends a mount's daemon that does not end by itself.
//
// The pid of a socket's peer is that of the process that called listen(): it may be another process by now. A
// pidfd does not change its process, and /proc says whether that process holds the socket.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "fsclient/status.h"
#include "proto/io/fd.h"

namespace tusk::client {
namespace {

namespace fs = std::filesystem;

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5
#endif

Result<Fd> pidfd_of_peer(const Fd& connection, pid_t pid) {
  int number = -1;
  socklen_t size = sizeof number;
  if (::getsockopt(connection.number(), SOL_SOCKET, SO_PEERPIDFD, &number, &size) == 0) return Fd(number);
  Fd opened(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (opened.number() < 0) return fail_errno(fmt::format("pidfd_open of process {}", pid));
  return opened;
}

// "socket:[INODE]" of the listening socket bound to `name`, as that process's network namespace knows it.
std::optional<std::string> listening_socket(pid_t pid, const fs::path& name) {
  std::ifstream table(fmt::format("/proc/{}/net/unix", pid));
  for (std::string line; std::getline(table, line);) {
    // Num RefCount Protocol Flags Type St Inode Path
    std::istringstream words(line);
    std::string number, references, protocol, flags, type, state, inode, path;
    words >> number >> references >> protocol >> flags >> type >> state >> inode >> std::ws;
    std::getline(words, path);
    constexpr std::string_view kAcceptsConnections = "00010000";
    if (flags == kAcceptsConnections && path == name) return fmt::format("socket:[{}]", inode);
  }
  return std::nullopt;
}

bool holds(pid_t pid, const std::string& socket) {
  std::error_code failed;
  fs::directory_iterator entry(fmt::format("/proc/{}/fd", pid), failed);
  for (const fs::directory_iterator end; !failed && entry != end; entry.increment(failed)) {
    std::error_code unread;
    if (fs::read_symlink(entry->path(), unread) == socket) return true;
  }
  return false;
}

// Once it has ended, its number may be another process's, which /proc was asked about.
bool has_ended(const Fd& process) {
  pollfd ended{.fd = process.number(), .events = POLLIN};
  return ::poll(&ended, 1, 0) != 0;
}

}  // namespace

Result<void> kill_daemon(const fs::path& socket) {
  TUSK_ASSIGN(const Fd connection, connect_to_daemon(socket));
  ucred listener{};
  socklen_t size = sizeof listener;
  if (::getsockopt(connection.number(), SOL_SOCKET, SO_PEERCRED, &listener, &size) != 0)
    return fail_errno("control socket " + socket.string());
  const pid_t pid = listener.pid;
  if (pid <= 0)
    return fail(from_errno(ESRCH), "the daemon is in another PID namespace and cannot be ended from here");
  TUSK_ASSIGN(const Fd process, pidfd_of_peer(connection, pid));
  const std::optional<std::string> listening = listening_socket(pid, bound_name(socket));
  if (!listening || !holds(pid, *listening) || has_ended(process))
    return fail(from_errno(EPERM),
                fmt::format("process {} is not the daemon at {}: it is not killed", pid, socket.string()));
  if (::syscall(SYS_pidfd_send_signal, process.number(), SIGKILL, nullptr, 0) != 0)
    return fail_errno(fmt::format("kill process {}", pid));
  return {};
}

}  // namespace tusk::client
