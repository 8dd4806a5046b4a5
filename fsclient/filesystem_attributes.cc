// Filesystem: attributes. Extended ones: filesystem_xattrs.cc.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "fsclient/filesystem.h"

namespace tusk::client {
namespace {

// The server has forgotten what this mount has removed; somebody here still has it open, or is in it.
bool only_here(Inode& inode, const Error& error) {
  const std::lock_guard lock(inode.mutex);
  return error.code == from_errno(ESTALE) && inode.removed();
}

std::uint64_t ino_of(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  return inode.attributes.value().ino;
}

// Somebody else removed a file that is open here, without the server, and all of it is here.
bool lives_on_here(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  const bool empty = inode.size() == 0;
  const bool held =
      inode.file && std::ranges::any_of(inode.open_files, [&](const OpenFile* open) {
        return open->open_id == 0 && (empty || !open->held.empty()) && inode.file->data.has(open->held);
      });
  if (held) inode.attributes.adjust([](Attributes& attr) { attr.nlink = 0; });
  return held;
}

}  // namespace

// ---------------------------------------------------------------- stat

void Filesystem::attributes(Asker asker, NodeId node, Done<AttributesReply> done) {
  const Result<InodePointer> found = inode_of(node);
  if (!found) return done(std::unexpected(found.error()));
  ++core_.counters.lookups;
  AttributesReply known = attributes_for(**found);
  if (known.lifetime > Duration::zero()) {
    ++core_.counters.lookups_from_cache;
    return after_pages_dropped(**found,
                               [known, done = std::move(done)]() mutable { done(std::move(known)); });
  }
  if (in_log({*found}))
    return after_log<Done<AttributesReply>>(
        asker, std::move(done),
        [this, asker, node](Done<AttributesReply> then) { attributes(asker, node, std::move(then)); });
  fetch_attributes(asker, *found, std::move(done));
}

void Filesystem::ask_attributes(const Asker& asker, const InodePointer& inode, Done<bool> done) {
  if (!inode->on_server()) return done(false);  // nobody else has changed it
  schema::Request request;
  request.mutable_getattr()->set_handle(inode->handle());
  {
    const std::lock_guard lock(inode->mutex);
    request.mutable_getattr()->set_open_id(inode->any_open_id());
  }
  remote_.ask(asker, std::move(request), schema::Reply::kAttr,
              [this, inode, started = core_.scheduler.now(),
               done = std::move(done)](Result<rpc::CallReply> reply) mutable {
                if (!reply && only_here(*inode, reply.error())) return done(false);
                if (!reply && reply.error().code == from_errno(ESTALE) && lives_on_here(*inode))
                  return done(false);
                if (!reply) return done(std::unexpected(reply.error()));
                const Told told(started, reply->message, {});
                done(facts_.learn(*inode, reply->message.attr().attr(), told));
              });
}

// Until they are answered nobody can tell a change of theirs from somebody else's.
void Filesystem::ask_behind_writes(const InodePointer& inode, Done<bool> done) {
  bool settled = false;
  {
    const std::lock_guard lock(inode->mutex);
    settled = inode->file->data.all_settled();
  }
  if (settled) return ask_attributes({}, inode, std::move(done));
  write_behind_.flush({}, inode, [this, inode, done = std::move(done)](const Result<void>& flushed) mutable {
    if (!flushed) return done(std::unexpected(flushed.error()));
    ask_attributes({}, inode, std::move(done));
  });
}

void Filesystem::fetch_attributes(const Asker& asker, const InodePointer& inode, Done<AttributesReply> done) {
  ask_attributes(asker, inode, [this, inode, done = std::move(done)](const Result<bool>& changed) mutable {
    if (!changed) return done(std::unexpected(changed.error()));
    after_pages_dropped(*inode,
                        [this, inode, done = std::move(done)]() mutable { done(attributes_for(*inode)); });
  });
}

// ---------------------------------------------------------------- chmod, chown, truncate, utimens

void Filesystem::set_attributes(Asker asker, NodeId node, std::optional<Handle> handle, NewAttributes changes,
                                Done<AttributesReply> done) {
  const Result<InodePointer> found = inode_of(node);
  if (!found) return done(std::unexpected(found.error()));
  if (changes.uid) {
    const auto uid = options_.identity.uid_to_server(*changes.uid);
    if (!uid) return done(std::unexpected(uid.error()));
    changes.uid = *uid;
  }
  if (changes.gid) {
    const auto gid = options_.identity.gid_to_server(*changes.gid);
    if (!gid) return done(std::unexpected(gid.error()));
    changes.gid = *gid;
  }
  change_attributes(asker, *found, handle, changes, std::move(done));
}

void Filesystem::change_attributes(const Asker& asker, const InodePointer& inode,
                                   std::optional<Handle> handle, const NewAttributes& changes,
                                   Done<AttributesReply> done) {
  const bool nobody_else_sees_it = [&] {
    const std::lock_guard lock(inode->mutex);
    return inode->removed() && inode->open_files.empty();
  }();
  if (nobody_else_sees_it && !changes.size && in_log({inode}))  // what removed it tells its attributes, too
    return after_log<Done<AttributesReply>>(
        asker, std::move(done), [this, asker, inode, handle, changes](auto then) {
          change_attributes(asker, inode, handle, changes, std::move(then));
        });
  if (nobody_else_sees_it && !changes.size) {
    change_removed(*inode, changes);
    return done(changed_attributes(*inode));
  }
  using Reply = Done<AttributesReply>;
  auto behind_data = [this, asker, inode, handle, changes,
                      done = std::move(done)](const Result<bool>& logged) mutable {
    if (!logged) return done(std::unexpected(logged.error()));
    if (*logged && set_attributes_here(asker, inode, changes, done)) return;
    if (*logged && !core_.log.has_room() && in_log({inode}))
      return after_log<Reply>(asker, std::move(done), [this, asker, inode, handle, changes](Reply then) {
        change_attributes(asker, inode, handle, changes, std::move(then));
      });
    ask_for_attributes(asker, inode, handle, changes, std::move(done));
  };
  if (changes.size) return behind_data(false);  // others must hear of that: it is no entry of the log
  write_behind_.hand_to_log(asker, inode, std::move(behind_data));
}

void Filesystem::ask_for_attributes(const Asker& asker, const InodePointer& inode,
                                    std::optional<Handle> handle, const NewAttributes& changes,
                                    Done<AttributesReply> done) {
  std::uint64_t open_id = 0;
  {
    const std::lock_guard lock(inode->mutex);
    if (handle) open_id = files_.find(*handle)->open_id;
    if (open_id == 0) open_id = inode->any_open_id();
  }
  // After the writes before it: a late one would move the time that is set here, or undo the truncation.
  write_behind_.flush(
      asker, inode,
      [this, asker, inode, open_id, changes, done = std::move(done)](Result<void> flushed) mutable {
        if (!flushed) return done(std::unexpected(flushed.error()));
        open_first(
            asker, changes.may_lock_out() ? inode : nullptr,
            [this, asker, inode, open_id, changes, done = std::move(done)](Result<NoOpens> no_opens) mutable {
              if (!no_opens) return done(std::unexpected(no_opens.error()));
              send_set_attributes(asker, inode, open_id, changes, std::move(*no_opens), std::move(done));
            });
      });
}

void Filesystem::send_set_attributes(const Asker& asker, const InodePointer& inode, std::uint64_t open_id,
                                     const NewAttributes& changes, NoOpens no_opens,
                                     Done<AttributesReply> done) {
  schema::Request request;
  write_set_attributes(*request.mutable_setattr(), changes);
  request.mutable_setattr()->set_handle(inode->handle());
  request.mutable_setattr()->set_open_id(open_id);
  remote_.mutate(
      asker, std::move(request), schema::Reply::kAttr,
      [this, inode, size = changes.size, started = core_.scheduler.now(), no_opens = std::move(no_opens),
       done = std::move(done)](Result<rpc::CallReply> reply) mutable {
        if (!reply && size) may_have_changed(*inode, reply.error());
        if (!reply) {
          const std::lock_guard lock(inode->mutex);
          inode->attributes.expire(core_.scheduler.now());
          core_.loans.withdraw_locked(*inode);
        } else {
          if (size) note_truncated(inode, *size);
          facts_.learn_own(*inode, reply->message.attr().attr(), Told(started, reply->message, {}));
        }
        if (!reply) return done(std::unexpected(reply.error()));
        after_pages_dropped(
            *inode, [this, inode, done = std::move(done)]() mutable { done(changed_attributes(*inode)); });
      });
}

void Filesystem::write_set_attributes(schema::SetAttrRequest& set, const NewAttributes& changes) {
  if (changes.mode) set.set_mode(*changes.mode);
  if (changes.uid) set.set_uid(*changes.uid);
  if (changes.gid) set.set_gid(*changes.gid);
  if (changes.size) set.set_size(*changes.size);
  if (changes.atime) {
    if (const auto* time = std::get_if<timespec>(&*changes.atime)) {
      set.set_atime_s(time->tv_sec);
      set.set_atime_ns(static_cast<std::uint32_t>(time->tv_nsec));
    } else {
      set.set_atime_now(true);
    }
  }
  if (changes.mtime) {
    if (const auto* time = std::get_if<timespec>(&*changes.mtime)) {
      set.set_mtime_s(time->tv_sec);
      set.set_mtime_ns(static_cast<std::uint32_t>(time->tv_nsec));
    } else {
      set.set_mtime_now(true);
    }
  }
}

void Filesystem::change_removed(Inode& inode, const NewAttributes& changes) {
  const std::lock_guard lock(inode.mutex);
  const timespec now = core_.clock.past(inode.shown_ctime());
  inode.attributes.adjust([&](Attributes& attr) { changes.apply_to(attr, now); });
  core_.loans.withdraw_locked(inode);
}

void NewAttributes::apply_to(Attributes& attr, const timespec& now) const {
  const auto time = [&](const NewTime& wanted) {
    const auto* given = std::get_if<timespec>(&wanted);
    return given != nullptr ? *given : now;
  };
  if (mode) attr.mode = (attr.mode & S_IFMT) | (*mode & 07777);
  if (uid) attr.uid = *uid;
  if (gid) attr.gid = *gid;
  if (atime) attr.atime = time(*atime);
  if (mtime) attr.mtime = time(*mtime);
  attr.ctime = now;
}

// What is cached past the shorter of both sizes is not the file's any more.
void Filesystem::note_truncated(const InodePointer& inode, ByteCount size) {
  Deferred after;
  const std::lock_guard lock(inode->mutex);
  if (inode->file) write_behind_.truncate_locked(inode, std::min(size, inode->size()), after);
}

void Filesystem::statistics(Asker asker, NodeId node, Done<schema::StatFsReply> done) {
  const Result<InodePointer> found = inode_of(node);
  if (!found) return done(std::unexpected(found.error()));
  if (in_log({*found}))
    return behind_log<Done<schema::StatFsReply>>(
        asker, *found, std::move(done), [this, asker, inode = *found](Done<schema::StatFsReply> then) {
          ask_statistics(asker, inode, false, std::move(then));
        });
  const bool covered = core_.foresight.allowed() && ExportStatistics::covers(ino_of(**found));
  if (!covered) return ask_statistics(asker, *found, false, std::move(done));
  std::optional<ExportStatistics::Known> known = statistics_.find(core_.scheduler.now());
  if (!known) return ask_statistics(asker, *found, true, std::move(done));
  if (known->renew) ask_statistics({}, *found, true, [](const Result<schema::StatFsReply>&) {});
  done(std::move(known->reply));
}

void Filesystem::ask_statistics(const Asker& asker, const InodePointer& inode, bool keep,
                                Done<schema::StatFsReply> done) {
  schema::Request request;
  request.mutable_statfs()->set_handle(inode->handle());
  remote_.ask(asker, std::move(request), schema::Reply::kStatfs,
              [this, keep, asked = core_.scheduler.now(),
               done = std::move(done)](Result<rpc::CallReply> reply) mutable {
                if (!reply) return done(std::unexpected(reply.error()));
                if (keep) statistics_.keep(reply->message.statfs(), asked);
                done(std::move(*reply->message.mutable_statfs()));
              });
}

}  // namespace tusk::client
