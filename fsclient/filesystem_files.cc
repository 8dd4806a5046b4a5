// Filesystem: what is done with open files.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "fsclient/filesystem.h"

namespace tusk::client {
namespace {

bool all_here(Inode& inode, Interval range) {
  const std::lock_guard lock(inode.mutex);
  const Interval inside{range.begin, std::min(range.end, inode.size())};
  return inside.empty() || inode.file->data.has(inside);
}

}  // namespace

// ---------------------------------------------------------------- read, write

void Filesystem::read(Asker asker, Handle handle, ByteCount offset, ByteCount length, ReadDone done) {
  ++core_.counters.operations;
  const std::shared_ptr<OpenFile> file = files_.find(handle);
  if (auto usable = still_usable(*file); !usable) return done(std::unexpected(usable.error()));
  const Interval range{offset, offset + length};
  if (!file->inode->on_server() && !all_here(*file->inode, range))
    return after_log<ReadDone>(asker, std::move(done), [this, asker, handle, offset, length](ReadDone then) {
      read(asker, handle, offset, length, std::move(then));
    });
  bool ask_size = false;
  if (file->direct()) {
    // Nobody else knows the size here: the kernel asks without looking at what it caches.
    const std::lock_guard lock(file->inode->mutex);
    ask_size =
        range.end > file->inode->size() &&
        !core_.trust.may_use(Fact::kAttributes, file->inode->attributes.learnt(), core_.scheduler.now());
  }
  if (!ask_size) return reader_.read(asker, file, range, std::move(done));
  // Not behind a notification: dropping pages waits for the folios that this READ may hold.
  ask_attributes(asker, file->inode,
                 [this, asker, file, range, done = std::move(done)](const Result<bool>& changed) mutable {
                   if (!changed) return done(std::unexpected(changed.error()));
                   reader_.read(asker, file, range, std::move(done));
                 });
}

void Filesystem::write(Asker asker, Handle handle, ByteCount offset, std::span<const std::byte> bytes,
                       bool appends, Done<std::uint32_t> done) {
  ++core_.counters.operations;
  const std::shared_ptr<OpenFile> file = files_.find(handle);
  if (auto usable = still_usable(*file); !usable) return done(std::unexpected(usable.error()));
  {
    const std::lock_guard lock(file->inode->mutex);
    if (auto& told = file->inode->told_size) told = std::max(*told, offset + bytes.size());
  }
  // Until it is answered the kernel holds the pages.
  done = [change = facts_.begin_change(file->inode),
          done = std::move(done)](Result<std::uint32_t> written) mutable { done(std::move(written)); };
  if (file->writes_past_pages() && !appends)
    done = behind_pages(file->inode, {offset, offset + bytes.size()}, std::move(done));
  if (appends) return append(asker, file, offset, copy_bytes(bytes), std::move(done));
  if (!file->synchronous()) return write_behind_.write(asker, file, offset, bytes, std::move(done));
  write_behind_.write(asker, file, offset, bytes,
                      [this, asker, file, done = std::move(done)](Result<std::uint32_t> written) mutable {
                        if (!written) return done(std::move(written));
                        make_durable(asker, file, true,
                                     [written, done = std::move(done)](Result<void> safe) mutable {
                                       if (!safe) return done(std::unexpected(safe.error()));
                                       done(written);
                                     });
                      });
}

// The kernel has dropped such pages before it sent the write. A reader may have brought them back since, and
// a write that nobody waits for (io_submit) has the kernel drop nothing behind it.
Done<std::uint32_t> Filesystem::behind_pages(const InodePointer& inode, Interval range,
                                             Done<std::uint32_t> done) {
  return [this, inode, range, done = std::move(done)](Result<std::uint32_t> written) mutable {
    bool any = false;
    {
      const std::lock_guard lock(inode->mutex);
      any = inode->file->data_handed_out;
    }
    if (!any) return done(std::move(written));
    core_.scheduler.post_notification([&kernel = core_.kernel, inode, range, written = std::move(written),
                                       done = std::move(done)]() mutable {
      kernel.invalidate_range(inode->id, range);
      done(std::move(written));
    });
  };
}

// At the end of the file, wherever that is on the server: after everything that is on its way, and
// answered when it is there.
void Filesystem::append(const Asker& asker, const std::shared_ptr<OpenFile>& file, ByteCount offset,
                        SharedBytes bytes, Done<std::uint32_t> done) {
  write_behind_.flush(asker, file->inode,
                      [this, asker, file, offset, bytes = std::move(bytes),
                       done = std::move(done)](Result<void> flushed) mutable {
                        if (flushed) flushed = write_behind_.take_error(*file);
                        if (!flushed) return done(std::unexpected(flushed.error()));
                        rpc::CallRequest call;
                        schema::WriteRequest& write = *call.message.mutable_write();
                        write.set_handle(file->inode->handle());
                        write.set_open_id(file->open_id);
                        write.set_append(true);
                        write.set_sync(file->synchronous());
                        write.set_length(static_cast<std::uint32_t>(bytes.size()));
                        call.body = bytes;
                        remote_.mutate_with_body(
                            asker, std::move(call), schema::Reply::kWrite,
                            [this, file, offset, bytes, started = core_.scheduler.now(),
                             done = std::move(done)](Result<rpc::CallReply> reply) mutable {
                              if (!reply) {
                                may_have_changed(*file->inode, reply.error());
                                return done(std::unexpected(reply.error()));
                              }
                              note_appended(file, bytes, reply->message.write(),
                                            Told(started, reply->message, {}));
                              drop_tail(file->inode, std::min(offset, reply->message.write().offset()),
                                        [count = static_cast<std::uint32_t>(bytes.size()),
                                         done = std::move(done)]() mutable { done(count); });
                            });
                      });
}

void Filesystem::note_appended(const std::shared_ptr<OpenFile>& file, const SharedBytes& bytes,
                               const schema::WriteReply& reply, const Told& told) {
  Inode& inode = *file->inode;
  core_.counters.written += bytes.size();
  core_.counters.sent += bytes.size();
  {
    const std::lock_guard lock(inode.mutex);
    FileState& state = *inode.file;
    const Interval range{reply.offset(), reply.offset() + bytes.size()};
    const Attributes attr = Attributes::from_schema(reply.attr());
    core_.loans.withdraw_locked(inode);
    const bool overtaken = state.overtaken(told.started);  // others may have written over them
    inode.attributes.accept(attr, told.about(reply.attr()), core_.scheduler.now());
    state.version.follow(reply.attr().change_before(), attr.change);
    state.last_write = core_.scheduler.now();
    state.data_handed_out = true;
    state.data.disown(range);
    state.data.forget(range);
    if (!overtaken) {
      state.data.fill(range.begin, bytes.bytes, 0);
      facts_.note_bytes_locked(inode, told.about(reply.attr()).learnt(core_.scheduler.now()));
    }
  }
}

// Others may read the file through the kernel's pages, whose last one ends where the file did.
void Filesystem::drop_tail(const InodePointer& inode, ByteCount from, std::move_only_function<void()> done) {
  core_.scheduler.post_notification([&kernel = core_.kernel, inode, from, done = std::move(done)]() mutable {
    kernel.invalidate_from(inode->id, from);
    done();
  });
}

// ---------------------------------------------------------------- flush, fsync

// Who has given up may have had its answer: an error that is told now might be told to nobody.
Result<void> Filesystem::take_error(const Asker& asker, OpenFile& file) {
  if (!asker.interrupt || !asker.interrupt->fired()) return write_behind_.take_error(file);
  if (WriteBehind::has_error(file)) return fail(ErrorCode::kCancelled, "a write could not be done");
  return {};
}

void Filesystem::flush(Asker asker, Handle handle, std::uint64_t lock_owner, Done<void> done) {
  ++core_.counters.operations;
  const std::shared_ptr<OpenFile> file = files_.find(handle);
  end_unconfirmed(*file->inode);  // release() comes when the program has gone on
  Done<void> close = [this, asker, file, lock_owner, done = std::move(done)](Result<void> flushed) mutable {
    if (!flushed) {  // given up: what was written under a lock is still on its way
      if (take_locks_of(*file, lock_owner))
        unlock_behind_data(file, {.owner = lock_owner, .type = F_UNLCK, .end = INT64_MAX});
      return done(std::move(flushed));
    }
    flushed = take_error(asker, *file);
    unlock_all_of(asker, file, lock_owner, [flushed, done = std::move(done)](const Result<void>&) mutable {
      done(std::move(flushed));
    });
  };
  write_behind_.hand_to_log(asker, file->inode,
                            [this, asker, file, close = std::move(close)](Result<bool> handed) mutable {
                              if (!handed) return close(std::unexpected(std::move(handed.error())));
                              if (*handed) return close({});
                              write_behind_.flush(asker, file->inode, std::move(close));
                            });
}

void Filesystem::sync(Asker asker, Handle handle, bool data_only, Done<void> done) {
  ++core_.counters.operations;
  const std::shared_ptr<OpenFile> file = files_.find(handle);
  write_behind_.flush(asker, file->inode,
                      [this, asker, file, data_only, done = std::move(done)](Result<void> flushed) mutable {
                        if (flushed) flushed = take_error(asker, *file);
                        if (flushed)
                          flushed = still_usable(*file);  // what was written under it may not count
                        if (!flushed) return done(std::move(flushed));
                        commit(asker, file, data_only, std::move(done));
                      });
}

// For O_SYNC: the WRITEs asked for it themselves, so a commit is needed only for others' writes that
// shared a block with ours.
void Filesystem::make_durable(const Asker& asker, const std::shared_ptr<OpenFile>& file, bool data_only,
                              Done<void> done) {
  write_behind_.flush(asker, file->inode,
                      [this, asker, file, data_only, done = std::move(done)](Result<void> flushed) mutable {
                        if (flushed) flushed = write_behind_.take_error(*file);
                        if (!flushed) return done(std::move(flushed));
                        if (!core_.uncommitted.has_writes(*file->inode)) return done({});
                        commit(asker, file, data_only, std::move(done));
                      });
}

void Filesystem::commit(const Asker& asker, const std::shared_ptr<OpenFile>& file, bool data_only,
                        Done<void> done) {
  const UncommittedChanges::Number upto = core_.uncommitted.last();
  schema::Request request;
  request.mutable_commit()->set_handle(file->inode->handle());
  request.mutable_commit()->set_open_id(file->open_id);
  // All of the file's changes up to now are then on the disk, and need not be kept.
  request.mutable_commit()->set_data_only(data_only &&
                                          !core_.uncommitted.has_attributes(file->inode->handle()));
  // Once only: the server's disk tells an error one time, and a repeat would find nothing wrong.
  remote_.mutate(asker, std::move(request), schema::Reply::kCommit,
                 [this, file, upto, done = std::move(done)](Result<rpc::CallReply> reply) mutable {
                   if (!reply) return done(std::unexpected(reply.error()));
                   Result<void> safe =
                       note_committed(*file->inode, remote_.verifier_of(reply->message), upto);
                   // What came to nothing meanwhile, in a redo, is told here; neither the file's own close
                   // needs to tell it again, nor who renames it.
                   const Result<void> lost = write_behind_.take_error(*file);
                   if (safe) safe = lost;
                   if (!safe) (void)write_behind_.take_untold_error(file->inode);
                   done(safe);
                 });
}

// What was answered before the server's machine restarted has been made again before the COMMIT (redo.h).
// Anything else is not known to be on its disk.
Result<void> Filesystem::note_committed(Inode& inode, std::uint64_t verifier,
                                        UncommittedChanges::Number upto) {
  const bool lost = core_.uncommitted.has_writes_not_of(verifier, inode, upto);
  core_.uncommitted.committed(verifier, upto, inode, inode.handle());
  if (!lost) return {};
  Deferred after;
  const std::lock_guard lock(inode.mutex);
  const Error error{from_errno(EIO), "the server machine restarted before the data was on its disk"};
  if (inode.file) write_behind_.note_error_locked(inode, error, after);
  return std::unexpected(error);
}

}  // namespace tusk::client
