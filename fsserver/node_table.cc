#include "fsserver/node_table.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "fsserver/acting.h"
#include "fsserver/kernel_handle.h"
#include "fsserver/mount_points.h"
#include "proto/base/check.h"
#include "proto/base/shared_bytes.h"
#include "proto/crypto/base64url.h"
#include "proto/io/clock.h"

namespace tusk::server {
namespace {

constexpr std::uint64_t kRootId = 1;
constexpr std::size_t kNamesVisitedAtOnce = 4096;

std::unexpected<Error> stale(std::string why) { return fail(from_errno(ESTALE), std::move(why)); }

// The file is not there any more, or not where it was. All other errors say that nobody could look: without
// descriptors or memory, for instance.
bool says_gone(const Error& error) {
  const int number = to_errno(error.code);
  return number == ENOENT || number == ESTALE || number == ENOTDIR || number == ELOOP || number == EXDEV;
}

Result<Fd> open_handle(const Fd& mount, const FileIdentity& identity, int flags) {
  KernelHandle raw{.handle_bytes = static_cast<unsigned>(identity.bytes.size()),
                   .handle_type = identity.type};
  std::memcpy(raw.f_handle, identity.bytes.data(), identity.bytes.size());
  const int number =
      ::open_by_handle_at(mount.number(), reinterpret_cast<file_handle*>(&raw), flags | O_CLOEXEC);
  if (number < 0) return fail_errno("open by handle");
  return Fd(number);
}

// Where a device is mounted inside `root`.
Result<std::optional<std::string>> mount_point_beneath(std::uint64_t device, std::string_view root) {
  TUSK_ASSIGN(const auto mounts, mount_points_beneath(root));
  const auto found = std::ranges::find(mounts, device, &MountPoint::device);
  return found == mounts.end() ? std::nullopt : std::optional(found->path);
}

}  // namespace

Result<std::unique_ptr<NodeTable>> NodeTable::open(Fd root, std::string_view export_name,
                                                   const crypto::Secret& secret, NodeTableSettings settings) {
  std::unique_ptr<NodeTable> table(new NodeTable(std::move(root), std::move(settings)));
  TUSK_ASSIGN(const Status status, status_of(*table->root_));
  table->root_device_ = device_of(status);
  TUSK_ASSIGN(table->root_identity_, identify(*table->root_, status, table->root_device_));
  table->codec_.emplace(secret, export_name, table->root_identity_);
  table->root_handle_ = table->codec_->encode(table->root_identity_);
  table->opens_by_handle_ = table->settings_.by_handle &&
                            table->root_identity_.kind == FileIdentity::Kind::kOpenable &&
                            open_handle(*table->root_, table->root_identity_, O_PATH).has_value();
  if (!table->opens_by_handle_ && !table->settings_.names_dir.empty()) table->load_names();
  return table;
}

// Without them the server works all the same, and forgets more.
void NodeTable::load_names() {
  const auto digest = crypto::sha256(as_byte_span(root_handle_));
  const auto file = settings_.names_dir / crypto::base64url_encode(std::span(digest).first(16));
  auto names = NameMemory::open(
      file,
      [this](std::string_view handle, std::string_view parent, std::string_view name) {
        const std::lock_guard lock(mutex_);
        if (parent != root_handle_) (void)insert(parent);
        rename(insert(handle), parent, name);
      },
      settings_.names_bytes_max);
  if (!names)
    return spdlog::warn("mounts will lose their files when tuskd restarts: {}", names.error().message());
  names_ = std::move(*names);
  rewrite_names();
}

// Newest first, in slices: all calls need the mutex.
void NodeTable::rewrite_names() {
  const auto written = names_->rewrite(io::now(), [this](const NameMemory::Visitor& visit) {
    std::vector<NodeId> order;
    {
      const std::lock_guard lock(mutex_);
      order.assign(node_order_.rbegin(), node_order_.rend());
    }
    for (std::span<const NodeId> rest(order); !rest.empty();) {
      const auto slice = rest.first(std::min(rest.size(), kNamesVisitedAtOnce));
      rest = rest.subspan(slice.size());
      const std::lock_guard lock(mutex_);
      for (const NodeId id : slice) visit_name(id, visit);
    }
  });
  if (!written) spdlog::warn("mounts may lose files when tuskd restarts: {}", written.error().message());
}

void NodeTable::visit_name(NodeId id, const NameMemory::Visitor& visit) const {
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) return;
  const Node& node = found->second;
  const auto parent = nodes_.find(node.parent);
  if (node.parent == kRootId)
    visit(*node.handle, root_handle_, node.name);
  else if (parent != nodes_.end())
    visit(*node.handle, *parent->second.handle, node.name);
}

