// LOCK: record locks and flock. A wait holds no thread: the answer comes from whoever lets go.
#include <algorithm>

#include "fsserver/operations.h"

namespace tusk::server {
namespace {

Result<LockWanted> wanted_lock(const Session& session, const schema::LockRequest& request) {
  if (request.type() > static_cast<std::uint32_t>(LockType::kUnlock))
    return fail(from_errno(EINVAL), "lock type");
  LockWanted wanted;
  wanted.kind = request.flock() ? LockKind::kFlock : LockKind::kPosix;
  wanted.owner = {session.number(), request.owner()};
  wanted.open_id = request.open_id();
  wanted.type = static_cast<LockType>(request.type());
  wanted.pid = request.pid();
  if (!request.flock()) {
    wanted.start = request.start();
    wanted.end = std::min(request.end(), kLockEnd);
    if (wanted.start > wanted.end) return fail(from_errno(EINVAL), "lock range");
  }
  return wanted;
}

// As fcntl(2) judges, and an honest client's kernel has judged before: a record lock for writing needs the
// file open for writing. Whose open is not known (any more) must have the right to open it so.
Result<void> check_may_lock(const Call& call, const schema::LockRequest& request) {
  if (request.flock() || request.test() || request.type() != static_cast<std::uint32_t>(LockType::kWrite))
    return {};
  const auto open = call.session().find(request.open_id());
  const bool known = open && open->handle == request.handle();
  if (call.attachment().read_only || (known && !open->writable()))
    return fail(from_errno(EBADF), "a lock for writing on a file that is not open for writing");
  if (!known) TUSK_TRY(call.file(request.handle(), open ? 0 : request.open_id(), O_WRONLY));
  return {};
}

void answer(rpc::IncomingCall& incoming, Result<void> result) {
  if (!result) {
    incoming.reply_error(result.error().code, result.error().context);
    return;
  }
  schema::Reply reply;
  reply.mutable_lock();
  incoming.reply(std::move(reply));
}

void tell_holder(schema::LockReply& reply, const LockWanted& holder) {
  reply.set_type(static_cast<std::uint32_t>(holder.type));
  reply.set_start(holder.start);
  reply.set_end(holder.end);
  reply.set_pid(holder.pid);
}

}  // namespace

namespace ops {

Result<void> lock(Call& call) {
  const auto& request = call.request().lock();
  TUSK_ASSIGN(const LockWanted wanted, wanted_lock(call.session(), request));
  TUSK_ASSIGN(const SharedFd node, call.node_or_open_file(request.handle(), request.open_id()));
  TUSK_ASSIGN(const Status status, status_of(*node));
  TUSK_TRY(check_regular(status));
  TUSK_TRY(check_may_lock(call, request));
  const FileKey key{device_of(status), status.stx_ino};
  if (request.test()) {
    tell_holder(*call.reply.mutable_lock(), call.locks().test(key, node, wanted));
    return {};
  }
  if (wanted.type != LockType::kUnlock) {
    call.session().note_locking();
    // Through an open of before a restart: the close of another one does not end it.
    if (!request.flock() && !call.session().find(request.open_id())) call.session().note_reclaimed(key);
  }
  call.answers_later = true;
  const std::shared_ptr<rpc::IncomingCall> incoming = call.incoming();
  LockTable& locks = call.locks();
  call.waits_for = locks.lock(
      key, node, wanted, request.wait(),
      [incoming](Result<void> result) { answer(*incoming, std::move(result)); },
      call.session().descriptors());
  if (call.session().ended()) locks.release_session(call.session().number());
  return {};
}

}  // namespace ops

Result<bool> keep_lock(const Attachment& attachment, LockTable& locks, const schema::LockRequest& request,
                       bool may_reclaim) {
  Session& session = *attachment.session;
  TUSK_ASSIGN(const LockWanted wanted, wanted_lock(session, request));
  if (wanted.type == LockType::kUnlock) return fail(from_errno(EINVAL), "lock type");
  const bool writes = wanted.kind == LockKind::kPosix && wanted.type == LockType::kWrite;
  if (writes && attachment.read_only) return false;
  TUSK_ASSIGN(const SharedFd node, session.exported().nodes().resolve(request.handle()));
  TUSK_ASSIGN(const Status status, status_of(*node));
  TUSK_TRY(check_regular(status));
  const FileKey key{device_of(status), status.stx_ino};
  if (!may_reclaim) return locks.holds(key, wanted);
  session.note_locking();
  TUSK_TRY(locks.reclaim(key, node, wanted, session.descriptors()));
  session.note_reclaimed(key);
  return true;
}

}  // namespace tusk::server
