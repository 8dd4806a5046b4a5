// The socket of status.h, both sides.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <list>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "fsclient/disk_pins.h"
#include "fsclient/private_directory.h"
#include "fsclient/status.h"
#include "proto/io/fd.h"

namespace tusk::client {
namespace {

constexpr std::size_t kCommandMax = 16 * 1024;  // a path of the longest kind, every byte of it escaped
constexpr std::size_t kLineMax = 1024 * 1024;
constexpr std::size_t kConnectionsMax = 16;  // commands being answered at once
constexpr int kCommandTimeoutMs = 2000;      // a command that says nothing is dropped
constexpr int kProgressMs = 1000;
constexpr std::chrono::milliseconds kNothingLeftPause{100};  // no descriptor, no memory
constexpr std::chrono::milliseconds kLastLineMax{250};       // at the daemon's end
constexpr timeval kAnswerMax{.tv_sec = 5, .tv_usec = 0};     // a flush tells more often how far it is
constexpr std::string_view kSuffix = ".sock";

Result<sockaddr_un> address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.native().size() >= sizeof address.sun_path)
    return fail(from_errno(ENAMETOOLONG), "control socket " + path.string());
  std::memcpy(address.sun_path, path.c_str(), path.native().size() + 1);
  return address;
}

// Of the last system call.
std::unexpected<Error> no_answer(const std::filesystem::path& path) {
  if (errno == EAGAIN || errno == EWOULDBLOCK) return fail(ErrorCode::kTimedOut, "the mount's daemon hangs");
  return fail_errno("control socket " + path.string());
}

// Whose process is at the other end.
Result<ucred> peer_of(const Fd& connection, const std::filesystem::path& path) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(connection.number(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return fail_errno("control socket " + path.string());
  return peer;
}

Result<Fd> connect_to(const std::filesystem::path& path) {
  if (const Result<void> ours = check_private_directory(path.parent_path()); !ours) {
    if (ours.error().code == from_errno(ENOENT)) return fail(ErrorCode::kUnreachable, "no mount daemon");
    return std::unexpected(ours.error());
  }
  TUSK_ASSIGN(const sockaddr_un address, address_of(path));
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.number() < 0) return fail_errno("socket");
  for (const int direction : {SO_RCVTIMEO, SO_SNDTIMEO})
    ::setsockopt(socket.number(), SOL_SOCKET, direction, &kAnswerMax, sizeof kAnswerMax);
  if (::connect(socket.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno == ENOENT || errno == ECONNREFUSED) return fail(ErrorCode::kUnreachable, "no mount daemon");
    return no_answer(path);
  }
  TUSK_ASSIGN(const ucred listener, peer_of(socket, path));
  if (listener.uid != ::geteuid())
    return fail(from_errno(EPERM),
                fmt::format("control socket {}: a process of another user (uid {}) listens", path.string(),
                            listener.uid));
  return socket;
}

bool send_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

// False only when nobody can ever answer there again: a daemon that is too busy to accept is alive.
bool is_alive(const std::filesystem::path& path) {
  const Result<sockaddr_un> address = address_of(path);
  const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!address || socket.number() < 0) return true;
  return ::connect(socket.number(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) == 0 ||
         errno != ECONNREFUSED;
}

void remove_dead_sockets(const std::filesystem::path& directory) {
  for (const std::filesystem::path& socket : control_sockets(directory))
    if (!is_alive(socket)) ::unlink(socket.c_str());
}

// What the sockets of one mount point begin with: FNV-1a of it, and its last component for people.
std::string socket_prefix(const std::filesystem::path& mountpoint) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : mountpoint.native()) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  std::string name = mountpoint.filename().string().substr(0, 16);
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return fmt::format("{}-{:016x}-", name, hash);
}

// No two daemons share a name, so one that ends late removes nobody else's; and the newest sorts last.
std::string socket_name(const std::filesystem::path& mountpoint) {
  timespec since_boot{};
  ::clock_gettime(CLOCK_BOOTTIME, &since_boot);
  const auto nanoseconds = static_cast<std::uint64_t>(since_boot.tv_sec) * 1'000'000'000u +
                           static_cast<std::uint64_t>(since_boot.tv_nsec);
  return fmt::format("{}{:016x}{}", socket_prefix(mountpoint), nanoseconds, kSuffix);
}