bool NodeTable::root_exists() const {
  const auto status = status_of(*root_);
  return status ? status->stx_nlink > 0 : !says_gone(status.error());
}

std::pair<std::string, std::string> NodeTable::place_of(std::string_view handle) {
  const std::lock_guard lock(mutex_);
  const Node* const node = find(handle);
  if (node == nullptr || node->name.empty()) return {};
  if (node->parent == kRootId) return {root_handle_, node->name};
  const auto parent = nodes_.find(node->parent);
  if (parent == nodes_.end()) return {};
  return {*parent->second.handle, node->name};
}

Result<SharedFd> NodeTable::resolve(std::string_view handle) {
  if (handle == root_handle_) return root_;
  if (SharedFd fd = held(handle)) return fd;
  const ActingAsServer privileged;
  TUSK_ASSIGN(const FileIdentity identity, codec_->decode(handle));
  Result<SharedFd> found = stale("the file has not been seen since tuskd started");
  if (auto path = path_to(handle)) found = walk(*path, identity);
  if (!found && says_gone(found.error()) && opens_by_handle_) found = open_by_handle(identity);
  if (!found && says_gone(found.error())) return stale(found.error().message());
  if (!found) return found;

  const std::lock_guard lock(mutex_);
  hold(insert(handle), *found);
  return found;
}

// A directory that is in use all the time would stay open, with all beneath it, wherever it is moved to.
SharedFd NodeTable::held(std::string_view handle) {
  SharedFd fd;
  {
    const std::lock_guard lock(mutex_);
    Node* const node = find(handle);
    if (node == nullptr || !node->fd) return nullptr;
    touch(*node);
    if (node->used - node->checked < settings_.recheck_after) return node->fd;
    fd = node->fd;
  }
  const auto status = status_of(*fd);
  const bool inside = status && (status->stx_nlink == 0 || check_beneath(*fd, *status));
  const std::lock_guard lock(mutex_);
  if (Node* const node = find(handle); node != nullptr && node->fd == fd) {
    if (inside)
      node->checked = node->used;
    else
      let_go(*node);
  }
  return inside ? fd : nullptr;
}

std::optional<NodeTable::Path> NodeTable::path_to(std::string_view handle) {
  const std::lock_guard lock(mutex_);
  Node* node = find(handle);
  Path path;
  for (int depth = 0; node != nullptr && depth < kDepthMax; ++depth) {
    touch(*node);
    if (node->name.empty()) return std::nullopt;
    path.names.push_back(node->name);
    if (node->parent == kRootId) path.start = root_;
    const auto parent = nodes_.find(node->parent);
    node = parent == nodes_.end() ? nullptr : &parent->second;
    if (node != nullptr) path.start = node->fd;
    if (path.start) {
      std::ranges::reverse(path.names);
      return path;
    }
  }
  return std::nullopt;
}

Result<SharedFd> NodeTable::walk(const Path& path, const FileIdentity& wanted) const {
  SharedFd fd = path.start;
  for (const std::string& name : path.names) {
    TUSK_ASSIGN(Fd next, open_child(*fd, name));
    fd = share(std::move(next));
  }
  TUSK_ASSIGN(const Status status, status_of(*fd));
  TUSK_ASSIGN(const FileIdentity identity, identify(*fd, status, root_device_));
  if (identity != wanted) return stale("another file has its name now");
  if (path.start == root_) return fd;
  TUSK_ASSIGN(const std::string place, path_of(*fd));
  TUSK_ASSIGN(const std::string root, path_of(*root_));
  if (!lies_beneath(place, root)) return stale("moved out of the export");
  return fd;
}

