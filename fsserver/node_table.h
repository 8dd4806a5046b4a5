// What the server knows of the files that clients hold handles of: under which name each was last
// seen, and a descriptor of those used lately.
//
// Everything here can be forgotten at any time (memory is bounded, servers restart). A handle is then
// found again by walking the names from the nearest known directory and comparing identities, or, where
// the server has the right to, by asking the file system for the inode and checking where it lies. Where
// it has not, the names are kept on disk (name_memory.h). Thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fsserver/attributes.h"
#include "fsserver/confined.h"
#include "fsserver/fd.h"
#include "fsserver/handle_codec.h"
#include "fsserver/name_memory.h"
#include "proto/base/result.h"
#include "proto/base/time.h"

namespace tusk::server {

struct NodeTableSettings {
  std::size_t nodes_max = 1'000'000;     // names remembered: about 300 bytes each
  std::size_t descriptors_max = 16'384;  // O_PATH descriptors held open between calls
  bool by_handle = true;                 // false: as a server without the right to open by handle
  Duration recheck_after = 5s;           // how long a descriptor is believed to lie inside the export
  std::filesystem::path names_dir;       // for name memories; empty: names do not survive a restart
  std::size_t names_bytes_max = kNameMemoryBytesMax;
};

constexpr int kDepthMax = 4096;  // directories above a file that are walked again to find it

// A held descriptor keeps its file system mounted, and the space of a file in use that somebody else has
// removed: not for long.
constexpr Duration kDescriptorIdleMax = 20s;
constexpr Duration kRemovedIdleMax = 1s;

class NodeTable {
 public:
  // An inode and what was seen of it.
  struct Found {
    SharedFd fd;  // O_PATH
    Status status;
    std::string handle;
  };

  // `root`: the exported directory, open for reading.
  [[nodiscard]] static Result<std::unique_ptr<NodeTable>> open(Fd root, std::string_view export_name,
                                                               const crypto::Secret& secret,
                                                               NodeTableSettings settings);

  [[nodiscard]] const std::string& root_handle() const { return root_handle_; }
  [[nodiscard]] std::uint64_t root_device() const { return root_device_; }
  [[nodiscard]] bool root_exists() const;

  // Whether this export's server has made the handle. Cheaper than resolve(): no file is looked for.
  [[nodiscard]] bool genuine(std::string_view handle) const { return codec_->decode(handle).has_value(); }
  // The handle of a node of the root's file system, from what the kernel calls it.
  [[nodiscard]] std::string handle_of(const FileIdentity& identity) const { return codec_->encode(identity); }
  // The directory in which a node was last seen, and its name there; "" if that is not known.
  [[nodiscard]] std::pair<std::string, std::string> place_of(std::string_view handle);
  // Through it every file of the export can be reached; open for reading.
  [[nodiscard]] const SharedFd& root() const { return root_; }

  // The inode of a handle as an O_PATH descriptor. ESTALE when the handle is not this export's, or the
  // file is gone or out of the export.
  [[nodiscard]] Result<SharedFd> resolve(std::string_view handle);

  // `name` (checked here) in the directory `parent`. `keep`: hold the descriptor, it will be used soon.
  enum class Keep : bool { kNo, kYes };
  [[nodiscard]] Result<Found> lookup(const SharedFd& parent, std::string_view parent_handle,
                                     std::string_view name, Keep keep = Keep::kYes);

  // The same for a file that has just been opened or created under that name.
  [[nodiscard]] Result<Found> enter(SharedFd fd, std::string_view parent_handle, std::string_view name,
                                    Keep keep);

  // The file is known under a new name, or under none any more (its descriptor is let go).
  void renamed(std::string_view handle, std::string_view new_parent, std::string_view new_name);
  void removed(std::string_view handle);

  // What the client has been told of, a server process that comes after this one knows, however this one
  // ends: before an answer that the client will rest on.
  void keep_names();
  // There are names that are not on the disk.
  [[nodiscard]] bool names_wait() const { return names_ && names_->pending(); }

  // Lets go descriptors that were not used for kDescriptorIdleMax, or kRemovedIdleMax if the file has no name
  // any more; writes new names to the disk.
  void housekeep(TimePoint now);

  [[nodiscard]] std::size_t nodes() const;
  [[nodiscard]] std::size_t descriptors() const;
  // True: handles outlive everything but the file. False (not root): a file that was renamed by somebody
  // else while the server did not hold it is ESTALE until it is looked up again.
  [[nodiscard]] bool opens_by_handle() const { return opens_by_handle_; }

 private:
  using NodeId = std::uint64_t;  // never reused
  struct Node {
    NodeId id;
    const std::string* handle;  // the key in nodes_
    NodeId parent;
    std::string name;
    SharedFd fd;
    TimePoint used{};
    TimePoint checked{};  // that it lies inside the export; valid while fd is set
    std::list<NodeId>::iterator node_place;
    std::list<NodeId>::iterator fd_place;  // valid while fd is set
  };
  // A way down from a directory that is open.
  struct Path {
    SharedFd start;
    std::vector<std::string> names;
  };

  NodeTable(Fd root, NodeTableSettings settings)
      : root_(share(std::move(root))), settings_(std::move(settings)) {}

  // A held descriptor that (still) leads inside the export; nullptr: there is none.
  [[nodiscard]] SharedFd held(std::string_view handle);
  [[nodiscard]] std::optional<Path> path_to(std::string_view handle);
  [[nodiscard]] Result<SharedFd> walk(const Path& path, const FileIdentity& wanted) const;
  [[nodiscard]] Result<SharedFd> open_by_handle(const FileIdentity& identity) const;
  [[nodiscard]] Result<SharedFd> mount_of(std::uint64_t device) const;
  [[nodiscard]] Result<void> check_beneath(const Fd& fd, const Status& status) const;

  void load_names();
  void rewrite_names();
  void close_idle(TimePoint now);
  void close_removed(TimePoint now);

  // All below: with mutex_ held.
  void visit_name(NodeId id, const NameMemory::Visitor& visit) const;
  Node* find(std::string_view handle);
  Node& insert(std::string_view handle);
  void hold(Node& node, SharedFd fd);
  void let_go(Node& node);
  void forget(NodeId id);
  void touch(Node& node);
  [[nodiscard]] NodeId id_of_directory(std::string_view handle);
  void rename(Node& node, std::string_view parent_handle, std::string_view name);

  // Constant after construction.
  SharedFd root_;
  NodeTableSettings settings_;
  std::optional<HandleCodec> codec_;
  std::string root_handle_;
  FileIdentity root_identity_;
  std::uint64_t root_device_ = 0;
  bool opens_by_handle_ = false;
  std::unique_ptr<NameMemory> names_;  // nullptr: not needed, or no place for it

  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  mutable std::mutex mutex_;
  std::unordered_map<std::string, NodeId, TextHash, std::equal_to<>> ids_;
  std::unordered_map<NodeId, Node> nodes_;
  std::list<NodeId> node_order_;  // least recently used first
  std::list<NodeId> fd_order_;    // least recently used first
  NodeId next_id_ = 1;
};

}  // namespace tusk::server