// A socket appears under its name only once it listens: until then it looks like a dead one.
Result<Fd> listen_at(const std::filesystem::path& path) {
  const std::filesystem::path unfinished = bound_name(path);
  TUSK_ASSIGN(const sockaddr_un address, address_of(unfinished));
  Fd listening(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (listening.number() < 0) return fail_errno("socket");
  if (::bind(listening.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listening.number(), static_cast<int>(kConnectionsMax)) != 0 ||
      ::rename(unfinished.c_str(), path.c_str()) != 0) {
    const auto error = fail_errno("control socket " + path.string());
    ::unlink(unfinished.c_str());
    return error;
  }
  return listening;
}

class Server final : public ControlServer {
 public:
  Server(std::filesystem::path path, Fd socket, Handlers handlers)
      : path_(std::move(path)), socket_(std::move(socket)), handlers_(std::move(handlers)) {
    thread_ = std::thread([this] { accept_all(); });
  }

  ~Server() override {
    stopping_ = true;
    ::shutdown(socket_.number(), SHUT_RDWR);
    thread_.join();
    // Who is still being told something hears the end of it.
    const auto deadline = std::chrono::steady_clock::now() + kLastLineMax;
    while (std::ranges::any_of(connections_, [](const Connection& one) { return !one.ended; }) &&
           std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (Connection& connection : connections_) {
      ::shutdown(connection.socket.number(), SHUT_RDWR);
      connection.thread.join();
    }
    ::unlink(path_.c_str());
  }

 private:
  struct Connection {
    Fd socket;
    std::atomic<bool> ended{false};
    std::thread thread;
  };

  void accept_all() {
    while (true) {  // to the end of those who have come before the end
      Fd socket(::accept4(socket_.number(), nullptr, nullptr, SOCK_CLOEXEC));
      if (socket.number() < 0) {
        if (stopping_ || !may_pass(errno)) return;
        continue;
      }
      nothing_left_ = false;
      if (!is_ours(socket)) continue;
      std::erase_if(connections_, [](Connection& connection) {
        if (connection.ended) connection.thread.join();
        return connection.ended.load();
      });
      if (connections_.size() >= kConnectionsMax) continue;
      answer_on_a_thread(std::move(socket));
    }
  }

  // Root may ask, too, and nobody else can reach the socket.
  bool is_ours(const Fd& socket) const {
    const Result<ucred> peer = peer_of(socket, path_);
    return peer && (peer->uid == ::geteuid() || peer->uid == 0);
  }

  // Whether the next accept() may succeed where this one has failed; where nothing is left to accept it with,
  // after a while.
  bool may_pass(int error) {
    if (error == EINTR || error == ECONNABORTED) return true;
    if (error != EMFILE && error != ENFILE && error != ENOMEM && error != ENOBUFS) return false;
    if (!std::exchange(nothing_left_, true))
      spdlog::warn("commands wait: {}", fail_errno("accept").error().message());
    std::this_thread::sleep_for(kNothingLeftPause);
    return true;
  }

  // Without a thread the command gets no answer: nothing that the mount still has to send hangs on that.
  void answer_on_a_thread(Fd socket) {
    Connection& connection = connections_.emplace_back();
    connection.socket = std::move(socket);
    try {
      connection.thread = std::thread([this, &connection] {
        serve(connection.socket.number());
        ::shutdown(connection.socket.number(), SHUT_RDWR);
        connection.ended = true;
      });
    } catch (const std::system_error& error) {
      spdlog::warn("a command is not answered: {}", error.what());
      connections_.pop_back();
    }
  }

  void serve(int fd) {
    const std::string line = receive_line(fd);
    const std::string_view command = std::string_view(line).substr(0, line.find(' '));
    const std::string_view argument =
        std::string_view(line).substr(std::min(line.size(), command.size() + 1));
    if (command == "status") send_all(fd, handlers_.status() + "\n");
    if (command == "flush") flush(fd);
    // Answered first: what follows ends this connection, too.
    if (command == "drop" && send_all(fd, fmt::format("{{\"lost_bytes\": {}}}\n", handlers_.pending())))
      handlers_.drop();
    if (command == "pin") send_all(fd, outcome_of(handlers_.pin, argument));
    if (command == "unpin") send_all(fd, outcome_of(handlers_.unpin, argument));
  }

  // Without its end; "" for what is none.
  static std::string receive_line(int fd) {
    std::string line;
    while (line.size() < kCommandMax) {
      char buffer[4096];
      pollfd ready{.fd = fd, .events = POLLIN};
      if (::poll(&ready, 1, kCommandTimeoutMs) <= 0) return {};
      const ssize_t size = ::recv(fd, buffer, sizeof buffer, 0);
      if (size <= 0) return {};
      line.append(buffer, static_cast<std::size_t>(size));
      if (const auto end = line.find('\n'); end != std::string::npos) return line.substr(0, end);
    }
    return {};
  }

  static std::string outcome_of(const std::function<Result<void>(const std::string&)>& handler,
                                std::string_view escaped_path) {
    const Result<std::string> path = unescape_path(escaped_path);
    const Result<void> outcome = path ? handler(*path) : std::unexpected(path.error());
    if (outcome) return "{\"ok\": true}\n";
    return text_of({{"ok", false}, {"error", outcome.error().context}}) + "\n";
  }

  // File names in errors are bytes, JSON is UTF-8.
  static std::string text_of(const nlohmann::ordered_json& json) {
    return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }

  // False when nobody listens any more.
  bool tell_how_far(int fd) const {
    const rpc::ChannelStats path = handlers_.path();
    const nlohmann::ordered_json line{{"pending_bytes", handlers_.pending()},
                                      {"uncommitted", handlers_.uncommitted()},
                                      {"connected", path.connected},
                                      {"silent", is_silent(path)}};
    return send_all(fd, text_of(line) + "\n");
  }

  void flush(int fd) {
    // Outlives this connection if the other side goes away first.
    enum class Flush : std::uint8_t { kRuns, kDone, kFailed };
    auto flush = std::make_shared<std::atomic<Flush>>(Flush::kRuns);
    handlers_.flush([flush](const Result<void>& all) { *flush = all ? Flush::kDone : Flush::kFailed; });
    constexpr int kLookMs = 20;
    constexpr int kLooksAtTheEnd = 5;  // the daemon may end because that very flush is done
    int looks_left = kLooksAtTheEnd;
    for (int waited = 0; *flush == Flush::kRuns; waited += kLookMs) {
      if (stopping_ && looks_left-- == 0) return;
      if (waited % kProgressMs == 0 && !tell_how_far(fd)) return;
      pollfd gone{.fd = fd, .events = POLLRDHUP};
      if (::poll(&gone, 1, kLookMs) > 0) return;
    }
    const UntoldFailures::Value untold = handlers_.untold();
    const bool all = *flush == Flush::kDone;
    const nlohmann::ordered_json end{{"pending_bytes", all ? 0 : handlers_.pending()},
                                     {"flushed", all},
                                     {"untold", untold.count},
                                     {"untold_last", untold.count > 0 ? untold.last : ""}};
    send_all(fd, text_of(end) + "\n");
  }

  const std::filesystem::path path_;
  Fd socket_;
  const Handlers handlers_;
  std::atomic<bool> stopping_{false};
  bool nothing_left_ = false;          // of the accepting thread
  std::list<Connection> connections_;  // of the accepting thread, then of the destructor
  std::thread thread_;
};

}  // namespace

std::filesystem::path control_directory() {
  if (::geteuid() == 0) return "/run/tusk";
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr && *runtime == '/')
    return std::filesystem::path(runtime) / "tusk";
  return fmt::format("/tmp/tusk-{}", ::geteuid());
}

