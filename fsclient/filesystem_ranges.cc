// Filesystem: fallocate, lseek for holes, and copying done by the server. All after the writes before.
#include <algorithm>
#include <array>
#include <cerrno>

#include "fsclient/filesystem.h"

namespace tusk::client {
namespace {

// The server says no before it touches the bytes. Not EBADF or ESTALE: a server that was restarted says so of
// what it knew when it made the change. A SETATTR that names more than the size may end so behind the size
// (EACCES for the time, of who may write through an open file only): the attributes are asked for again after
// any error of it, and tell that the bytes are others.
bool plainly_refused(ErrorCode code) {
  constexpr std::array kRefusals{EACCES, EINVAL, EISDIR, EMFILE,     ENFILE, ENODEV,  ENOENT,
                                 ENXIO,  ENOSYS, EPERM,  EOPNOTSUPP, EROFS,  ETXTBSY, EXDEV};
  return std::ranges::any_of(kRefusals, [code](int refusal) { return code == from_errno(refusal); });
}

}  // namespace

// The server has changed bytes of the file on our behalf.
void Filesystem::note_changed_on_server(Inode& inode, Interval range, const schema::Attr& attr,
                                        const Told& told) {
  {
    const std::lock_guard lock(inode.mutex);
    if (!inode.file) return;
    inode.file->data.disown(range);
    inode.file->data.forget(range);
    inode.file->data_handed_out = true;
  }
  facts_.learn_own(inode, attr, told);
}

// The server takes leases back from others only. Nobody waits until the kernel has dropped its pages: that
// waits for reads it has begun, and who gives up wants to be away.
void Filesystem::may_have_changed(Inode& inode, const Error& error) {
  if (plainly_refused(error.code)) return;
  (void)facts_.forget(inode, true, false);
  const std::lock_guard lock(inode.mutex);
  core_.loans.withdraw_locked(inode);
}

void Filesystem::allocate(Asker asker, Handle handle, ByteCount offset, ByteCount length, std::uint32_t mode,
                          Done<void> done) {
  ++core_.counters.operations;
  const std::shared_ptr<OpenFile> file = files_.find(handle);
  auto send = [this, asker, file, offset, length, mode,
               done = std::move(done)](Result<void> flushed) mutable {
    if (!flushed) return done(std::move(flushed));
    schema::Request request;
    schema::AllocateRequest& allocate = *request.mutable_allocate();
    allocate.set_handle(file->inode->handle());
    allocate.set_open_id(file->open_id);
    allocate.set_offset(offset);
    allocate.set_length(length);
    allocate.set_mode(mode);
    remote_.mutate(asker, std::move(request), schema::Reply::kAttr,
                   [this, file, offset, started = core_.scheduler.now(),
                    done = std::move(done)](Result<rpc::CallReply> reply) mutable {
                     if (!reply) {
                       may_have_changed(*file->inode, reply.error());
                       return done(std::unexpected(reply.error()));
                     }
                     // Some modes move everything behind the range.
                     note_changed_on_server(*file->inode, {offset, kWholeFile.end},
                                            reply->message.attr().attr(), Told(started, reply->message, {}));
                     done({});
                   });
  };
  write_behind_.flush(asker, file->inode, std::move(send));
}

void Filesystem::seek(Asker asker, Handle handle, ByteCount offset, std::uint32_t whence,
                      Done<ByteCount> done) {
  ++core_.counters.operations;
  const std::shared_ptr<OpenFile> file = files_.find(handle);
  auto send = [this, asker, file, offset, whence, done = std::move(done)](Result<void> flushed) mutable {
    if (!flushed) return done(std::unexpected(flushed.error()));
    schema::Request request;
    schema::SeekRequest& seek = *request.mutable_seek();
    seek.set_handle(file->inode->handle());
    seek.set_open_id(file->open_id);
    seek.set_offset(offset);
    seek.set_whence(whence);
    remote_.ask(asker, std::move(request), schema::Reply::kSeek,
                [offset, done = std::move(done)](Result<rpc::CallReply> reply) mutable {
                  if (!reply) return done(std::unexpected(reply.error()));
                  // A program that goes on from there would come round for ever.
                  if (reply->message.seek().offset() < offset)
                    return done(fail(ErrorCode::kMalformed, "the server found data before where it looked"));
                  done(reply->message.seek().offset());
                });
  };
  write_behind_.flush(asker, file->inode, std::move(send));
}

void Filesystem::copy_range(Asker asker, Handle source, ByteCount source_offset, Handle target,
                            ByteCount target_offset, ByteCount length, Done<ByteCount> done) {
  ++core_.counters.operations;
  const std::shared_ptr<OpenFile> from = files_.find(source);
  const std::shared_ptr<OpenFile> to = files_.find(target);
  auto send = [this, asker, from, source_offset, to, target_offset, length,
               done = std::move(done)](Result<void> flushed) mutable {
    if (!flushed) return done(std::unexpected(flushed.error()));
    schema::Request request;
    schema::CopyRangeRequest& copy = *request.mutable_copy_range();
    copy.set_source(from->inode->handle());
    copy.set_source_open_id(from->open_id);
    copy.set_source_offset(source_offset);
    copy.set_target(to->inode->handle());
    copy.set_target_open_id(to->open_id);
    copy.set_target_offset(target_offset);
    copy.set_length(std::min(length, kCopyRangeMax));
    remote_.mutate(asker, std::move(request), schema::Reply::kCopyRange,
                   [this, to, target_offset, length, started = core_.scheduler.now(),
                    done = std::move(done)](Result<rpc::CallReply> reply) mutable {
                     // A program takes it off what it has left to copy.
                     if (reply && reply->message.copy_range().copied() > length)
                       reply = fail(ErrorCode::kMalformed, "the server copied more than it was asked to");
                     if (!reply) {
                       may_have_changed(*to->inode, reply.error());
                       return done(std::unexpected(reply.error()));
                     }
                     const schema::CopyRangeReply& copied = reply->message.copy_range();
                     note_changed_on_server(*to->inode, {target_offset, target_offset + copied.copied()},
                                            copied.target(), Told(started, reply->message, {}));
                     done(copied.copied());
                   });
  };
  write_behind_.flush(asker, from->inode,
                      [this, asker, to, send = std::move(send)](Result<void> flushed) mutable {
                        if (!flushed) return send(std::move(flushed));
                        write_behind_.flush(asker, to->inode, std::move(send));
                      });
}

}  // namespace tusk::client
