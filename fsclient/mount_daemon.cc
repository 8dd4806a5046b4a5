#include "fsclient/mount_daemon.h"

#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "fsclient/disk_folder.h"
#include "fsclient/filesystem.h"
#include "fsclient/known_paths.h"
#include "fsclient/known_servers.h"
#include "fsclient/mount.h"
#include "fsclient/mount_place.h"
#include "fsclient/mount_table.h"
#include "fsclient/session_files.h"
#include "fsclient/status.h"
#include "proto/base/text.h"
#include "proto/crypto/identity.h"
#include "proto/crypto/primitives.h"
#include "proto/io/clock.h"
#include "proto/io/heap.h"

namespace tusk::client {
namespace {

constexpr std::uint32_t kSchemaVersion = 1;
// At the end, for what was read last and is not on the disk yet; any disk but a broken one needs less.
constexpr std::chrono::seconds kDiskFinishes{2};

std::string server_name_of(const rpc::MountUrl& url) {
  return url.host.find(':') == std::string::npos ? fmt::format("{}:{}", url.host, url.port)
                                                 : fmt::format("[{}]:{}", url.host, url.port);
}

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

bool asks_for_real(const MountSettings& settings) {
  if (settings.uid || settings.gid) return false;
  return settings.identity == IdentityWish::kReal ||
         (settings.identity == IdentityWish::kAuto && ::geteuid() == 0);
}

std::string new_session_id() {
  std::array<std::byte, SessionFiles::kIdBytes> session{};
  crypto::random_bytes(session);
  return std::string(as_text(session));
}

schema::AttachRequest attach_of(const MountSettings& settings, const std::string& session,
                                const std::vector<std::string>& ended) {
  schema::AttachRequest attach;
  attach.set_export_name(settings.url.export_name);
  attach.set_token(std::string(as_text(settings.url.token)));
  attach.set_session(session);
  for (const std::string& id : ended) attach.add_ended_sessions(id);
  attach.set_read_only(settings.read_only);
  attach.set_client_name(host_name());
  attach.set_version(kSchemaVersion);
  attach.set_identity_real(asks_for_real(settings));
  attach.set_leases(true);
  attach.set_knows_exclusive_ms(true);
  attach.set_listing_bytes(DirectoryCache::kBesideNameBytes);
  return attach;
}

Result<crypto::Identity> load_identity(const MountSettings& settings) {
  Result<crypto::Identity> identity = crypto::Identity::load_or_create(settings.state_directory);
  if (!identity) identity.error().context += " (--state-dir names another place for our key)";
  return identity;
}

// The URL's fingerprint, else what is pinned, else whatever answers (and that is pinned then).
Result<std::unique_ptr<rpc::Channel>> connect(const MountSettings& settings, const crypto::Identity& identity,
                                              const KnownServers& known, const KnownPaths& paths,
                                              schema::AttachRequest attach) {
  const std::string server = server_name_of(settings.url);
  std::optional<crypto::Fingerprint> expected = settings.url.fingerprint;
  if (!expected) {
    TUSK_ASSIGN(expected, known.find(server));
  }
  rpc::ChannelOptions options{.host = settings.url.host,
                              .port = settings.url.port,
                              .identity = &identity,
                              .server_fingerprint = expected,
                              .attach = std::move(attach),
                              .outage = settings.outage,
                              .connect_timeout = settings.connect_timeout,
                              .background = settings.background,
                              .remembered = paths.find(server)};
  TUSK_ASSIGN(std::unique_ptr<rpc::Channel> channel,
              rpc::connect_with_lanes(std::move(options), {.connections = settings.connections}));
  TUSK_ASSIGN(const std::optional<crypto::Fingerprint> pinned, known.find(server));
  if (pinned != channel->server_fingerprint())
    if (const Result<void> saved = known.remember(server, channel->server_fingerprint()); !saved)
      spdlog::warn("the server's key could not be remembered: {}", saved.error().message());
  return channel;
}

// What one got that only took what others had left says little.
void remember_path(const MountSettings& settings, const KnownPaths& paths, const rpc::PathStats& path) {
  if (settings.background) return;
  if (const Result<void> saved = paths.remember(server_name_of(settings.url), path); !saved)
    spdlog::warn("what the path carries could not be remembered: {}", saved.error().message());
}

// As far as one can know: nothing answers our goodbye.
bool hears_us(const rpc::ChannelStats& stats) {
  return stats.connected && stats.silent < std::chrono::seconds(1);
}

IdentityMap identity_map(const MountSettings& settings, const schema::AttachReply& attached) {
  if (attached.identity_real()) return IdentityMap::real(settings.umask);
  return IdentityMap::as_user({.server_uid = attached.owner_uid(),
                               .server_gid = attached.owner_gid(),
                               .uid = settings.uid.value_or(::geteuid()),
                               .gid = settings.gid.value_or(::getegid())},
                              settings.umask);
}

// A flush that somebody waits for.
class Flushed {
 public:
  void set(bool all) {
    const std::lock_guard lock(mutex_);
    done_ = true;
    all_ = all;
    changed_.notify_all();
  }
  // False if `give_up` became true before, or the flush failed.
  bool wait(const std::atomic<bool>& give_up) {
    std::unique_lock lock(mutex_);
    while (!done_ && !give_up) changed_.wait_for(lock, std::chrono::milliseconds(50));
    return all_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  bool all_ = false;
};

// Null: none is wanted, or another mount uses it. A folder that can never be used is the user's mistake.
Result<std::unique_ptr<DiskFolder>> open_disk_folder(const MountSettings& settings,
                                                     const rpc::Channel& channel) {
  if (settings.cache_folder.empty()) return nullptr;
  auto folder = DiskFolder::open(settings.cache_folder, channel.server_fingerprint().to_text(),
                                 settings.url.export_name);
  if (folder || folder.error().code != from_errno(EBUSY)) return folder;
  spdlog::warn("{}", folder.error().context);
  return nullptr;
}

// The running mount, wired together. Members in the order they come to life.
class MountedServer {
 public:
  MountedServer(const MountSettings& settings, rpc::Channel& channel, std::unique_ptr<DiskFolder> disk_folder)
      : settings_(settings), channel_(channel), disk_folder_(std::move(disk_folder)) {
    const schema::AttachReply attached = channel.attached();
    facts_ = {.version = TUSK_VERSION,
              .mountpoint = settings.mountpoint,
              .server = fmt::format("tusk://{}/{}", server_name_of(settings.url), settings.url.export_name),
              .server_name = attached.server_name(),
              .server_key = channel.server_fingerprint().to_text(),
              .read_only = attached.read_only(),
              .identity_real = attached.identity_real(),
              .background = settings.background,
              .mounted_at = io::now()};
    mount_ = std::make_unique<Mount>(MountOptions{.source = facts_.server,
                                                  .mountpoint = settings.mountpoint,
                                                  .read_only = facts_.read_only,
                                                  .allow_other = settings.allow_other || ::geteuid() == 0,
                                                  .acls = settings.acls && facts_.identity_real,
                                                  .auto_unmount = settings.auto_unmount,
                                                  .kernel_options = settings.kernel_options});
    const ByteCount cache = settings.cache_bytes != 0 ? settings.cache_bytes : cache_bytes_default();
    open_disk_cache(cache);
    filesystem_ = std::make_unique<Filesystem>(
        channel, scheduler_, *mount_, attached,
        Filesystem::Options{.identity = identity_map(settings, attached),
                            .cache_bytes = cache,
                            .cache_bytes_first = settings.cache_bytes != 0 ? cache : kCacheBytesFirst,
                            .lifetime = settings.attr_timeout,
                            .read_only = facts_.read_only,
                            .log = settings.log,
                            .path = [&channel] { return channel.stats(); },
                            .silence_max = settings.outage.fail_after ? kSilentMin : kSilenceMax,
                            .confirmed = [&channel] { return channel.confirmed(); },
                            .speak_often = [&channel](bool often) { channel.speak_often(often); },
                            .disk = disk_cache_.get()});
    channel.observe(
        {.reattaching = [this](schema::AttachRequest& request) { filesystem_->handle_attaching(request); },
         .reattached = [this](const schema::AttachReply& reply) { filesystem_->handle_attached(reply); },
         .gave_up = [this](const Error& error) { filesystem_->handle_outage(error); },
         .pushed =
             [this](const schema::Request& request, std::move_only_function<void()> answer) {
               filesystem_->handle_pushed(request, std::move(answer));
             }});
  }

