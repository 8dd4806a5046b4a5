#include "fsserver/lease_effects.h"

#include <fcntl.h>

namespace tusk::server {
namespace {

class Effects {
 public:
  Effects(NodeTable& nodes, bool victims) : nodes_(nodes), victims_(victims) {}

  void node(const std::string& handle, bool data = false) { add({.handle = handle, .data = data}); }
  // A name, and with `occupant` the file it is the name of.
  enum class Occupant : std::uint8_t { kNone, kAttributes, kData };
  void name(const std::string& directory, const std::string& name, Occupant occupant) {
    if (name.empty() || name.size() > kFileNameBytesMax) return;
    if (!add({.handle = directory, .name = name}) || occupant == Occupant::kNone || !victims_) return;
    const auto parent = nodes_.resolve(directory);
    if (!parent) return;
    if (const auto found = nodes_.lookup(*parent, directory, name, NodeTable::Keep::kNo))
      node(found->handle, occupant == Occupant::kData);
  }
  [[nodiscard]] std::vector<NodeChange> take() { return std::move(changes_); }

 private:
  // What no server has told needs not be taken back, and must not pass for what one has.
  bool add(NodeChange change) {
    if (!nodes_.genuine(change.handle)) return false;
    changes_.push_back(std::move(change));
    return true;
  }

  NodeTable& nodes_;
  const bool victims_;
  std::vector<NodeChange> changes_;
};

}  // namespace

std::vector<NodeChange> changes_of(const schema::Request& request, NodeTable& nodes, bool victims) {
  using Request = schema::Request;
  using Occupant = Effects::Occupant;
  Effects effects(nodes, victims);
  switch (request.operation_case()) {
    case Request::kSetattr:
      effects.node(request.setattr().handle(), request.setattr().has_size());
      break;
    case Request::kOpen:
      if (request.open().flags() & O_TRUNC) effects.node(request.open().handle(), true);
      break;
    case Request::kCreate:
      effects.name(request.create().parent(), request.create().name(),
                   request.create().flags() & O_TRUNC ? Occupant::kData : Occupant::kNone);
      break;
    case Request::kWrite:
      effects.node(request.write().handle(), true);
      break;
    case Request::kAllocate:
      effects.node(request.allocate().handle(), true);
      break;
    case Request::kCopyRange:
      effects.node(request.copy_range().target(), true);
      break;
    case Request::kSetxattr:
      effects.node(request.setxattr().handle());
      break;
    case Request::kRemovexattr:
      effects.node(request.removexattr().handle());
      break;
    case Request::kMakeNode:
      effects.name(request.make_node().parent(), request.make_node().name(), Occupant::kNone);
      break;
    case Request::kRemove:
      effects.name(request.remove().parent(), request.remove().name(), Occupant::kAttributes);
      break;
    case Request::kRename:
      effects.name(request.rename().old_parent(), request.rename().old_name(), Occupant::kAttributes);
      effects.name(request.rename().new_parent(), request.rename().new_name(), Occupant::kAttributes);
      break;
    case Request::kLink:
      effects.node(request.link().handle());
      effects.name(request.link().new_parent(), request.link().new_name(), Occupant::kNone);
      break;
    default:
      break;
  }
  return effects.take();
}

std::vector<std::string_view> looked_at(const schema::Request& request) {
  using Request = schema::Request;
  std::vector<std::string_view> directories;
  switch (request.operation_case()) {
    case Request::kLookup:
      directories.push_back(request.lookup().parent());
      break;
    case Request::kGetattr:
      directories.push_back(request.getattr().handle());
      break;
    case Request::kReaddir:
      directories.push_back(request.readdir().handle());
      break;
    case Request::kWalk:
      for (const auto& start : request.walk().starts()) directories.push_back(start.handle());
      break;
    case Request::kReadFiles:
      for (const auto& folder : request.read_files().folders()) directories.push_back(folder.handle());
      break;
    default:
      break;
  }
  return directories;
}

}  // namespace tusk::server
