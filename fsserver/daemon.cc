#include "fsserver/daemon.h"

#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "fsserver/state_file.h"
#include "proto/io/clock.h"
#include "proto/io/heap.h"

namespace tusk::server {
namespace {

constexpr Duration kTakingLeasesBackMax = 2s;
constexpr Duration kCommitAtEndMax = 10s;  // else clients make their last changes again
constexpr Duration kStatusEvery = 2s;      // and rights
constexpr std::string_view kHandleSecretLabel = "tusk file handles";
// Descriptors of sockets and watches, and of what the workers have open in passing.
constexpr std::size_t kDescriptorsOfOwn = 512;

sigset_t our_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&signals, signal);
  return signals;
}

// systemd's notification protocol (sd_notify(3)): one datagram to the socket it names.
void notify_supervisor(std::string_view message) {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || (path[0] != '/' && path[0] != '@')) return;
  sockaddr_un address{.sun_family = AF_UNIX};
  const std::size_t length = std::strlen(path);
  if (length >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = '\0';
  const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  if (socket.valid())
    (void)::sendto(socket.number(), message.data(), message.size(), MSG_NOSIGNAL,
                   reinterpret_cast<const sockaddr*>(&address), size);
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "tuskd";
}

std::size_t all_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 2 * kDescriptorsOfOwn;
  return static_cast<std::size_t>(std::min<rlim_t>(limit.rlim_cur, 1u << 20));
}

// A node table opens again what it has let go: it gets the smaller part.
std::size_t descriptors_for_tables() { return all_descriptors() / 8; }

std::size_t descriptors_for_clients() {
  const std::size_t all = all_descriptors();
  return all - descriptors_for_tables() - std::min(kDescriptorsOfOwn, all / 4);
}

NodeTableSettings table_settings(std::size_t exports, const std::filesystem::path& state_dir) {
  NodeTableSettings settings;
  settings.names_dir = state_dir / "names";
  const std::size_t share = descriptors_for_tables() / std::max<std::size_t>(exports, 1);
  settings.descriptors_max = std::clamp<std::size_t>(share, 16, settings.descriptors_max);
  return settings;
}

FileServiceOptions service_options(const ServerConfig& config) {
  FileServiceOptions options;
  options.server_name = host_name();
  options.workers = config.limits.workers;
  options.sessions_max = config.limits.mounts;
  options.reply_memory_max = config.limits.reply_memory_bytes;
  options.connections_max = config.limits.connections;
  options.descriptors_max = std::min(options.descriptors_max, descriptors_for_clients());
  options.early_log_bytes_max = config.limits.request_memory_bytes / 4;
  options.attr_lifetime_ms = config.limits.attr_lifetime_ms;
  options.session_keep = config.limits.session_keep;
  options.lockers_dir = config.state_dir / "lockers";
  options.leasers_dir = config.state_dir / "leasers";
  options.commits_dir = config.state_dir / "commits";
  options.watch = [wish = config.watch](Export& exported, ChangeWatch::Events events) {
    return start_watching(exported, wish, std::move(events));
  };
  return options;
}

}  // namespace

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  if (::geteuid() == 0) {
    constexpr rlim_t kWish = 1u << 20;  // the kernel's default ceiling (fs.nr_open)
    const rlimit more{.rlim_cur = kWish, .rlim_max = std::max(limit.rlim_max, kWish)};
    if (::setrlimit(RLIMIT_NOFILE, &more) == 0) return;
  }
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

