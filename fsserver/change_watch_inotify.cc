// inotify(7) on the directories that clients have leases on.
//
// An event names a directory and a name in it, not a file and not who made it. So a file is covered only
// while it has one name, in a watched directory; and an event counts as tuskd's own when the state it leads
// to is the one that a client's change has left. (A program that links a covered file into another directory
// and writes to it there is not seen.)
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include <array>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>

#include "fsserver/acting.h"
#include "fsserver/change_watch.h"
#include "proto/io/clock.h"

namespace tusk::server {
namespace {

constexpr std::uint32_t kInotifyNames = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO;
constexpr std::uint32_t kInotifyData = IN_MODIFY | IN_CLOSE_WRITE;
constexpr std::uint32_t kInotifyEnds = IN_IGNORED | IN_UNMOUNT;
constexpr std::uint32_t kInotifyWatched =
    kInotifyNames | kInotifyData | IN_ATTRIB | IN_ONLYDIR | IN_DELETE_SELF;
constexpr std::size_t kInotifyBufferBytes = 64 * 1024;
constexpr std::size_t kWatchesMax = 50'000;
constexpr Duration kOwnEventsWithin = 2s;     // of the change
constexpr std::size_t kOwnChangesMax = 4096;  // remembered, until their events have come

class Inotify final : public ChangeWatch {
 public:
  Inotify(Export& exported, Events events, Fd queue, Fd stop)
      : nodes_(exported.nodes()),
        events_(std::move(events)),
        queue_(std::move(queue)),
        stop_(std::move(stop)),
        thread_([this] { run(); }) {}

  ~Inotify() override {
    const std::uint64_t one = 1;
    (void)!::write(stop_.number(), &one, sizeof one);
    thread_.join();
  }

  [[nodiscard]] schema::ChangeWatching kind() const override { return schema::WATCH_INOTIFY; }
  [[nodiscard]] bool watch_node(std::string_view handle, const Status& status) override;
  [[nodiscard]] bool watch_names(std::string_view handle, const Fd& directory) override;
  void begin_own(const std::vector<NodeChange>& changes) override;
  void end_own(const std::vector<NodeChange>& changes) override;

 private:
  using Place = std::pair<std::string, std::string>;  // a node, and "" or a name in it

  void run();
  void handle_event(const inotify_event& event, std::vector<NodeChange>& changes);
  // What is there now: of a node its change counter, of a name whose name it is; "" for nothing.
  [[nodiscard]] std::string state_of(const Place& place);
  // The change at this place is a client's, and nobody else's.
  [[nodiscard]] bool own(const Place& place, const std::string& state);
  [[nodiscard]] std::string occupant(const std::string& directory, const std::string& name);

  NodeTable& nodes_;
  const Events events_;
  const Fd queue_;
  const Fd stop_;

  std::mutex mutex_;
  std::unordered_map<std::string, int> watches_;
  std::unordered_map<int, std::string> directories_;
  std::multiset<Place> changing_;
  struct Left {
    std::string state;
    TimePoint at{};
  };
  std::map<Place, Left> left_;  // by clients' changes: what was there then
  std::deque<Place> left_order_;