Result<void> check_control_directory(const std::filesystem::path& directory) {
  Result<void> ours = check_private_directory(directory);
  if (!ours && ours.error().code == from_errno(ENOENT)) return {};
  return ours;
}

std::optional<std::filesystem::path> control_socket(const std::filesystem::path& mountpoint,
                                                    const std::filesystem::path& directory) {
  const std::string prefix = socket_prefix(mountpoint);
  std::optional<std::filesystem::path> newest;
  for (std::filesystem::path& socket : control_sockets(directory))
    if (socket.filename().native().starts_with(prefix)) newest = std::move(socket);
  return newest;
}

std::vector<std::filesystem::path> control_sockets(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> sockets;
  if (!check_control_directory(directory)) return sockets;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored))
    if (entry.path().extension() == kSuffix) sockets.push_back(entry.path());
  std::ranges::sort(sockets);
  return sockets;
}

Result<std::unique_ptr<ControlServer>> ControlServer::start(const std::filesystem::path& mountpoint,
                                                            Handlers handlers,
                                                            const std::filesystem::path& directory) {
  TUSK_TRY(make_private_directory(directory));
  remove_dead_sockets(directory);
  remove_unfinished(directory);  // sessions' files as well
  std::filesystem::path path = directory / socket_name(mountpoint);
  TUSK_ASSIGN(Fd listening, listen_at(path));
  return std::make_unique<Server>(std::move(path), std::move(listening), std::move(handlers));
}

Result<pid_t> daemon_at(const std::filesystem::path& socket) {
  TUSK_ASSIGN(const Fd connection, connect_to(socket));
  TUSK_ASSIGN(const ucred listener, peer_of(connection, socket));
  return listener.pid;
}

Result<Fd> connect_to_daemon(const std::filesystem::path& socket) { return connect_to(socket); }

std::filesystem::path bound_name(const std::filesystem::path& socket) {
  return socket.string() + std::string(kUnfinished);
}

Result<void> control(const std::filesystem::path& socket, std::string_view command,
                     const std::function<void(std::string_view)>& line) {
  TUSK_ASSIGN(const Fd connection, connect_to(socket));
  if (!send_all(connection.number(), std::string(command) + "\n")) return fail_errno("control socket");
  std::string received;
  char buffer[4096];
  for (;;) {
    const ssize_t size = ::recv(connection.number(), buffer, sizeof buffer, 0);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return no_answer(socket);
    if (size == 0) return {};
    received.append(buffer, static_cast<std::size_t>(size));
    for (std::size_t end; (end = received.find('\n')) != std::string::npos; received.erase(0, end + 1))
      line(std::string_view(received).substr(0, end));
    if (received.size() > kLineMax) return fail(ErrorCode::kMalformed, "the daemon's answer has no end");
  }
}

}  // namespace tusk::client