void Daemon::block_signals() {
  const sigset_t signals = our_signals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // A write past RLIMIT_FSIZE is the client's EFBIG, not our death.
  ::signal(SIGXFSZ, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
}

Result<std::unique_ptr<Daemon>> Daemon::start(ServerConfig config, SandboxWish sandbox) {
  io::keep_freed_memory();
  if (config.state_dir.empty()) {
    TUSK_ASSIGN(config.state_dir, default_state_dir());
  }
  // First what does not need the state directory: who mistypes a path or a port is not left with one.
  for (const ExportSettings& wanted : config.exports) TUSK_TRY(check_export(wanted));
  TUSK_TRY(rpc::ServerEndpoint::check(config.listen));
  auto access = AccessStore::open(config.state_dir);
  if (!access) return std::unexpected(std::move(access).error());
  TUSK_ASSIGN(crypto::Identity identity, crypto::Identity::load_or_create(config.state_dir));

  std::unique_ptr<Daemon> daemon(new Daemon(std::move(config), std::move(identity)));
  sandbox.read_write.push_back(daemon->config_.state_dir);
  if (::geteuid() != 0) {
    auto rights = OwnerRights::start(sandbox);
    if (rights)
      daemon->owner_rights_ = std::move(*rights);
    else
      spdlog::info("a restart ends what is open here and what its mode forbids to open: {}",
                   rights.error().message());
  }
  daemon->sandbox_ = enter_sandbox(sandbox);  // before any thread is started
  spdlog::info("sandbox: {}", daemon->sandbox_);
  daemon->access_ = std::move(*access);
  const sigset_t signals = our_signals();
  daemon->signals_ = Fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  daemon->woken_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!daemon->signals_.valid() || !daemon->woken_.valid()) return fail_errno("wait for signals");
  TUSK_ASSIGN(daemon->exports_, daemon->open_exports(daemon->config_.exports, {}));
  FileServiceOptions options = service_options(daemon->config_);
  options.exports = daemon->exports_;
  options.access = daemon->access_;
  options.attached = [at = daemon.get()] { at->wake(); };
  daemon->service_ = std::make_unique<FileService>(std::move(options));

  rpc::ServerEndpointOptions endpoint;
  endpoint.listen = daemon->config_.listen;
  endpoint.identity = &daemon->identity_;
  endpoint.connections_max = daemon->config_.limits.connections;
  endpoint.request_memory_max = daemon->config_.limits.request_memory_bytes;
  TUSK_ASSIGN(daemon->endpoint_, rpc::ServerEndpoint::start(std::move(endpoint), *daemon->service_));
  daemon->service_->reach_clients_by(daemon->endpoint_.get());
  (void)daemon->write_status();
  return daemon;
}

Daemon::~Daemon() {
  if (!service_) return;
  service_->end_leases(kTakingLeasesBackMax);
  const bool idle = service_->drain(kShutdownMax);
  if (!idle)
    spdlog::warn("some operations are still running after {} s; not waiting for them",
                 to_seconds(kShutdownMax));
  const bool committed = idle && service_->commit_everything(kCommitAtEndMax);
  service_->reach_clients_by(nullptr);
  endpoint_.reset();
  status_file_.remove();
  // A thread that hangs in a disk's system call cannot be joined before the disk lets go of it.
  if (!idle || !committed) ::_exit(EXIT_SUCCESS);
}

// Tokens open a name, on every server that uses this state: under one name, two directories would open to
// each other's guests.
Result<void> Daemon::check_names_are_free(const std::vector<ExportSettings>& settings) const {
  TUSK_ASSIGN(const auto servers, running_servers(config_.state_dir));
  for (const ServerStatus& server : servers)
    for (const ServerStatus::Exported& taken : server.exports)
      for (const ExportSettings& wanted : settings) {
        if (server.pid == ::getpid() || taken.name != wanted.name || taken.path == wanted.path) continue;
        return fail(ErrorCode::kBadConfig, "another tuskd (pid " + std::to_string(server.pid) + ") exports " +
                                               taken.path.string() + " as '" + taken.name +
                                               "': choose another name, or another state directory");
      }
  return {};
}

namespace {

// An export that stays as it is keeps its object, and its mounts notice nothing.
bool stays(Export& exported, const ExportSettings& wanted) {
  if (exported.settings() != wanted) return false;
  const bool exists = exported.root_exists();
  if (exists && is_at(*exported.nodes().root(), wanted.path)) return true;
  // Nothing there is no reason to keep all other exports as they were.
  std::error_code unseen;
  const bool replaced = std::filesystem::is_directory(wanted.path, unseen);
  if (replaced)
    spdlog::warn(
        "export '{}': {} is another directory now; who has mounted the one before gets errors until "
        "it is mounted again",
        wanted.name, wanted.path.string());
  else if (exists)
    spdlog::warn("export '{}': there is no directory {} any more; the one that was there is served on",
                 wanted.name, wanted.path.string());
  return !replaced;
}

bool was_served(const std::vector<ExportSettings>& before, const ExportSettings& wanted) {
  return std::ranges::any_of(
      before, [&](const ExportSettings& old) { return old.name == wanted.name && old.path == wanted.path; });
}

}  // namespace