Result<SharedFd> NodeTable::open_by_handle(const FileIdentity& identity) const {
  if (identity.kind != FileIdentity::Kind::kOpenable) return stale("this file system has no lasting handles");
  TUSK_ASSIGN(const SharedFd mount, mount_of(identity.device));
  TUSK_ASSIGN(Fd fd, open_handle(*mount, identity, O_PATH | O_NOFOLLOW));
  TUSK_ASSIGN(const Status status, status_of(fd));
  if (device_of(status) != (identity.device == 0 ? root_device_ : identity.device))
    return stale("its file system is not mounted any more");
  TUSK_TRY(check_beneath(fd, status));
  return share(std::move(fd));
}

// Any descriptor on the file system will do, but not an O_PATH one. A device that is not in the mount
// table is a subvolume of the root's file system (btrfs) or gone. None is kept: it would make the mount busy.
Result<SharedFd> NodeTable::mount_of(std::uint64_t device) const {
  if (device == 0) return root_;
  TUSK_ASSIGN(const std::string root_path, path_of(*root_));
  TUSK_ASSIGN(const auto point, mount_point_beneath(device, root_path));
  if (!point) return root_;
  Fd fd(::open(point->c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) return fail_errno(*point);
  return share(std::move(fd));
}

// The MAC says that this server has shown the file to a client of this export, so a file was inside once.
// What has been moved out since is refused as far as the kernel can tell: for directories always (all
// their contents hang on them); for other files only if their one name is known to be outside, since
// after a restart the kernel may know the inode and none of its names (its path reads "/").
Result<void> NodeTable::check_beneath(const Fd& fd, const Status& status) const {
  if (status.stx_nlink == 0) return stale("removed");
  TUSK_ASSIGN(const std::string path, path_of(fd));
  TUSK_ASSIGN(const std::string root, path_of(*root_));
  if (lies_beneath(path, root)) return {};
  const bool directory = S_ISDIR(status.stx_mode);
  if (!directory && (path == "/" || status.stx_nlink > 1)) return {};
  return stale("moved out of the export");
}

Result<NodeTable::Found> NodeTable::lookup(const SharedFd& parent, std::string_view parent_handle,
                                           std::string_view name, Keep keep) {
  TUSK_TRY(check_file_name(name));
  TUSK_ASSIGN(Fd fd, open_child(*parent, name));
  return enter(share(std::move(fd)), parent_handle, name, keep);
}

Result<NodeTable::Found> NodeTable::enter(SharedFd fd, std::string_view parent_handle, std::string_view name,
                                          Keep keep) {
  TUSK_ASSIGN(const Status status, status_of(*fd));
  TUSK_ASSIGN(const FileIdentity identity, identify(*fd, status, root_device_));
  std::string handle = codec_->encode(identity);

  const std::lock_guard lock(mutex_);
  Node& node = insert(handle);
  rename(node, parent_handle, name);
  if (keep == Keep::kYes)
    hold(node, fd);
  else
    touch(node);
  return Found{std::move(fd), status, std::move(handle)};
}

void NodeTable::renamed(std::string_view handle, std::string_view new_parent, std::string_view new_name) {
  const std::lock_guard lock(mutex_);
  Node* node = find(handle);
  if (node != nullptr) rename(*node, new_parent, new_name);
}

void NodeTable::removed(std::string_view handle) {
  const std::lock_guard lock(mutex_);
  if (Node* node = find(handle)) let_go(*node);
}

void NodeTable::close_idle(TimePoint now) {
  std::vector<SharedFd> closing;  // closed after the lock: a last close can take its time
  const std::lock_guard lock(mutex_);
  while (!fd_order_.empty()) {
    Node& node = nodes_.at(fd_order_.front());
    if (now - node.used < kDescriptorIdleMax) return;
    closing.push_back(node.fd);
    let_go(node);
  }
}

// What is known here is enough: a file system whose server does not answer must not keep housekeeping.
void NodeTable::close_removed(TimePoint now) {
  std::vector<std::pair<NodeId, SharedFd>> held;
  {
    const std::lock_guard lock(mutex_);
    for (const NodeId id : fd_order_) {
      const Node& node = nodes_.at(id);
      if (now - node.used < kRemovedIdleMax) break;
      held.emplace_back(id, node.fd);
    }
  }
  std::erase_if(held, [](const auto& node) {
    struct statx status {};
    constexpr int kHow = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
    return ::statx(node.second->number(), "", kHow, STATX_NLINK, &status) != 0 || status.stx_nlink > 0;
  });
  const std::lock_guard lock(mutex_);
  for (const auto& [id, fd] : held) {
    const auto found = nodes_.find(id);
    if (found != nodes_.end() && found->second.fd == fd) let_go(found->second);
  }
}

void NodeTable::keep_names() {
  if (!names_) return;
  if (names_->worn(io::now())) rewrite_names();
  names_->flush(io::now());
}

void NodeTable::housekeep(TimePoint now) {
  close_idle(now);
  close_removed(now);
  keep_names();
}

std::size_t NodeTable::nodes() const {
  const std::lock_guard lock(mutex_);
  return nodes_.size();
}

std::size_t NodeTable::descriptors() const {
  const std::lock_guard lock(mutex_);
  return fd_order_.size();
}

NodeTable::Node* NodeTable::find(std::string_view handle) {
  const auto id = ids_.find(handle);
  return id == ids_.end() ? nullptr : &nodes_.at(id->second);
}

NodeTable::Node& NodeTable::insert(std::string_view handle) {
  if (Node* known = find(handle)) return *known;
  if (nodes_.size() >= settings_.nodes_max) forget(node_order_.front());
  const NodeId id = ++next_id_;
  const auto key = ids_.emplace(std::string(handle), id).first;
  node_order_.push_back(id);
  Node node{.id = id, .handle = &key->first, .parent = 0, .name = {}, .fd = {}};
  node.node_place = std::prev(node_order_.end());
  return nodes_.emplace(id, std::move(node)).first->second;
}

NodeTable::NodeId NodeTable::id_of_directory(std::string_view handle) {
  if (handle == root_handle_) return kRootId;
  const Node* const directory = find(handle);
  return directory == nullptr ? 0 : directory->id;
}

void NodeTable::rename(Node& node, std::string_view parent_handle, std::string_view name) {
  const NodeId parent = id_of_directory(parent_handle);
  if (parent == 0 || (node.parent == parent && node.name == name)) return;
  node.parent = parent;
  node.name = name;
  if (names_) names_->remember(*node.handle, parent_handle, name);
}

void NodeTable::hold(Node& node, SharedFd fd) {
  if (!node.fd) {
    if (fd_order_.size() >= settings_.descriptors_max) let_go(nodes_.at(fd_order_.front()));
    fd_order_.push_back(node.id);
    node.fd_place = std::prev(fd_order_.end());
  }
  node.fd = std::move(fd);
  touch(node);
  node.checked = node.used;
}

void NodeTable::let_go(Node& node) {
  if (!node.fd) return;
  fd_order_.erase(node.fd_place);
  node.fd.reset();
}

void NodeTable::forget(NodeId id) {
  Node& node = nodes_.at(id);
  let_go(node);
  node_order_.erase(node.node_place);
  ids_.erase(ids_.find(*node.handle));
  nodes_.erase(id);
}

void NodeTable::touch(Node& node) {
  node.used = io::now();
  node_order_.splice(node_order_.end(), node_order_, node.node_place);
  if (node.fd) fd_order_.splice(fd_order_.end(), fd_order_, node.fd_place);
}

}  // namespace tusk::server