  std::thread thread_;  // last
};

bool Inotify::watch_names(std::string_view handle, const Fd& directory) {
  const std::lock_guard lock(mutex_);
  if (watches_.contains(std::string(handle))) return true;
  if (watches_.size() >= kWatchesMax) return false;
  const int watch = ::inotify_add_watch(queue_.number(), proc_path(directory).c_str(), kInotifyWatched);
  if (watch < 0) return false;
  watches_.emplace(handle, watch);
  directories_.insert_or_assign(watch, std::string(handle));
  return true;
}

bool Inotify::watch_node(std::string_view handle, const Status& status) {
  if (device_of(status) != nodes_.root_device()) return false;
  const auto watched = [this](std::string_view directory) {
    const std::lock_guard lock(mutex_);
    return watches_.contains(std::string(directory));
  };
  if (S_ISDIR(status.stx_mode)) {
    // Its own watch tells of its attributes: they are told with its parent's listing, before its own names.
    const auto directory = nodes_.resolve(handle);
    return directory && watch_names(handle, **directory);
  }
  if (status.stx_nlink != 1) return false;
  // The name is looked at after the watch was made: if it goes, there will be an event.
  const auto [parent, name] = nodes_.place_of(handle);
  if (parent.empty() || !watched(parent)) return false;
  const auto directory = nodes_.resolve(parent);
  struct stat there {};
  return directory && ::fstatat((*directory)->number(), name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
         there.st_ino == status.stx_ino;
}

// ---------------------------------------------------------------- clients' own changes

std::string Inotify::occupant(const std::string& directory, const std::string& name) {
  const auto parent = nodes_.resolve(directory);
  if (!parent) return {};
  const auto found = nodes_.lookup(*parent, directory, name, NodeTable::Keep::kNo);
  return found ? found->handle : std::string();
}

std::string Inotify::state_of(const Place& place) {
  const ActingAsServer privileged;
  if (!place.second.empty()) return occupant(place.first, place.second);
  const auto node = nodes_.resolve(place.first);
  const auto status = node ? status_of(**node) : Result<Status>(std::unexpected(node.error()));
  return status ? std::to_string(change_of(*status)) : std::string();
}

void Inotify::begin_own(const std::vector<NodeChange>& changes) {
  const std::lock_guard lock(mutex_);
  for (const NodeChange& change : changes) changing_.emplace(change.handle, change.name);
}

void Inotify::end_own(const std::vector<NodeChange>& changes) {
  for (const NodeChange& change : changes) {
    const Place place{change.handle, change.name};
    std::string state = state_of(place);
    const std::lock_guard lock(mutex_);
    changing_.erase(changing_.find(place));
    left_.insert_or_assign(place, Left{std::move(state), io::now()});
    left_order_.push_back(place);
    if (left_order_.size() <= kOwnChangesMax) continue;
    left_.erase(left_order_.front());
    left_order_.pop_front();
  }
}

bool Inotify::own(const Place& place, const std::string& state) {
  const std::lock_guard lock(mutex_);
  if (changing_.contains(place)) return true;
  const auto left = left_.find(place);
  if (left == left_.end()) return false;
  if (left->second.state == state && io::now() - left->second.at < kOwnEventsWithin) return true;
  left_.erase(left);  // somebody else's came after it; what is like it from now on is nobody's in particular
  return false;
}

// ---------------------------------------------------------------- events

void Inotify::run() {
  alignas(inotify_event) std::array<char, kInotifyBufferBytes> buffer;
  while (true) {
    std::array<pollfd, 2> waits{{{.fd = queue_.number(), .events = POLLIN, .revents = 0},
                                 {.fd = stop_.number(), .events = POLLIN, .revents = 0}}};
    if (::poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) return events_.missed();
    if (waits[1].revents != 0) return;
    const ssize_t size = ::read(queue_.number(), buffer.data(), buffer.size());
    std::vector<NodeChange> changes;
    for (ssize_t at = 0; at < size;) {
      const auto& event = *reinterpret_cast<const inotify_event*>(buffer.data() + at);
      if (event.mask & IN_Q_OVERFLOW)
        events_.missed();
      else
        handle_event(event, changes);
      at += static_cast<ssize_t>(sizeof event + event.len);
    }
    if (!changes.empty()) events_.changed(changes);
  }
}

void Inotify::handle_event(const inotify_event& event, std::vector<NodeChange>& changes) {
  std::string directory;
  {
    const std::lock_guard lock(mutex_);
    const auto found = directories_.find(event.wd);
    if (found == directories_.end()) return;
    directory = found->second;
    if (event.mask & kInotifyEnds) {
      watches_.erase(directory);
      directories_.erase(found);
    }
  }
  const auto add = [&changes](NodeChange change) {
    if (changes.empty() || changes.back() != change) changes.push_back(std::move(change));
  };
  if (event.mask & (kInotifyEnds | IN_DELETE_SELF)) return add({.handle = directory, .entries = true});
  const std::string name = event.len > 0 ? event.name : "";
  if (name.empty()) {
    if (!own({directory, ""}, state_of({directory, ""}))) add({.handle = directory});
    return;
  }
  const std::string node = state_of({directory, name});
  if ((event.mask & kInotifyNames) != 0 && !own({directory, name}, node))
    add({.handle = directory, .name = name});
  if (node.empty() || own({node, ""}, state_of({node, ""}))) return;
  if ((event.mask & kInotifyNames) == 0 || !own({directory, name}, node))
    add({.handle = node, .data = (event.mask & kInotifyData) != 0});
}

}  // namespace

Result<std::unique_ptr<ChangeWatch>> start_inotify(Export& exported, ChangeWatch::Events events) {
  Fd queue(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!queue.valid()) return fail_errno("inotify_init");
  Fd stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.valid()) return fail_errno("eventfd");
  return std::make_unique<Inotify>(exported, std::move(events), std::move(queue), std::move(stop));
}

}  // namespace tusk::server
