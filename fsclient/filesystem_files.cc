// Filesystem: open files.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "fsclient/filesystem.h"

namespace tusk::client {

// ---------------------------------------------------------------- open, create, release

Handle Filesystem::new_file(const InodePointer& inode, std::uint64_t open_id, std::uint32_t flags) {
  // The server is told from a worker: the last reference may go while a lock is held.
  auto close = [this](std::uint64_t id) {
    core_.scheduler.post([this, id] {
      schema::Request request;
      request.mutable_close()->set_open_id(id);
      remote_.ask({}, std::move(request), schema::Reply::kEmpty, [](const Result<rpc::CallReply>&) {});
    });
  };
  auto file = std::make_shared<OpenFile>(inode, open_id, flags, std::move(close));
  const std::lock_guard lock(inode->mutex);
  if (inode->file) file->errors_told = inode->file->errors;
  inode->open_files.push_back(file.get());
  return files_.insert(std::move(file));
}

void Filesystem::open(Asker asker, NodeId node, std::uint32_t flags, Done<OpenReply> done) {
  const Result<InodePointer> found = inode_of(node);
  if (!found) return done(std::unexpected(found.error()));
  if ((flags & O_TRUNC) == 0) return send_open(asker, *found, flags, std::move(done));
  // Writes on their way must not land in the emptied file.
  write_behind_.flush(
      asker, *found,
      [this, asker, inode = *found, flags, done = std::move(done)](Result<void> flushed) mutable {
        if (!flushed) return done(std::unexpected(flushed.error()));
        send_open(asker, inode, flags, std::move(done));
      });
}

namespace {

Attributes locked_copy(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  return inode.shown();
}

// What was shown before may be what the kernel still has.
bool others_changed(const Attributes& before, const Attributes& now) {
  return before.mode != 0 && (before.size != now.size || !same_time(before.mtime, now.mtime));
}

}  // namespace

void Filesystem::send_open(const Asker& asker, const InodePointer& inode, std::uint32_t flags,
                           Done<OpenReply> done) {
  rpc::CallRequest call;
  schema::OpenRequest& open = *call.message.mutable_open();
  open.set_handle(inode->handle);
  open.set_flags(flags);
  const bool truncates = (flags & O_TRUNC) != 0;
  {
    const std::lock_guard lock(inode->mutex);
    const ByteCount start = std::min(inode->size(), core_.path.slow() ? kOpenReadAheadSlow : kOpenReadAhead);
    const bool reads = (flags & O_ACCMODE) != O_WRONLY && !truncates && inode->file != nullptr;
    if (reads && start > 0) {
      open.set_read_ahead(static_cast<std::uint32_t>(start));
      call.reply_body = allocate_bytes(start);
      if (inode->file->data.has({0, start})) open.set_known_change(inode->file->version.value());
    }
  }
  const MutableSharedBytes body = call.reply_body;
  auto answered = [this, inode, flags, body, started = core_.scheduler.now(),
                   done = std::move(done)](Result<rpc::CallReply> reply) mutable {
    if (!reply) return done(std::unexpected(reply.error()));
    const Attributes shown_before = locked_copy(*inode);
    Result<OpenReply> result =
        opened(inode, reply->message.open(), flags, started, body.bytes.first(reply->body_size));
    if (!result || !others_changed(shown_before, locked_copy(*inode))) return done(std::move(result));
    // The kernel cuts every read at the size it knows: it must ask anew before the program reads.
    core_.scheduler.post_notification([&kernel = core_.kernel, id = inode->id, done = std::move(done),
                                       result = std::move(result)]() mutable {
      kernel.invalidate_attributes(id);
      done(std::move(result));
    });
  };
  // Once only, for reading too: an open that was done twice would leave one that nobody closes.
  remote_.mutate_with_body(asker, std::move(call), schema::Reply::kOpen, std::move(answered));
}

// Close-to-open: whatever others wrote and closed before this open is seen from now on.
Result<OpenReply> Filesystem::opened(const InodePointer& inode, const schema::OpenReply& reply,
                                     std::uint32_t flags, TimePoint started,
                                     std::span<const std::byte> body) {
  const Attributes attr = Attributes::from_schema(reply.node().attr());
  if (reply.open_id() == 0 || reply.body_bytes() != body.size() || !attr.is_regular())
    return fail(ErrorCode::kMalformed, "an OPEN reply whose parts disagree");
  bool keep = false;
  {
    const std::lock_guard lock(inode->mutex);
    facts_.learn_locked(*inode, attr, started);
    FileState& file = *inode->file;
    if ((flags & O_TRUNC) != 0) {
      write_behind_.note_dropped(file.data.truncate(0));
      file.written_end = 0;
      file.last_write = core_.scheduler.now();
      file.version.set(attr.change);
    } else {
      keep = file.version.is(attr.change);
      if (!keep) {
        file.data.forget(kWholeFile);
        file.version.set(attr.change);
      }
      file.capability_absent = file.capability_absent && keep;
    }
    if (!body.empty() && !inode->written_since(started)) {
      file.data.fill(0, body);
      core_.counters.fetched += body.size();
    }
  }
  core_.cache.trim();
  return OpenReply{new_file(inode, reply.open_id(), flags), keep};
}

void Filesystem::create(Asker asker, NodeId parent, std::string name, std::uint32_t mode, std::uint32_t flags,
                        Done<CreateReply> done) {
  const Result<InodePointer> found = inode_of(parent);
  if (!found) return done(std::unexpected(found.error()));
  schema::Request request;
  schema::CreateRequest& create = *request.mutable_create();
  create.set_parent((*found)->handle);
  create.set_name(name);
  create.set_mode(mode);
  create.set_flags(flags);
  remote_.mutate(asker, std::move(request), schema::Reply::kOpen,
                 [this, directory = *found, name, flags, started = core_.scheduler.now(),
                  done = std::move(done)](Result<rpc::CallReply> reply) mutable {
                   if (!reply) {
                     names_.changed_somehow(*directory, name);
                     return done(std::unexpected(reply.error()));
                   }
                   const schema::OpenReply& open = reply->message.open();
                   const Result<InodePointer> inode = facts_.learn(open.node(), started);
                   if (!inode) return done(std::unexpected(inode.error()));
                   const Result<OpenReply> handle = opened(*inode, open, flags, started, {});
                   if (!handle) return done(std::unexpected(handle.error()));
                   if (open.created()) {
                     const std::lock_guard lock((*inode)->mutex);
                     (*inode)->file->capability_absent = true;
                   }
                   names_.changed(*directory, name, *inode);
                   done(CreateReply{fresh_entry(*inode), *handle});
                 });
}

void Filesystem::release(Handle handle, std::optional<std::uint64_t> flock_owner) {
  const std::shared_ptr<OpenFile> file = files_.take(handle);
  if (flock_owner)
    send_lock({}, file, {.flock = true, .owner = *flock_owner, .type = F_UNLCK, .end = INT64_MAX}, false,
              [file](const Result<schema::LockReply>&) {});
  {
    const std::lock_guard lock(file->inode->mutex);
    std::erase(file->inode->open_files, file.get());
  }
  reader_.handle_close(file);
}

// ---------------------------------------------------------------- read, write

void Filesystem::read(Asker asker, Handle handle, ByteCount offset, ByteCount length, ReadDone done) {
  ++core_.counters.operations;
  const std::shared_ptr<OpenFile> file = files_.find(handle);
  if (auto usable = still_locked(*file); !usable) return done(std::unexpected(usable.error()));
  const Interval range{offset, offset + length};
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
  if (auto usable = still_locked(*file); !usable) return done(std::unexpected(usable.error()));
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
                        write.set_handle(file->inode->handle);
                        write.set_open_id(file->open_id);
                        write.set_append(true);
                        write.set_sync(file->synchronous());
                        write.set_length(static_cast<std::uint32_t>(bytes.size()));
                        call.body = bytes;
                        remote_.mutate_with_body(
                            asker, std::move(call), schema::Reply::kWrite,
                            [this, file, offset, bytes, started = core_.scheduler.now(),
                             done = std::move(done)](Result<rpc::CallReply> reply) mutable {
                              if (!reply) return done(std::unexpected(reply.error()));
                              note_appended(file, bytes, reply->message.write(), started);
                              drop_tail(file->inode, std::min(offset, reply->message.write().offset()),
                                        [count = static_cast<std::uint32_t>(bytes.size()),
                                         done = std::move(done)]() mutable { done(count); });
                            });
                      });
}

