#include "tests/system/wan/control.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tusk::wan {
namespace {

constexpr std::size_t kClientsMax = 16;
constexpr std::size_t kLineMax = 4096;
constexpr std::size_t kReplyMax = 64 * 1024;
constexpr int kBacklog = 16;

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{.sun_family = AF_UNIX};
  if (path.size() >= sizeof address.sun_path) return fail(ErrorCode::kBadConfig, path + ": path too long");
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

}  // namespace

Result<ControlSocket> ControlSocket::listen(const std::string& path) {
  TUSK_ASSIGN(const sockaddr_un address, address_of(path));
  Descriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener) return fail_errno("open a socket");
  if (bind(listener.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener.number(), kBacklog) != 0) {
    return fail_errno("listen at " + path);
  }
  return ControlSocket(path, std::move(listener));
}

ControlSocket::ControlSocket(std::string path, Descriptor listener)
    : path_(std::move(path)), listener_(std::move(listener)) {}

ControlSocket::ControlSocket(ControlSocket&& other) noexcept
    : path_(std::move(other.path_)),
      listener_(std::move(other.listener_)),
      clients_(std::move(other.clients_)) {
  other.path_.clear();
}

ControlSocket::~ControlSocket() {
  if (!path_.empty()) unlink(path_.c_str());
}

std::vector<pollfd> ControlSocket::interests() const {
  std::vector<pollfd> events{{.fd = listener_.number(), .events = POLLIN}};
  for (const Client& client : clients_) events.push_back({.fd = client.socket.number(), .events = POLLIN});
  return events;
}

void ControlSocket::serve(const CommandHandler& handler) {
  accept_all();
  clients_.remove_if([&handler](Client& client) { return !serve_client(client, handler); });
}

void ControlSocket::accept_all() {
  while (true) {
    Descriptor socket(accept4(listener_.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) return;
    if (clients_.size() < kClientsMax) clients_.push_back({std::move(socket), {}});
  }
}

bool ControlSocket::serve_client(Client& client, const CommandHandler& handler) {
  char buffer[kLineMax];
  const ssize_t size = recv(client.socket.number(), buffer, sizeof buffer, 0);
  if (size < 0) return errno == EAGAIN || errno == EINTR;
  if (size == 0) return false;
  client.input.append(buffer, static_cast<std::size_t>(size));
  for (std::size_t end = client.input.find('\n'); end != std::string::npos; end = client.input.find('\n')) {
    const std::string reply = handler(std::string_view(client.input).substr(0, end)) + "\n";
    client.input.erase(0, end + 1);
    // A client that does not read its replies is not waited for.
    if (send(client.socket.number(), reply.data(), reply.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(reply.size())) {
      return false;
    }
  }
  return client.input.size() <= kLineMax;
}

Result<std::string> send_command(const std::string& path, const std::string& command) {
  TUSK_ASSIGN(const sockaddr_un address, address_of(path));
  const Descriptor socket_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket_fd ||
      connect(socket_fd.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return fail_errno("connect to " + path);
  }
  const std::string line = command + "\n";
  if (send(socket_fd.number(), line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) {
    return fail_errno("send to " + path);
  }
  std::string reply;
  while (!reply.ends_with('\n') && reply.size() < kReplyMax) {
    char buffer[4096];
    const ssize_t size = recv(socket_fd.number(), buffer, sizeof buffer, 0);
    if (size <= 0) return fail(ErrorCode::kConnectionLost, "no answer from " + path);
    reply.append(buffer, static_cast<std::size_t>(size));
  }
  reply.pop_back();
  return reply;
}

}  // namespace tusk::wan
