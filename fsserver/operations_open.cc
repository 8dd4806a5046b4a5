// Operations that begin and end an open file: open, create, close.
#include <fcntl.h>

#include <algorithm>

#include "fsserver/creation_mask.h"
#include "fsserver/made_at.h"
#include "fsserver/operations.h"
#include "fsserver/special_bits.h"

namespace tusk::server::ops {
namespace {

constexpr int kCreateRacesMax = 16;  // somebody removes the name again and again between two looks

Result<int> access_of(std::uint32_t flags) {
  const int access = static_cast<int>(flags & O_ACCMODE);
  return access == O_ACCMODE ? O_RDWR : access;  // of Linux: both rights, for ioctl(2) only
}

// O_APPEND is left out: with it pwrite(2) appends whatever offset it is given. Appending writes say so. Only
// files that may be appended to and nothing else (chattr +a) can be opened no other way.
Result<Fd> open_node(const NodeTable::Found& found, int access, bool truncate) {
  TUSK_TRY(check_regular(found.status));
  Result<Fd> fd = reopen(*found.fd, access | (truncate ? O_TRUNC : 0));
  const bool append_only = (found.status.stx_attributes & STATX_ATTR_APPEND) != 0;
  if (!fd && fd.error().code == from_errno(EPERM) && append_only && !truncate)
    fd = reopen(*found.fd, access | O_APPEND);
  return fd;
}

// Before anything is created or truncated.
Result<Quota::Place> place_for_one_more(const Call& call) {
  auto place = call.session().descriptors()->take();
  if (!place) return fail(from_errno(EMFILE), "too many open files of this client");
  return std::move(*place);
}

// 0: the client has done with it already.
Result<std::uint64_t> enter_file(const Call& call, std::shared_ptr<OpenFile> file) {
  if (!call.log()) return call.session().add(std::move(file));
  const std::uint64_t chosen = call.request().create().open_id();
  if (chosen != 0 && !call.session().add(chosen, std::move(file)))
    return fail(from_errno(EINVAL), "an open id that cannot be chosen");
  return chosen;
}

std::shared_ptr<OpenFile> make_file(const NodeTable::Found& found, Fd fd, int access, Quota::Place place) {
  auto file = std::make_shared<OpenFile>();
  file->place = std::move(place);
  file->fd = share(std::move(fd));
  file->access = access;
  file->handle = found.handle;
  file->key = {device_of(found.status), found.status.stx_ino};
  return file;
}

Result<void> finish_open(Call& call, NodeTable::Found found, Fd fd, int access, bool created,
                         Quota::Place place) {
  auto file = make_file(found, std::move(fd), access, std::move(place));
  TUSK_ASSIGN(found.status, status_of(*file->fd));
  TUSK_ASSIGN(const std::uint64_t id, enter_file(call, std::move(file)));
  schema::OpenReply& reply = *call.reply.mutable_open();
  reply.set_open_id(id);
  reply.set_created(created);
  *reply.mutable_node() = call.node_of(found);
  return {};
}

Result<void> add_read_ahead(Call& call) {
  const auto& request = call.request().open();
  schema::OpenReply& reply = *call.reply.mutable_open();
  const schema::Attr& attr = reply.node().attr();
  const auto wanted = std::min<std::uint64_t>(
      {reply_body_bytes(call.request()), call.incoming()->reply_body_capacity(), attr.size()});
  if (wanted == 0 || request.known_change() == attr.change()) return {};
  const auto file = call.session().find(reply.open_id());
  if (!file || !file->readable()) return {};
  auto bytes = read_body(*file->fd, 0, wanted);
  if (!bytes) return {};  // a gift only: the read that needs the bytes will hear of the error
  reply.set_body_bytes(static_cast<std::uint32_t>(bytes->size()));
  call.body = std::move(*bytes);
  return {};
}

struct Created {
  NodeTable::Found found;
  Fd fd;
  bool created;
};

Result<Created> create_new(Call& call, const SharedFd& parent, int access) {
  const auto& request = call.request().create();
  Fd fd;
  {
    TUSK_ASSIGN(const CreatingFor owner, CreatingFor::begin(call.creator()));
    const CreationMask mask(request.umask());
    const mode_t permissions = mask.argument((request.mode() | request.umask()) & 0777);
    TUSK_ASSIGN(fd, create_child(*parent, request.name(), access, permissions));
  }
  call.mutated(request.parent());  // also if what follows fails
  if (const mode_t special = permitted_mode(call, S_IFREG, request.mode()) & 07000; special != 0) {
    TUSK_ASSIGN(const Status status, status_of(fd));
    const mode_t mode = (status.stx_mode & 07777) | special;
    if (::fchmod(fd.number(), mode) != 0) return fail_errno("chmod of the new file");
  }
  // The table gets an O_PATH descriptor: one open for writing would keep the file from being executed.
  TUSK_ASSIGN(Fd node, reopen(fd, O_PATH));
  TUSK_ASSIGN(NodeTable::Found found, call.nodes().enter(share(std::move(node)), request.parent(),
                                                         request.name(), NodeTable::Keep::kYes));
  return Created{std::move(found), std::move(fd), true};
}

Result<Created> open_existing(Call& call, const SharedFd& parent, int access) {
  const auto& request = call.request().create();
  TUSK_ASSIGN(NodeTable::Found found, call.nodes().lookup(parent, request.parent(), request.name()));
  const bool truncate = (request.flags() & O_TRUNC) != 0 && !call.again();
  TUSK_ASSIGN(Fd fd, open_node(found, access, truncate));
  if (truncate) {
    call.mutated(found.handle);
    TUSK_TRY(strip_special_bits(call, fd));
  }
  return Created{std::move(found), std::move(fd), false};
}

Result<Created> create_or_open(Call& call, const SharedFd& parent, int access) {
  for (int races = 0;; ++races) {
    auto created = create_new(call, parent, access);
    const bool exists = !created && created.error().code == from_errno(EEXIST);
    const bool exclusive = (call.request().create().flags() & O_EXCL) != 0 && !call.again();
    if (!exists || exclusive) return created;
    auto opened = open_existing(call, parent, access);
    if (opened || opened.error().code != from_errno(ENOENT) || races == kCreateRacesMax) return opened;
  }
}

}  // namespace

Result<void> open(Call& call) {
  const auto& request = call.request().open();
  TUSK_ASSIGN(const int access, access_of(request.flags()));
  TUSK_ASSIGN(Quota::Place place, place_for_one_more(call));
  TUSK_ASSIGN(SharedFd node, call.node(request.handle()));
  TUSK_ASSIGN(const Status status, status_of(*node));
  NodeTable::Found found{std::move(node), status, request.handle()};
  const bool truncate = (request.flags() & O_TRUNC) != 0;
  TUSK_ASSIGN(Fd fd, open_node(found, access, truncate));
  if (truncate) {
    call.mutated(request.handle());
    TUSK_TRY(strip_special_bits(call, fd));
  }
  TUSK_TRY(finish_open(call, std::move(found), std::move(fd), access, false, std::move(place)));
  return add_read_ahead(call);
}

Result<void> create(Call& call) {
  const auto& request = call.request().create();
  TUSK_ASSIGN(const int access, access_of(request.flags()));
  TUSK_TRY(check_file_name(request.name()));
  TUSK_ASSIGN(Quota::Place place, place_for_one_more(call));
  TUSK_ASSIGN(const SharedFd parent, call.node(request.parent()));
  call.lease_names(request.parent(), *parent);
  TUSK_ASSIGN(Created made, create_or_open(call, parent, access));
  if (made.created) set_made_at(call, made.fd, MadeTimes::kBoth);
  return finish_open(call, std::move(made.found), std::move(made.fd), access, made.created, std::move(place));
}

void close_file(Call& call, std::uint64_t open_id) {
  // Unknown ids are those from before a restart: closed already.
  const Session::Closed closed = call.session().close(open_id);
  if (!closed.file) return;
  call.locks().release_open(closed.file->key, call.session().number(), open_id);
  if (closed.last && !call.session().reclaimed(closed.file->key))
    call.locks().release_file(closed.file->key, call.session().number());
}

Result<void> close(Call& call) {
  close_file(call, call.request().close().open_id());
  call.reply.mutable_empty();
  return {};
}

}  // namespace tusk::server::ops
