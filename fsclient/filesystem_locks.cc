// Filesystem: locks, which are all the server's, and what they promise about data.
//
// Who gets a lock sees what the last holder wrote: data goes to the server before an unlock, and what is
// cached is checked after a lock.
#include <fcntl.h>

#include <cerrno>

#include "fsclient/filesystem.h"

namespace tusk::client {

void Filesystem::send_lock(const Asker& asker, const std::shared_ptr<OpenFile>& file, const NewLock& lock,
                           bool test, Done<schema::LockReply> done) {
  schema::Request request;
  describe_lock(*request.mutable_lock(), *file, lock);
  request.mutable_lock()->set_test(test);
  auto answered = [file, done = std::move(done)](Result<rpc::CallReply> reply) mutable {
    if (!reply) return done(std::unexpected(reply.error()));
    done(std::move(*reply->message.mutable_lock()));
  };
  // No sequence number: a lock asked for twice is one lock, and a wait without end would keep the
  // server from forgetting the replies of everything after it.
  if (lock.type != F_UNLCK || test)
    return remote_.wait_for(asker, std::move(request), schema::Reply::kLock, std::move(answered));
  // The kernel interrupts what a killed program still asks for, but its locks must go.
  held_locks_.note(file, lock);
  remote_.insist(asker, std::move(request), schema::Reply::kLock, std::move(answered));
}

void Filesystem::test_lock(Asker asker, Handle handle, NewLock lock, Done<schema::LockReply> done) {
  ++core_.counters.operations;
  const std::shared_ptr<OpenFile> file = files_.find(handle);
  if (in_log({file->inode}))
    return after_log<Done<schema::LockReply>>(asker, std::move(done),
                                              [this, asker, handle, lock](Done<schema::LockReply> then) {
                                                test_lock(asker, handle, lock, std::move(then));
                                              });
  send_lock(asker, file, lock, true, std::move(done));
}

void Filesystem::set_lock(Asker asker, Handle handle, NewLock lock, Done<void> done) {
  ++core_.counters.operations;
  const std::shared_ptr<OpenFile> file = files_.find(handle);
  // The kernel names the owner of a flock by the address of its open file, which another one may have as soon
  // as that is closed; the unlock of the one that is closed may still be on its way then.
  if (lock.flock) lock.owner = handle.value();
  if (auto usable = still_usable(*file); !usable && lock.type != F_UNLCK)
    return done(std::unexpected(usable.error()));
  if (in_log({file->inode}))
    return after_log<Done<void>>(asker, std::move(done), [this, asker, handle, lock](Done<void> then) {
      set_lock(asker, handle, lock, std::move(then));
    });
  if (lock.type != F_UNLCK && unlocks_.concern(*file->inode, lock))
    return wait_for_log<Done<void>>(
        core_, asker, std::move(done),
        [this, asker, handle, lock](Done<void> then) { set_lock(asker, handle, lock, std::move(then)); },
        [this, file, lock](auto go_on, auto gave_up) {
          UnlocksBehindData::Waiter waiter{std::move(go_on), std::move(gave_up)};
          if (!unlocks_.wait(*file->inode, lock, waiter)) core_.scheduler.post(std::move(waiter.go_on));
        });
  if (lock.type != F_UNLCK)  // a lock belongs to an open file
    return open_at_server(asker, file->inode,
                          [this, asker, file, lock, done = std::move(done)](Result<void> opened) mutable {
                            if (!opened) return done(std::move(opened));
                            send_new_lock(asker, file, lock, std::move(done));
                          });
  write_behind_.flush(asker, file->inode,
                      [this, asker, file, lock, done = std::move(done)](Result<void> flushed) mutable {
                        if (!flushed) return done(std::move(flushed));
                        send_new_lock(asker, file, lock, std::move(done));
                      });
}

void Filesystem::send_new_lock(const Asker& asker, const std::shared_ptr<OpenFile>& file, const NewLock& lock,
                               Done<void> done) {
  send_lock(
      asker, file, lock, false,
      [this, asker, file, lock, done = std::move(done)](const Result<schema::LockReply>& reply) mutable {
        if (reply) return after_lock(asker, file, lock, std::move(done));
        give_back(file, lock, reply.error().code);
        done(std::unexpected(reply.error()));
      });
}

// Who believes to hold a lock must not go on as if: somebody else may have it by now.
Result<void> Filesystem::still_usable(OpenFile& file) {
  const std::lock_guard guard(file.inode->mutex);
  if (Result<void> made = made_locked(*file.inode); !made) return made;
  if (!file.lock_lost) return {};
  return fail(from_errno(EIO), "the server has lost the lock on this file");
}

void Filesystem::settle_locks(const schema::AttachReply& attached) {
  const std::vector<std::shared_ptr<OpenFile>> without = held_locks_.settle(attached);
  for (const std::shared_ptr<OpenFile>& file : without) {
    const std::lock_guard guard(file->inode->mutex);
    file->lock_lost = true;
  }
  if (!without.empty()) core_.last_error.set("locks that the server had granted are lost");
}

// A wait that was given up may have been granted in the same moment. Nobody would ever release that
// lock; but POSIX locks the owner had before must stay.
void Filesystem::give_back(const std::shared_ptr<OpenFile>& file, NewLock lock, ErrorCode code) {
  if (code != ErrorCode::kCancelled || lock.type == F_UNLCK) return;
  if (!lock.flock) {
    const std::lock_guard guard(file->inode->mutex);
    if (file->inode->lock_owners.contains(lock.owner)) return;
  }
  lock.type = F_UNLCK;
  lock.wait = false;
  send_lock({}, file, lock, false, [](const Result<schema::LockReply>&) {});
}

void Filesystem::after_lock(const Asker& asker, const std::shared_ptr<OpenFile>& file, const NewLock& lock,
                            Done<void> done) {
  if (lock.type != F_UNLCK) held_locks_.note(file, lock);
  {
    const std::lock_guard guard(file->inode->mutex);
    const bool everything = lock.flock || (lock.start == 0 && lock.end >= INT64_MAX);
    if (lock.type != F_UNLCK || everything)
      (lock.flock ? file->flocked : file->record_locked) = lock.type != F_UNLCK;
    if (lock.type == F_UNLCK && everything) file->lock_lost = false;
    if (lock.type != F_UNLCK && !lock.flock) {
      file->inode->lock_owners.insert(lock.owner);
      file->lock_owners.insert(lock.owner);
    }
  }
  if (lock.type == F_UNLCK) return done({});
  // What others changed while they held it is asked for, and our bytes and the kernel's go before the answer.
  schema::Request request;
  request.mutable_getattr()->set_handle(file->inode->handle());
  request.mutable_getattr()->set_open_id(file->open_id);
  remote_.ask(
      asker, std::move(request), schema::Reply::kAttr,
      [this, file, lock, asked_by = asker.interrupt, started = core_.scheduler.now(),
       done = std::move(done)](const Result<rpc::CallReply>& reply) mutable {
        if (!reply || !facts_.bytes_are_of(*file->inode, reply->message.attr().attr().change()))
          facts_.forget(*file->inode, true, false);
        if (reply)
          (void)facts_.learn(*file->inode, reply->message.attr().attr(), Told(started, reply->message, {}));
        after_pages_dropped(*file->inode, [this, file, lock, asked_by, done = std::move(done)]() mutable {
          // Its request may have been answered with EINTR: nobody would ever release the lock.
          if (!asked_by || !asked_by->fired()) return done({});
          give_back(file, lock, ErrorCode::kCancelled);
          done(fail(ErrorCode::kCancelled, "lock"));
        });
      });
}

bool Filesystem::take_locks_of(OpenFile& file, std::uint64_t owner) {
  const std::lock_guard lock(file.inode->mutex);
  const bool has_locks = file.inode->lock_owners.erase(owner) > 0;
  for (OpenFile* open : file.inode->open_files) open->lock_owners.erase(owner);
  if (file.inode->lock_owners.empty())
    for (OpenFile* open : file.inode->open_files) open->record_locked = false;
  return has_locks;
}

// For nobody who waits: a program that is killed gives its locks back by closing the file. If it lives on and
// wants one of them again, that must come behind this.
void Filesystem::unlock_behind_data(const std::shared_ptr<OpenFile>& file, const NewLock& lock) {
  unlocks_.begin(*file->inode, lock);
  send_unlock_behind_data(file, lock);
}

void Filesystem::send_unlock_behind_data(const std::shared_ptr<OpenFile>& file, const NewLock& lock) {
  write_behind_.flush({}, file->inode, [this, file, lock](const Result<void>& flushed) {
    // Out of reach for longer than calls wait; the data waits on.
    if (!flushed) return send_unlock_behind_data(file, lock);
    send_lock({}, file, lock, false, [this, file, lock](const Result<schema::LockReply>&) {
      resume(unlocks_.end(*file->inode, lock));
    });
    // The owner of a flock is gone, and no other has its number: nobody's next lock is that one's.
    resume(unlocks_.sent(*file->inode, lock));
  });
}

// A process gives its record locks back by a close (flush) of any of its descriptors. An owner that never
// did, and has locks through a file that is gone, is the open file description itself (F_OFD_SETLK).
void Filesystem::unlock_description(const std::shared_ptr<OpenFile>& file) {
  std::set<std::uint64_t> owners;
  {
    const std::lock_guard lock(file->inode->mutex);
    owners.swap(file->lock_owners);
  }
  for (const std::uint64_t owner : owners)
    if (take_locks_of(*file, owner))
      unlock_behind_data(file, {.owner = owner, .type = F_UNLCK, .end = INT64_MAX});
}

void Filesystem::resume(std::vector<UnlocksBehindData::Waiter> waiters) {
  for (auto& waiter : waiters) core_.scheduler.post(std::move(waiter.go_on));
}

// close(2) releases all POSIX locks the process has on the file. Most have none: no call then.
void Filesystem::unlock_all_of(const Asker& asker, const std::shared_ptr<OpenFile>& file, std::uint64_t owner,
                               Done<void> done) {
  if (!take_locks_of(*file, owner)) return done({});
  send_lock(asker, file, {.owner = owner, .type = F_UNLCK, .end = INT64_MAX}, false,
            [done = std::move(done)](const Result<schema::LockReply>&) mutable { done({}); });
}

}  // namespace tusk::client
