// Operations that make, remove and move names: make_node, remove, rename, link.
#include <linux/fs.h>
#include <stdio.h>
#include <sys/stat.h>

#include <climits>

#include "fsserver/creation_mask.h"
#include "fsserver/file_change.h"
#include "fsserver/made_at.h"
#include "fsserver/operations.h"
#include "fsserver/special_bits.h"

namespace tusk::server::ops {
namespace {

Result<void> check_target(std::string_view target) {
  if (target.empty()) return fail(from_errno(ENOENT), "a symlink needs a target");
  if (target.size() >= PATH_MAX) return fail(from_errno(ENAMETOOLONG));
  if (target.find('\0') != std::string_view::npos) return fail(from_errno(EINVAL));
  return {};
}

// mknod(2) and its relatives. Special bits come later (exact_mode): a set-user-ID file must not exist
// before it belongs to its owner.
Result<void> make(const Call& call, const Fd& parent, const schema::MakeNodeRequest& request) {
  const char* const name = request.name().c_str();
  const CreationMask mask(request.umask());
  const mode_t permissions = mask.argument((request.mode() | request.umask()) & 0777);
  const mode_t type = request.mode() & S_IFMT;
  switch (type) {
    case S_IFDIR:
      if (::mkdirat(parent.number(), name, permissions) != 0) return fail_errno("mkdir");
      return {};
    case S_IFLNK:
      TUSK_TRY(check_target(request.target()));
      if (::symlinkat(request.target().c_str(), parent.number(), name) != 0) return fail_errno("symlink");
      return {};
    case S_IFCHR:
    case S_IFBLK:
      TUSK_TRY(check_device(call, type, request.rdev()));
      [[fallthrough]];
    case 0:
    case S_IFREG:
    case S_IFIFO:
    case S_IFSOCK:
      if (::mknodat(parent.number(), name, (type == 0 ? S_IFREG : type) | permissions, request.rdev()) != 0)
        return fail_errno("mknod");
      return {};
    default:
      return fail(from_errno(EINVAL), "no such type of file");
  }
}

// What the kernel left out of the wanted mode on the way: bits that only chmod sets. The set-group-ID
// bit that a directory inherits stays.
Result<void> exact_mode(const Call& call, NodeTable::Found& found, std::uint32_t wanted) {
  const bool directory = S_ISDIR(found.status.stx_mode);
  if (S_ISLNK(found.status.stx_mode)) return {};
  const std::uint32_t special = permitted_mode(call, found.status.stx_mode, wanted) & 07000;
  const std::uint32_t present = found.status.stx_mode & 07777;
  if (special == 0 || (present & special) == special) return {};
  if (::chmod(proc_path(*found.fd).c_str(), present | special) != 0)
    return fail_errno(directory ? "chmod of the new directory" : "chmod of the new file");
  TUSK_ASSIGN(found.status, status_of(*found.fd));
  return {};
}

struct Place {
  SharedFd parent;
  std::string_view handle;
  std::string_view name;
};

Result<Place> place(const Call& call, const std::string& handle, const std::string& name) {
  TUSK_TRY(check_file_name(name));
  TUSK_ASSIGN(SharedFd parent, call.node(handle));
  return Place{std::move(parent), handle, name};
}

// A name that is about to go: which file it is, if there is one.
std::optional<NodeTable::Found> occupant(const Call& call, const Place& at) {
  auto found = call.nodes().lookup(at.parent, at.handle, at.name, NodeTable::Keep::kNo);
  return found ? std::optional(std::move(*found)) : std::nullopt;
}

// What is to be made again is there already.
bool made_before(const Call& call, const NodeTable::Found& found) {
  const auto& request = call.request().make_node();
  const mode_t type = request.mode() & S_IFMT;
  if ((found.status.stx_mode & S_IFMT) != (type == 0 ? S_IFREG : type)) return false;
  // A redo that was begun anew; another file of that name may be a later one, or somebody else's.
  if (call.redo() != nullptr && type != S_IFDIR && type != S_IFLNK) return was_made_at(call, found.status);
  if (type != S_IFLNK) return true;
  std::string target(PATH_MAX, '\0');
  const ssize_t length = ::readlinkat(found.fd->number(), "", target.data(), target.size());
  return length >= 0 && request.target() == std::string_view(target.data(), static_cast<std::size_t>(length));
}

bool is_node(const std::optional<NodeTable::Found>& found, const std::string& handle) {
  return found ? found->handle == handle : handle.empty();
}

// Times that the client has given both: what was moved before and what has been made once more to be moved.
bool looks_the_same(const NodeTable::Found& one, const NodeTable::Found& other) {
  const Status& a = one.status;
  const Status& b = other.status;
  return a.stx_mode == b.stx_mode && a.stx_size == b.stx_size && a.stx_mtime.tv_sec == b.stx_mtime.tv_sec &&
         a.stx_mtime.tv_nsec == b.stx_mtime.tv_nsec;
}

enum class Move : std::uint8_t { kDo, kReplace, kRemoveReplaced, kDone };

// In a redo: the move had reached the disk, and the replaced file had not, so an entry has made it once more.
// The move removes it again, if the server still has the moved file or a later entry removes that one.
bool replaces_what_was_made_again(const Call& call, const std::optional<NodeTable::Found>& replaced) {
  const auto& request = call.request().rename();
  if (request.flags() != 0 || request.expected().empty() || request.replaced().empty()) return false;
  if (!replaced || replaced->handle != request.replaced()) return false;
  if (call.request().node() == request.expected()) return true;
  const auto moved = call.node(request.expected());
  const auto status = moved ? status_of(**moved) : std::unexpected(moved.error());
  return status && status->stx_nlink > 0;
}

// An entry of a LOG moves what its maker knew there and nothing else.
Result<Move> check_move(const Call& call, const std::optional<NodeTable::Found>& moving,
                        const std::optional<NodeTable::Found>& replaced) {
  const auto& request = call.request().rename();
  const bool exchange = (request.flags() & RENAME_EXCHANGE) != 0;
  if (!call.log()) return Move::kDo;
  const bool named = !request.expected().empty();
  // It was moved then, and maybe moved on or removed.
  if (call.redo() != nullptr && (!named || !is_node(moving, request.expected())))
    return replaces_what_was_made_again(call, replaced) ? Move::kRemoveReplaced : Move::kDone;
  if (call.redo() != nullptr && !replaced) return Move::kDo;
  if (call.again() && !moving && named && is_node(replaced, request.expected())) return Move::kDone;
  if (!named || (is_node(moving, request.expected()) && is_node(replaced, request.replaced())))
    return Move::kDo;
  if (call.again() && exchange && is_node(moving, request.replaced()) &&
      is_node(replaced, request.expected()))
    return Move::kDone;
  // In a redo nodes are told apart by their handles: files that were made within one tick look the same, too.
  if (call.again() && call.redo() == nullptr && !exchange && is_node(moving, request.expected()) &&
      replaced && S_ISREG(replaced->status.stx_mode) && looks_the_same(*moving, *replaced))
    return Move::kReplace;
  if (!moving) return fail(from_errno(ENOENT), "rename");
  return fail(from_errno(ECANCELED), "another file has the name by now");
}

// renameat2(2). A name that the maker of a LOG's entry knew to be free is taken only if it still is: a
// program on the server may have been faster since it was looked at.
Result<void> move_name(const Call& call, const Place& from, const Place& to, Move move) {
  const auto& request = call.request().rename();
  const std::uint32_t flags = move == Move::kReplace ? 0 : request.flags();
  const auto move_as = [&](std::uint32_t how) {
    return ::renameat2(from.parent->number(), request.old_name().c_str(), to.parent->number(),
                       request.new_name().c_str(), how) == 0;
  };
  const bool known_free = call.log() && !request.expected().empty() && request.replaced().empty();
  if (move == Move::kDo && flags == 0 && known_free) {
    if (move_as(RENAME_NOREPLACE)) return {};
    if (errno == EEXIST) return fail(from_errno(ECANCELED), "another file has the name by now");
    if (errno != EINVAL) return fail_errno("rename");  // else a file system that does not know the flag
  }
  // What is left behind is a new file.
  const bool makes = (flags & RENAME_WHITEOUT) != 0;
  TUSK_ASSIGN(const CreatingFor owner, CreatingFor::begin(makes ? call.creator() : std::nullopt));
  if (!move_as(flags)) return fail_errno("rename");
  return {};
}

// Who has it by another name, or open, is told of it as of any other file.
void tell_removed(Call& call, const NodeTable::Found& removed, schema::Attr& told) {
  call.nodes().removed(removed.handle);
  if (auto attr = call.leased_attr(removed.handle, *removed.fd)) told = std::move(*attr);
}

// In a redo a name is there again that was moved before: what it was moved to is the same file, of which a
// LINK was made again; or came later, and the node is gone by then. rename(2) would do nothing.
bool leaves_old_name_only(const Call& call, bool may_move, const std::optional<NodeTable::Found>& moving,
                          const std::optional<NodeTable::Found>& replaced) {
  if (call.redo() == nullptr || !moving || moving->handle != call.request().rename().expected()) return false;
  const bool exchange = (call.request().rename().flags() & RENAME_EXCHANGE) != 0;
  if (replaced && replaced->handle == moving->handle) return !exchange;
  return !may_move && moving->handle == call.request().node();
}

Result<void> remove_name(const Place& at, const std::string& name, const NodeTable::Found& node) {
  const int how = S_ISDIR(node.status.stx_mode) ? AT_REMOVEDIR : 0;
  if (::unlinkat(at.parent->number(), name.c_str(), how) != 0) return fail_errno("unlink");
  return {};
}

Result<void> take_old_name(Call& call, const Place& from, const Place& to, const NodeTable::Found& moving,
                           bool is_there) {
  TUSK_TRY(remove_name(from, call.request().rename().old_name(), moving));
  call.mutated(from.handle);
  call.mutated(moving.handle);
  if (is_there)
    call.nodes().renamed(moving.handle, to.handle, to.name);
  else
    call.nodes().removed(moving.handle);
  return {};
}

Result<void> remove_replaced(Call& call, const Place& to, const NodeTable::Found& replaced) {
  TUSK_TRY(remove_name(to, call.request().rename().new_name(), replaced));
  call.mutated(to.handle);
  call.mutated(replaced.handle);
  tell_removed(call, replaced, *call.reply.mutable_rename()->mutable_replaced());
  return {};
}

void tell_moved(Call& call, const FileChange& change, const NodeTable::Found& moved) {
  auto attr = change.end(call, moved.handle, *moved.fd);
  if (!attr) return;  // it is done nevertheless, and can be asked for
  attr->set_no_xattrs(has_no_xattrs(*moved.fd));
  schema::Node& node = *call.reply.mutable_rename()->mutable_moved();
  node.set_handle(moved.handle);
  *node.mutable_attr() = std::move(*attr);
}

}  // namespace

Result<void> make_node(Call& call) {
  const auto& request = call.request().make_node();
  TUSK_ASSIGN(const Place at, place(call, request.parent(), request.name()));
  call.lease_names(at.handle, *at.parent);
  {
    TUSK_ASSIGN(const CreatingFor owner, CreatingFor::begin(call.creator()));
    if (const auto made = make(call, *at.parent, request); !made) {
      if (!call.again() || made.error().code != from_errno(EEXIST)) return made;
      const auto there = occupant(call, at);
      if (!there || !made_before(call, *there)) return made;
    }
  }
  call.mutated(at.handle);  // also if what follows fails
  TUSK_ASSIGN(NodeTable::Found found, call.nodes().lookup(at.parent, at.handle, at.name));
  TUSK_TRY(exact_mode(call, found, request.mode()));
  set_made_at(call, *found.fd, MadeTimes::kBoth);
  *call.reply.mutable_node()->mutable_node() = call.node_of(found);
  return {};
}

Result<void> remove(Call& call) {
  const auto& request = call.request().remove();
  const auto found = place(call, request.parent(), request.name());
  if (!found && call.again() && found.error().code == from_errno(ESTALE)) {
    (void)call.reply.mutable_remove();
    return {};
  }
  TUSK_ASSIGN(const Place at, found);
  call.lease_names(at.handle, *at.parent);
  const auto victim = call.nodes().lookup(at.parent, at.handle, at.name, NodeTable::Keep::kNo);
  const bool gone = !victim && victim.error().code == from_errno(ENOENT);
  if (gone && call.again()) {
    (void)call.reply.mutable_remove();
    return {};
  }
  const std::string& expected =
      call.redo() != nullptr && request.expected().empty() ? call.request().node() : request.expected();
  if (!expected.empty()) {
    if (!victim) return std::unexpected(victim.error());
    if (victim->handle != expected) return fail(from_errno(ECANCELED), "another file has the name by now");
  }
  if (::unlinkat(at.parent->number(), request.name().c_str(), request.directory() ? AT_REMOVEDIR : 0) != 0)
    return fail_errno(request.directory() ? "rmdir" : "unlink");
  call.mutated(at.handle);
  (void)call.reply.mutable_remove();
  if (victim) {
    call.mutated(victim->handle);
    tell_removed(call, *victim, *call.reply.mutable_remove()->mutable_attr());
  }
  return {};
}

Result<void> rename(Call& call) {
  const auto& request = call.request().rename();
  const std::uint32_t flags = request.flags();
  if ((flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT)) != 0)
    return fail(from_errno(EINVAL), "rename flags");
  TUSK_ASSIGN(const Place from, place(call, request.old_parent(), request.old_name()));
  TUSK_ASSIGN(const Place to, place(call, request.new_parent(), request.new_name()));
  call.lease_names(from.handle, *from.parent);
  if (to.handle != from.handle) {
    const schema::Cover old_names = call.reply.names();
    call.lease_names(to.handle, *to.parent);
    if (old_names != schema::COVER_LEASE) call.reply.set_names(old_names);
  }
  // That may wait for another call: what is there is looked at afterwards.
  const auto expected = occupant(call, from);
  std::optional<FileChange> change;
  if (expected && S_ISREG(expected->status.stx_mode)) {
    TUSK_ASSIGN(FileChange begun, FileChange::begin(*expected->fd));
    change.emplace(std::move(begun));
  }
  const auto moving = change ? occupant(call, from) : expected;
  const auto replaced = occupant(call, to);
  if (change && (!moving || moving->handle != expected->handle)) change.reset();
  const Result<Move> checked = check_move(call, moving, replaced);
  (void)call.reply.mutable_rename();
  if (leaves_old_name_only(call, checked.has_value(), moving, replaced))
    return take_old_name(call, from, to, *moving, replaced && replaced->handle == moving->handle);
  TUSK_ASSIGN(const Move move, checked);
  if (move == Move::kDone) return {};
  if (move == Move::kRemoveReplaced) return remove_replaced(call, to, *replaced);
  if (const auto moved = move_name(call, from, to, move); !moved) {
    if (moved.error().code == from_errno(ENOENT) && call.again() && replaced) return {};
    return moved;
  }