Result<std::vector<std::shared_ptr<Export>>> Daemon::open_exports(const std::vector<ExportSettings>& settings,
                                                                  const std::vector<ExportSettings>& before) {
  TUSK_TRY(check_names_are_free(settings));
  const crypto::Secret secret = identity_.derive_secret(kHandleSecretLabel);
  std::vector<std::shared_ptr<Export>> opened;
  std::vector<Error> closed;
  for (const ExportSettings& wanted : settings) {
    const auto same =
        std::ranges::find_if(exports_, [&](const auto& exported) { return stays(*exported, wanted); });
    if (same != exports_.end()) {
      opened.push_back(*same);
      continue;
    }
    auto exported =
        Export::open(wanted, secret, table_settings(settings.size(), config_.state_dir), owner_rights_);
    if (exported) {
      opened.push_back(std::move(*exported));
      continue;
    }
    // What was served and has other settings now is not served on with the old ones, which may let in who is
    // to be kept out; nor are the settings of all others left as they were because of it.
    if (!was_served(before, wanted)) return std::unexpected(std::move(exported).error());
    closed.push_back(std::move(exported).error());
  }
  // Now that the others are not refused: else all of them are as they were.
  for (const Error& error : closed)
    spdlog::error("{}; closed until it can be opened and tuskd is told to reload", error.message());
  return opened;
}

void Daemon::apply(const Result<ServerConfig>& fresh) {
  if (!fresh) {
    spdlog::error("not reloaded:");
    std::istringstream lines(fresh.error().context);
    for (std::string line; std::getline(lines, line);) spdlog::error("{}", line);
    return;
  }
  auto opened = open_exports(fresh->exports, config_.exports);
  if (!opened) return spdlog::error("not reloaded: {}", opened.error().message());
  exports_ = std::move(*opened);
  config_.exports = fresh->exports;
  for (const rpc::ConnectionId connection : service_->replace_exports(exports_))
    endpoint_->disconnect(connection, "the export has changed");
  spdlog::info("reloaded; exports: {}", exports_.size());
  if (const std::string names = needs_restart(config_, *fresh); !names.empty())
    spdlog::warn("not taken over until tuskd is restarted: {}", names);
}

void Daemon::end_withdrawn_rights() {
  for (const rpc::ConnectionId connection : service_->without_right(io::unix_seconds()))
    endpoint_->disconnect(connection, "the right to mount this export has changed");
}

bool Daemon::write_status() {
  ServerStatus status{
      .pid = ::getpid(), .sandbox = sandbox_, .listen = {}, .exports = {}, .clients = service_->clients()};
  if (const Duration grace = service_->grace_remaining(io::now()); grace > Duration::zero())
    status.grace_until_unix_s = io::unix_seconds() + std::chrono::ceil<std::chrono::seconds>(grace).count();
  for (const io::Address& address : endpoint_->local_addresses())
    status.listen.push_back(address.to_string());
  for (const auto& exported : exports_)
    status.exports.push_back({exported->name(), exported->settings().path, exported->settings().access});
  std::ranges::sort(status.clients, {}, [](const ConnectedClient& client) { return client.peer.connection; });
  if (auto written = status_file_.update(status); !written)
    spdlog::warn("`tuskd clients` and `tuskd token` will not know of this server: {}",
                 written.error().message());
  return !status.clients.empty();
}

void Daemon::wake() {
  const std::uint64_t one = 1;
  if (resting_.exchange(false)) (void)!::write(woken_.number(), &one, sizeof one);
}

int Daemon::next_signal(bool has_clients) {
  const auto every = std::chrono::duration_cast<std::chrono::milliseconds>(kStatusEvery);
  std::array<pollfd, 2> waits{{{.fd = signals_.number(), .events = POLLIN, .revents = 0},
                               {.fd = woken_.number(), .events = POLLIN, .revents = 0}}};
  (void)::poll(waits.data(), waits.size(), has_clients ? static_cast<int>(every.count()) : -1);
  std::uint64_t ignored = 0;
  (void)!::read(woken_.number(), &ignored, sizeof ignored);
  signalfd_siginfo signal{};
  const ssize_t size = ::read(signals_.number(), &signal, sizeof signal);
  return size == sizeof signal ? static_cast<int>(signal.ssi_signo) : 0;
}

void Daemon::run(const std::function<Result<ServerConfig>()>& reload) {
  notify_supervisor("READY=1");
  while (true) {
    // First: who attaches from here on is in the status, or wakes us.
    resting_ = true;
    end_withdrawn_rights();
    const bool has_clients = write_status();
    if (has_clients) resting_ = false;
    const int signal = next_signal(has_clients);
    if (signal == SIGHUP && reload) {
      notify_supervisor("RELOADING=1");
      apply(reload());
      notify_supervisor("READY=1");
    }
    if (signal == SIGTERM || signal == SIGINT || (signal == SIGHUP && !reload)) {
      spdlog::info("SIG{}: shutting down", ::sigabbrev_np(signal));
      notify_supervisor("STOPPING=1");
      return;
    }
  }
}

}  // namespace tusk::server
