// fanotify(7) on the file system of an export: every change of it, with the handles of the directory and of
// the file, and who made it.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>

#include <array>
#include <cstring>
#include <optional>
#include <thread>

#include "fsserver/change_watch.h"
#include "fsserver/kernel_handle.h"

namespace tusk::server {
namespace {

constexpr std::uint64_t kNameEvents = FAN_CREATE | FAN_DELETE | FAN_MOVED_FROM | FAN_MOVED_TO;
constexpr std::uint64_t kDataEvents = FAN_MODIFY | FAN_CLOSE_WRITE;
constexpr std::uint64_t kWatchedEvents = kNameEvents | kDataEvents | FAN_ATTRIB | FAN_ONDIR;
constexpr std::size_t kEventBytes = 64 * 1024;
constexpr std::size_t kChangesAtOnceMax = 256;  // in one push

// What name_to_handle_at(2) says of an inode of this file system, and nothing else, can be in an event.
bool named_by_events(std::string_view handle) {
  constexpr std::size_t kKindAt = kHandleMacBytes;
  constexpr std::size_t kDeviceAt = kKindAt + 1;
  if (handle.size() < kDeviceAt + sizeof(std::uint64_t)) return false;
  return handle[kKindAt] == static_cast<char>(FileIdentity::Kind::kOpenable) &&
         handle.substr(kDeviceAt, sizeof(std::uint64_t)) == std::string_view("\0\0\0\0\0\0\0\0", 8);
}

class Fanotify final : public ChangeWatch {
 public:
  Fanotify(Export& exported, Events events, Fd group, Fd stop)
      : nodes_(exported.nodes()),
        events_(std::move(events)),
        group_(std::move(group)),
        stop_(std::move(stop)),
        thread_([this] { run(); }) {}

  ~Fanotify() override {
    const std::uint64_t one = 1;
    (void)!::write(stop_.number(), &one, sizeof one);
    thread_.join();
  }

  [[nodiscard]] schema::ChangeWatching kind() const override { return schema::WATCH_FANOTIFY; }
  [[nodiscard]] bool watch_node(std::string_view handle, const Status&) override {
    return named_by_events(handle);
  }
  [[nodiscard]] bool watch_names(std::string_view handle, const Fd&) override {
    return named_by_events(handle);
  }

 private:
  void run();
  void handle_event(const fanotify_event_metadata& event);
  void add(NodeChange change);
  void flush();
  [[nodiscard]] std::string handle_of(const file_handle& raw) const;

  NodeTable& nodes_;
  const Events events_;
  const Fd group_;
  const Fd stop_;
  std::vector<NodeChange> changes_;  // of the thread
  std::thread thread_;               // last
};

void Fanotify::run() {
  alignas(fanotify_event_metadata) std::array<char, kEventBytes> buffer;
  while (true) {
    std::array<pollfd, 2> waits{{{.fd = group_.number(), .events = POLLIN, .revents = 0},
                                 {.fd = stop_.number(), .events = POLLIN, .revents = 0}}};
    if (::poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) return events_.missed();
    if (waits[1].revents != 0) return;
    ssize_t size = ::read(group_.number(), buffer.data(), buffer.size());
    if (size < 0 && errno != EAGAIN && errno != EINTR) events_.missed();
    const auto* event = reinterpret_cast<const fanotify_event_metadata*>(buffer.data());
    for (; FAN_EVENT_OK(event, size); event = FAN_EVENT_NEXT(event, size)) handle_event(*event);
    flush();
  }
}

std::string Fanotify::handle_of(const file_handle& raw) const {
  FileIdentity identity{.kind = FileIdentity::Kind::kOpenable};
  if (raw.handle_bytes == 0 || raw.handle_bytes > FileIdentity::kBytesMax) return {};
  identity.type = raw.handle_type;
  identity.bytes.assign(reinterpret_cast<const char*>(raw.f_handle), raw.handle_bytes);
  return nodes_.handle_of(identity);
}

void Fanotify::handle_event(const fanotify_event_metadata& event) {
  if (event.vers != FANOTIFY_METADATA_VERSION || event.mask & FAN_Q_OVERFLOW) return events_.missed();
  if (event.pid == ::getpid()) return;  // a client's, who was asked first
  std::string directory;
  std::string name;
  std::string node;
  const auto* const begin = reinterpret_cast<const char*>(&event);
  for (std::size_t at = event.metadata_len; at + sizeof(fanotify_event_info_header) <= event.event_len;) {
    const auto* const info = reinterpret_cast<const fanotify_event_info_fid*>(begin + at);
    if (info->hdr.len < sizeof(fanotify_event_info_fid) || at + info->hdr.len > event.event_len) break;
    const auto& raw = *reinterpret_cast<const file_handle*>(info->handle);
    if (info->hdr.info_type == FAN_EVENT_INFO_TYPE_DFID_NAME) {
      directory = handle_of(raw);
      name = reinterpret_cast<const char*>(raw.f_handle) + raw.handle_bytes;
    } else if (info->hdr.info_type == FAN_EVENT_INFO_TYPE_FID) {
      node = handle_of(raw);
    }
    at += info->hdr.len;
  }
  const bool itself = name == ".";
  if (itself && node.empty()) node = directory;
  if ((event.mask & kNameEvents) != 0 && !directory.empty() && !itself && !name.empty())
    add({.handle = directory, .name = name});
  if (!node.empty()) add({.handle = node, .data = (event.mask & kDataEvents) != 0});
}

void Fanotify::add(NodeChange change) {
  if (!changes_.empty() && changes_.back() == change) return;
  changes_.push_back(std::move(change));
  if (changes_.size() >= kChangesAtOnceMax) flush();
}

void Fanotify::flush() {
  if (!changes_.empty()) events_.changed(std::exchange(changes_, {}));
}

}  // namespace

Result<std::unique_ptr<ChangeWatch>> start_fanotify(Export& exported, ChangeWatch::Events events) {
  const Fd& root = *exported.nodes().root();
  if (!named_by_events(exported.nodes().root_handle()))
    return fail(from_errno(EOPNOTSUPP), "its file system has no handles");
  constexpr unsigned kReports = FAN_REPORT_DIR_FID | FAN_REPORT_NAME | FAN_REPORT_FID | FAN_REPORT_TARGET_FID;
  Fd group(::fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK | kReports, O_RDONLY));
  if (!group.valid()) return fail_errno("fanotify_init");
  if (::fanotify_mark(group.number(), FAN_MARK_ADD | FAN_MARK_FILESYSTEM, kWatchedEvents, root.number(),
                      nullptr) != 0)
    return fail_errno("fanotify_mark");
  Fd stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.valid()) return fail_errno("eventfd");
  return std::make_unique<Fanotify>(exported, std::move(events), std::move(group), std::move(stop));
}

}  // namespace tusk::server
