#include "tests/fuse/mounted/mounted_export.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "fsserver/change_watch.h"
#include "proto/base/check.h"
#include "proto/base/random.h"
#include "proto/io/clock.h"

namespace tusk::test {
namespace {

template <class T>
T must(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.error().message().c_str());
  std::abort();
}

crypto::Fingerprint client_key() {
  crypto::Fingerprint key;
  key.bytes.fill(std::byte{7});
  return key;
}

class ClientsOnly final : public server::ChangeWatch {
 public:
  [[nodiscard]] schema::ChangeWatching kind() const override { return schema::WATCH_FANOTIFY; }
  [[nodiscard]] bool watch_node(std::string_view, const server::Status&) override { return true; }
  [[nodiscard]] bool watch_names(std::string_view, const tusk::Fd&) override { return true; }
};

}  // namespace

struct stat status(const std::string& path) {
  struct stat st {};
  EXPECT_EQ(::lstat(path.c_str(), &st), 0) << path;
  return st;
}

MountedExport::MountedExport(ExportSetup setup)
    : exported_(setup.exported.empty() ? own_export_.path() : setup.exported),
      pushes_(std::make_shared<LoopbackClients>()) {
  serve(setup);
  mount(std::move(setup), 's');
}

MountedExport::MountedExport(MountedExport& beside, ExportSetup setup)
    : exported_(beside.exported_), pushes_(beside.pushes_), server_(beside.server_) {
  mount(std::move(setup), 't');
}

void MountedExport::serve(const ExportSetup& setup) {
  server::ExportSettings settings;
  settings.name = "data";
  settings.path = exported_;
  settings.access = setup.read_only ? server::Access::kReadOnly : server::Access::kReadWrite;
  settings.clients = {client_key()};
  settings.setuid = setup.setuid;
  server::FileServiceOptions options;
  options.exports = {must(server::Export::open(settings, crypto::Secret::random()))};
  options.server_name = "test";
  options.descriptors_max = setup.descriptors_max;
  // Mounts in one directory take it from each other all the time: what that could break, it is to break here.
  options.leases.contested_for = Duration::zero();
  if (setup.leases)
    options.watch = [all = setup.lease_all](
                        server::Export& exported,
                        server::ChangeWatch::Events events) -> std::unique_ptr<server::ChangeWatch> {
      if (all) return std::make_unique<ClientsOnly>();
      return must(server::start_inotify(exported, std::move(events)));
    };
  server_ = std::make_shared<server::FileService>(std::move(options));
  server_->reach_clients_by(pushes_.get());
}

void MountedExport::mount(ExportSetup setup, char session) {
  setup.loopback.client_key = client_key();
  caller_ = std::make_unique<LoopbackCaller>(*server_, setup.loopback);
  schema::AttachRequest attach;
  attach.set_export_name("data");
  attach.set_session(std::string(16, session));
  attach.set_version(1);
  attach.set_read_only(setup.read_only);
  attach.set_identity_real(!setup.as_user);
  attach.set_leases(setup.leases);
  attach.set_knows_exclusive_ms(setup.leases);
  pushes_->add(*caller_);
  const schema::AttachReply attached = must(caller_->attach(attach));

  scheduler_ = std::make_unique<client::ThreadScheduler>();
  if (setup.disk_cache) {
    disk_scheduler_ = std::make_unique<client::ThreadScheduler>();
    disk_cache_ = std::make_unique<client::DiskCache>(
        client::DiskCache::Options{
            .folder = setup.disk_folder.empty() ? disk_folder_.path() : setup.disk_folder,
            .bytes_max = 64 * 1024 * 1024},
        *disk_scheduler_);
  }
  mount_ = std::make_unique<client::Mount>(client::MountOptions{.source = setup.source,
                                                                .mountpoint = mountpoint_.path(),
                                                                .read_only = setup.read_only,
                                                                .allow_other = ::geteuid() == 0,
                                                                .acls = !setup.as_user,
                                                                .auto_unmount = false});
  client::Filesystem::Options file_options{
      .identity = setup.as_user ? client::IdentityMap::as_user(*setup.as_user) : client::IdentityMap::real(),
      .cache_bytes = setup.cache_bytes,
      .lifetime = setup.lifetime,
      .read_only = setup.read_only,
      .log = true,
      .confirmed = io::now,
      .disk = disk_cache_.get()};
  if (setup.path) file_options.path = std::move(setup.path);
  filesystem_ =
      std::make_unique<client::Filesystem>(*caller_, *scheduler_, *mount_, attached, std::move(file_options));
  caller_->on_push([this](const schema::Request& request, std::move_only_function<void()> answer) {
    filesystem_->handle_pushed(request, std::move(answer));
  });
  const Result<void> started = mount_->start(*filesystem_);
  if (!started) std::fprintf(stderr, "%s\n", started.error().message().c_str());
  TUSK_CHECK(started.has_value());
}

MountedExport::~MountedExport() {
  caller_->inject(nullptr);
  caller_->go_on();
  // In use by a child or by a failed test: gone from the tree at least, and no request of it hangs.
  if (!mount_->unmount(false)) {
    (void)mount_->unmount(true);
    mount_->abort();
  }
  mount_->wait();
  pushes_->remove(*caller_);
  if (server_.use_count() == 1) server_->reach_clients_by(nullptr);
  if (disk_scheduler_) disk_scheduler_->stop();
  caller_->close();
  scheduler_->stop();
  filesystem_.reset();
}

std::optional<std::string> no_fuse() {
  if (::access("/dev/fuse", R_OK | W_OK) != 0) return "/dev/fuse cannot be opened";
  return std::nullopt;
}

Fd::Fd(const std::string& path, int flags, mode_t mode) : fd_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {
  EXPECT_GE(fd_, 0) << path << ": " << std::strerror(errno);
}

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

int exit_code(pid_t child) {
  int status = 0;
  if (!eventually([&] { return ::waitpid(child, &status, WNOHANG) == child; })) {
    ADD_FAILURE() << "a child did not end";
    ::kill(child, SIGKILL);
    return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

bool eventually(const std::function<bool()>& condition) {
  constexpr auto kMax = std::chrono::seconds(20);
  constexpr auto kStep = std::chrono::milliseconds(2);
  const auto deadline = std::chrono::steady_clock::now() + kMax;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(kStep);  // polls what no event tells of
  }
  return true;
}

std::string noise(std::size_t size, std::uint64_t seed) {
  Random random(seed);
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; i += sizeof(std::uint64_t)) {
    const std::uint64_t word = random.next();
    bytes.replace(i, sizeof word, reinterpret_cast<const char*>(&word), std::min(sizeof word, size - i));
  }
  return bytes;
}

}  // namespace tusk::test