void Filesystem::note_appended(const std::shared_ptr<OpenFile>& file, const SharedBytes& bytes,
                               const schema::WriteReply& reply, TimePoint started) {
  Inode& inode = *file->inode;
  core_.counters.written += bytes.size();
  core_.counters.sent += bytes.size();
  {
    const std::lock_guard lock(inode.mutex);
    FileState& state = *inode.file;
    const Interval range{reply.offset(), reply.offset() + bytes.size()};
    const Attributes attr = Attributes::from_schema(reply.attr());
    inode.attributes.accept(attr, started, core_.scheduler.now());
    state.version.follow(reply.attr().change_before(), attr.change);
    state.last_write = core_.scheduler.now();
    state.data_handed_out = true;
    state.data.forget(range);
    state.data.fill(range.begin, bytes.bytes);
    if (!file->synchronous()) note_uncommitted(state);
  }
}

// Others may read the file through the kernel's pages, whose last one ends where the file did.
void Filesystem::drop_tail(const InodePointer& inode, ByteCount from, std::move_only_function<void()> done) {
  core_.scheduler.post_notification([&kernel = core_.kernel, inode, from, done = std::move(done)]() mutable {
    kernel.invalidate_from(inode->id, from);
    done();
  });
}

void Filesystem::note_uncommitted(FileState& file) {
  if (file.uncommitted) return;
  file.uncommitted = true;
  file.uncommitted_boot_id = core_.remote.boot_id();
}