  call.mutated(from.handle);
  if (to.handle != from.handle) call.mutated(to.handle);
  const bool same_file =
      moving && replaced && moving->handle == replaced->handle;  // then rename(2) does nothing
  if (moving && !same_file) {
    call.nodes().renamed(moving->handle, to.handle, to.name);
    call.mutated(moving->handle);
    if (change) tell_moved(call, *change, *moving);
  }
  if (replaced && !same_file) {
    call.mutated(replaced->handle);
    if (flags & RENAME_EXCHANGE)
      call.nodes().renamed(replaced->handle, from.handle, from.name);
    else
      tell_removed(call, *replaced, *call.reply.mutable_rename()->mutable_replaced());
  }
  return {};
}

Result<void> link(Call& call) {
  const auto& request = call.request().link();
  TUSK_ASSIGN(const SharedFd node, call.node(request.handle()));
  TUSK_ASSIGN(const Place to, place(call, request.new_parent(), request.new_name()));
  call.lease_names(to.handle, *to.parent);
  // By way of /proc: AT_EMPTY_PATH needs a privilege. It is the inode itself, a symlink is not followed.
  if (::linkat(AT_FDCWD, proc_path(*node).c_str(), to.parent->number(), request.new_name().c_str(),
               AT_SYMLINK_FOLLOW) != 0)
    return fail_errno("link");
  call.mutated(to.handle);
  call.mutated(request.handle());
  TUSK_ASSIGN(const NodeTable::Found found, call.nodes().lookup(to.parent, to.handle, to.name));
  *call.reply.mutable_node()->mutable_node() = call.node_of(found);
  return {};
}

}  // namespace tusk::server::ops