  ~MountedServer() {
    control_.reset();
    mount_->wait();
    if (disk_cache_) disk_cache_->finish(kDiskFinishes);
    if (disk_scheduler_) disk_scheduler_->stop();
    channel_.close();
    scheduler_.stop();
    filesystem_.reset();
  }

  Result<void> start() {
    TUSK_TRY(mount_->start(*filesystem_));
    filesystem_->look_at_root();
    filesystem_->acquire_root([] {});
    auto control = ControlServer::start(
        settings_.mountpoint,
        {.status = [this] { return status_json(facts_, channel_.stats(), *filesystem_, io::now()); },
         .pending = [this] { return filesystem_->pending_bytes(); },
         .uncommitted = [this] { return filesystem_->uncommitted_changes(); },
         .path = [this] { return channel_.stats(); },
         .flush = [this](Done<void> done) { filesystem_->flush_all(std::move(done)); },
         .untold = [this] { return filesystem_->untold_failures(); },
         .drop = [this] { drop(); },
         .pin = [this](const std::string& path) { return filesystem_->pin(path); },
         .unpin = [this](const std::string& path) { return filesystem_->unpin(path); }});
    if (control)
      control_ = std::move(*control);
    else
      spdlog::warn("tusk status will not find this mount: {}", control.error().message());
    return {};
  }