// ---------------------------------------------------------------- flush, fsync

void Filesystem::flush(Asker asker, Handle handle, std::uint64_t lock_owner, Done<void> done) {
  ++core_.counters.operations;
  const std::shared_ptr<OpenFile> file = files_.find(handle);
  write_behind_.flush(asker, file->inode,
                      [this, asker, file, lock_owner, done = std::move(done)](Result<void> flushed) mutable {
                        if (flushed) flushed = write_behind_.take_error(*file);
                        unlock_all_of(asker, file, lock_owner,
                                      [flushed, done = std::move(done)](const Result<void>&) mutable {
                                        done(std::move(flushed));
                                      });
                      });
}

void Filesystem::sync(Asker asker, Handle handle, bool data_only, Done<void> done) {
  ++core_.counters.operations;
  const std::shared_ptr<OpenFile> file = files_.find(handle);
  write_behind_.flush(asker, file->inode,
                      [this, asker, file, data_only, done = std::move(done)](Result<void> flushed) mutable {
                        if (flushed) flushed = write_behind_.take_error(*file);
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
                        bool uncommitted = false;
                        {
                          const std::lock_guard lock(file->inode->mutex);
                          uncommitted = file->inode->file->uncommitted;
                        }
                        if (!uncommitted) return done({});
                        commit(asker, file, data_only, std::move(done));
                      });
}

void Filesystem::commit(const Asker& asker, const std::shared_ptr<OpenFile>& file, bool data_only,
                        Done<void> done) {
  schema::Request request;
  request.mutable_commit()->set_handle(file->inode->handle);
  request.mutable_commit()->set_open_id(file->open_id);
  request.mutable_commit()->set_data_only(data_only);
  // Once only: the server's disk tells an error one time, and a repeat would find nothing wrong.
  remote_.mutate(asker, std::move(request), schema::Reply::kCommit,
                 [this, file, started = core_.scheduler.now(),
                  done = std::move(done)](Result<rpc::CallReply> reply) mutable {
                   if (!reply) return done(std::unexpected(reply.error()));
                   const Result<void> safe =
                       note_committed(*file->inode, reply->message.commit().boot_id(), started);
                   // The error is told here; the file's own close needs not tell it again.
                   if (!safe) (void)write_behind_.take_error(*file);
                   done(safe);
                 });
}

// Writes that were answered before the server machine restarted may never have reached its disk, and
// we do not hold them any more.
Result<void> Filesystem::note_committed(Inode& inode, const std::string& boot_id, TimePoint started) {
  const std::lock_guard lock(inode.mutex);
  if (!inode.file || !inode.file->uncommitted) return {};
  const bool lost = inode.file->uncommitted_boot_id != boot_id;
  if (lost || inode.file->last_write < started) inode.file->uncommitted = false;
  if (!lost) return {};
  const Error error{from_errno(EIO), "the server machine restarted before the data was on its disk"};
  write_behind_.note_error_locked(inode, error);
  return std::unexpected(error);
}

}  // namespace tusk::client