  // Until it is unmounted, by whomever; then everything is brought to the server.
  void serve() {
    mount_->wait();
    if (!flush())
      spdlog::error("ended with {} bytes not on the server and {} changes not on its disk",
                    filesystem_->pending_bytes(), filesystem_->uncommitted_changes());
    const UntoldFailures::Value untold = filesystem_->untold_failures();
    if (untold.count > 0)
      spdlog::error("ended with {} changes that could not be done and nobody was told of; the last: {}",
                    untold.count, untold.last);
  }

  void end() {
    if (!flush())
      spdlog::warn("not waiting for {} bytes and {} changes that are not on the server's disk",
                   filesystem_->pending_bytes(), filesystem_->uncommitted_changes());
    if (!mount_->serving()) return;
    if (!mount_->unmount(false)) {
      spdlog::warn("{} is in use: it is taken away from its users", settings_.mountpoint.string());
      (void)mount_->unmount(true);
      (void)flush();
      mount_->abort();
    }
  }

  // From now on nothing waits for the server.
  void hurry() { impatient_ = true; }

  // Ends the mount at once, whoever uses it: what is not on the server is lost.
  void drop() {
    hurry();
    (void)mount_->unmount(true);
    mount_->abort();
  }

 private:
  void open_disk_cache(ByteCount memory) {
    if (!disk_folder_) return;
    const ByteCount size =
        settings_.cache_folder_bytes != 0 ? settings_.cache_folder_bytes : disk_folder_->default_size();
    disk_scheduler_ = std::make_unique<ThreadScheduler>();
    disk_cache_ = std::make_unique<DiskCache>(
        DiskCache::Options{.folder = disk_folder_->path(),
                           .bytes_max = size,
                           .pending_max = std::min(DiskCache::kPendingMax, memory / 4)},
        *disk_scheduler_);
  }

  // Everything that programs wrote is on the server's disk. False if there is no time for that.
  bool flush() {
    const auto flushed = std::make_shared<Flushed>();
    filesystem_->flush_all([flushed](const Result<void>& all) { flushed->set(all.has_value()); });
    return flushed->wait(impatient_);
  }

  const MountSettings& settings_;
  rpc::Channel& channel_;
  MountFacts facts_;
  std::atomic<bool> impatient_{false};
  const std::unique_ptr<DiskFolder> disk_folder_;  // null: no disk cache
  std::unique_ptr<DiskCache> disk_cache_;
  ThreadScheduler scheduler_;
  std::unique_ptr<ThreadScheduler> disk_scheduler_;  // null likewise
  std::unique_ptr<Mount> mount_;
  std::unique_ptr<Filesystem> filesystem_;
  std::unique_ptr<ControlServer> control_;
};

// Takes the ending signals, from the beginning on. What one does depends on how far the mount is.
class Endings {
 public:
  // With the signals blocked.
  explicit Endings(std::function<void()> interrupted)
      : interrupted_(std::move(interrupted)), listening_([this] { listen(); }) {}
  ~Endings() { stop(); }

  // From now on there may be something to take away again.
  void note_mounting() {
    const std::lock_guard lock(mutex_);
    mounting_ = true;
  }
  // False: a signal came meanwhile, and the mount is on its way out again.
  [[nodiscard]] bool note_mounted(MountedServer& mounted) {
    const std::lock_guard lock(mutex_);
    mounted_ = &mounted;
    if (came_early_) end();
    return !came_early_;
  }
  void stop() {
    if (!listening_.joinable()) return;
    over_ = true;
    ::pthread_kill(listening_.native_handle(), SIGHUP);  // one of the signals
    listening_.join();
    if (ending_.joinable()) ending_.join();
  }

 private:
  void listen() {
    const sigset_t signals = ending_signals();
    for (;;) {
      int signal = 0;
      if (sigwait(&signals, &signal) != 0 || over_) return;
      const std::lock_guard lock(mutex_);
      if (!mounting_) {
        interrupted_();
      } else if (mounted_ == nullptr) {
        came_early_ = true;
      } else if (ending_.joinable()) {
        mounted_->hurry();
      } else {
        spdlog::info("{}: flushing and unmounting", ::strsignal(signal));
        end();
      }
    }
  }
  // On a thread of its own: the next signal ends its waiting. With the mutex held.
  void end() {
    ending_ = std::thread([mounted = mounted_] { mounted->end(); });
  }

  const std::function<void()> interrupted_;
  std::atomic<bool> over_{false};
  std::mutex mutex_;
  bool mounting_ = false;
  bool came_early_ = false;  // while there was nothing to end yet
  MountedServer* mounted_ = nullptr;
  std::thread ending_;
  std::thread listening_;  // last: it uses the others
};

}  // namespace

sigset_t ending_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : kEndingSignals) sigaddset(&signals, signal);
  return signals;
}

Result<void> run_mount(const MountSettings& settings, const MountEvents& events) {
  const sigset_t signals = ending_signals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  io::keep_freed_memory();
  Endings endings(events.interrupted);

  TUSK_TRY(Mount::check(settings.mountpoint));
  TUSK_TRY(check_cache_place(settings.mountpoint, settings.cache_folder));
  TUSK_ASSIGN(const crypto::Identity identity, load_identity(settings));
  const KnownServers known(settings.state_directory / "known_servers");
  const KnownPaths paths(settings.state_directory / "known_paths");
  SessionFiles sessions(control_directory(),
                        fmt::format("{} {} {}", server_name_of(settings.url), settings.url.export_name,
                                    identity.fingerprint().to_text()));
  const std::vector<std::string> ended = sessions.ended();
  const std::string session = new_session_id();
  if (const Result<void> noted = sessions.begin(session); !noted)
    spdlog::debug("if this mount is killed, the next one will not know: {}", noted.error().message());
  TUSK_ASSIGN(const std::unique_ptr<rpc::Channel> channel,
              connect(settings, identity, known, paths, attach_of(settings, session, ended)));
  sessions.forget(ended);
  TUSK_TRY(check_outside_the_export(settings.mountpoint, channel->attached()));
  if (settings.identity == IdentityWish::kReal && !channel->attached().identity_real())
    return fail(from_errno(EPERM), "the server does not grant identity=real for this export");

  TUSK_ASSIGN(std::unique_ptr<DiskFolder> disk_folder, open_disk_folder(settings, *channel));

  endings.note_mounting();
  MountedServer mounted(settings, *channel, std::move(disk_folder));
  TUSK_TRY(mounted.start());
  spdlog::info("{} is mounted on {}", settings.url.export_name, settings.mountpoint.string());
  const bool wanted = endings.note_mounted(mounted);
  if (wanted) events.live();
  mounted.serve();
  remember_path(settings, paths, channel->stats());
  if (!hears_us(channel->stats())) sessions.leave_behind();
  endings.stop();
  spdlog::info("{} is unmounted", settings.mountpoint.string());
  if (!wanted) return fail(ErrorCode::kCancelled, "interrupted");
  return {};
}

namespace {

// " FINGERPRINT"; "" if there is none to be had.
std::string own_key(const MountSettings& settings) {
  const auto identity = crypto::Identity::load_or_create(settings.state_directory);
  return identity ? " " + identity->fingerprint().to_text() : "";
}

}  // namespace

std::string explain(const Error& error, const MountSettings& settings) {
  const std::string server = server_name_of(settings.url);
  switch (error.code) {
    case ErrorCode::kUnreachable:
    case ErrorCode::kTimedOut:
      return fmt::format(
          "{} does not answer: is tuskd running there, and does every firewall on the way let UDP port {} "
          "pass?{}",
          server, settings.url.port, error.context.empty() ? "" : " (" + error.context + ")");
    case ErrorCode::kFingerprintMismatch:
      return fmt::format(
          "{} has another key than {}: either somebody is in between, or the server was set up anew; in that "
          "case {}get a new URL from its administrator ({})",
          server, settings.url.fingerprint ? "the URL says" : "at the first mount",
          settings.url.fingerprint ? ""
                                   : fmt::format("remove its line from {}, or ",
                                                 (settings.state_directory / "known_servers").string()),
          error.context);
    case ErrorCode::kTokenRefused:
      return fmt::format(
          "{} does not let us in to '{}': that name is mistyped, or the token in the URL is missing, wrong, "
          "expired or for another export; get a new URL from its administrator (tuskd token), or have this "
          "client's key allowed (tuskd allow --export {} --{})",
          server, settings.url.export_name, shell_word(settings.url.export_name), own_key(settings));
    case ErrorCode::kNoSuchExport:
      return fmt::format("{} exports nothing called '{}'", server, settings.url.export_name);
    case ErrorCode::kVersionMismatch:
      return fmt::format(
          "{} speaks another version of the protocol: use the same version of Tusk on both machines", server);
    case ErrorCode::kBadConfig:
      return error.context;
    default:
      return error.message();
  }
}

}  // namespace tusk::client
