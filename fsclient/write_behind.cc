#include "fsclient/write_behind.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "fsclient/after_log.h"
#include "proto/rpc/compression.h"

namespace tusk::client {
namespace {

bool in_log(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  return inode.log.entries > 0;
}

bool has_pending(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  return inode.file && !inode.file->data.all_settled();
}

}  // namespace
ByteCount WriteBehind::pending_max() const {
  const rpc::PathStats path = core_.path.recent();
  core_.cache.budget()->grow_for(path_holds(path, path.send_bandwidth));
  const auto line = static_cast<ByteCount>(path.send_bandwidth * kPendingSeconds);
  return std::min(std::max(kPendingMin, line), core_.cache.budget()->on_its_way_max());
}

// ---------------------------------------------------------------- writing

WriteBehind::~WriteBehind() {
  // Inodes, their dirty blocks, the open files that wrote them and those for which somebody waits hold one
  // another.
  for (const std::shared_ptr<Inode>& inode : dirty_) {
    std::vector<FlushWaiter> waiters;
    const std::lock_guard lock(inode->mutex);
    inode->file->data.let_writers_go();
    waiters.swap(inode->file->flush_waiters);
  }
}

void WriteBehind::write(const Asker& asker, std::shared_ptr<OpenFile> file, ByteCount offset,
                        std::span<const std::byte> bytes, WriteDone done) {
  const std::shared_ptr<Inode>& inode = file->inode;
  if (has_error(*file))  // what fails of what is still on its way is told with it
    return flush(asker, inode, [this, file, done = std::move(done)](const Result<void>& flushed) mutable {
      if (!flushed) return done(std::unexpected(flushed.error()));
      Deferred answer;
      const std::lock_guard lock(file->inode->mutex);
      note_told_locked(*file);
      answer.add([done = std::move(done), error = file->inode->file->last_error]() mutable {
        done(std::unexpected(std::move(error)));
      });
    });
  {
    Deferred after;
    const std::lock_guard lock(inode->mutex);
    if (inode->log.failed) {
      core_.untold.tell(inode->log.failure);
      return after.add([done = std::move(done), error = *inode->log.failed]() mutable {
        done(std::unexpected(std::move(error)));
      });
    }
    FileState& state = *inode->file;
    pending_ += state.data.write(offset, bytes, file);
    state.note_written({offset, offset + bytes.size()});
    state.written_time = core_.clock.after({});
    if (inode->log.entries > 0 || core_.log.stands(inode->log.made_under)) {
      const timespec ctime = core_.clock.past(inode->shown_ctime());
      inode->attributes.adjust([&](Attributes& attr) {
        attr.mtime = state.written_time;
        attr.ctime = ctime;
      });
      inode->log.show_no_other_times();
    }
    if (!file->writes_past_pages()) state.data_handed_out = true;
    {
      const std::lock_guard set_lock(mutex_);
      dirty_.insert(inode);
    }
    send_full(inode, {offset, offset + bytes.size()}, after);
    arm_timer(inode, after);
  }
  log_ahead(inode, {offset, offset + bytes.size()});
  core_.counters.written += bytes.size();
  core_.cache.trim();

  const auto count = static_cast<std::uint32_t>(bytes.size());
  if (has_room()) return done(count);
  stall(asker, count, std::move(done));
}

void WriteBehind::stall(const Asker& asker, std::uint32_t count, WriteDone done) {
  std::uint64_t ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    ticket = next_ticket_++;
    stalled_.push_back({ticket, count, std::move(done)});
  }
  if (asker.interrupt) {
    asker.interrupt->on_fire([this, ticket] {
      core_.scheduler.post_after(core_.path.interrupt_grace(), [this, ticket] { give_up_stall(ticket); });
    });
  }
  // The last answer may have come before the write was in the queue.
  Deferred after;
  release_stalled(after);
}

// The bytes are taken in already: the write is done as far as the program is concerned.
void WriteBehind::give_up_stall(std::uint64_t ticket) {
  Deferred after;
  const std::lock_guard lock(mutex_);
  std::erase_if(stalled_, [&](Stalled& stalled) {
    if (stalled.ticket != ticket) return false;
    after.add([done = std::move(stalled.done), bytes = stalled.bytes]() mutable { done(bytes); });
    return true;
  });
}

// What the log holds waits for the server however long that takes; who waits behind it need not. The bytes
// are taken in and go when they can, but a program that asked for errors in an outage is told so.
void WriteBehind::handle_outage(const Error& error) {
  std::vector<std::shared_ptr<Inode>> inodes;
  {
    Deferred after;
    const std::lock_guard lock(mutex_);
    for (Stalled& stalled : std::exchange(stalled_, {}))
      after.add([done = std::move(stalled.done), error]() mutable { done(std::unexpected(error)); });
    inodes.assign(dirty_.begin(), dirty_.end());
  }
  for (const auto& inode : inodes) {
    Deferred after;
    const std::lock_guard lock(inode->mutex);
    for (FlushWaiter& waiter : std::exchange(inode->file->flush_waiters, {}))
      after.add([done = std::move(waiter.done), error]() mutable { done(std::unexpected(error)); });
  }
}

void WriteBehind::arm_timer(const std::shared_ptr<Inode>& inode, Deferred& after) {
  FileData& data = inode->file->data;
  if (inode->file->timer_armed || !inode->on_server()) return;
  if (std::ranges::none_of(data.unsettled(), [&](auto block) { return data.lies_dirty(block); })) return;
  inode->file->timer_armed = true;
  inode->file->timer_generation = data.next_generation();
  after.add([this, weak = std::weak_ptr(inode)] {
    core_.scheduler.post_after(kDirtyAge, [this, weak] {
      const std::shared_ptr<Inode> aged = weak.lock();
      if (!aged) return;
      Deferred calls;
      const std::lock_guard lock(aged->mutex);
      aged->file->timer_armed = false;
      send_dirty(aged, aged->file->timer_generation, calls);
      arm_timer(aged, calls);
    });
  });
}

// ---------------------------------------------------------------- sending

// Of the blocks that were written to just now: those that were full before have been sent.
void WriteBehind::send_full(const std::shared_ptr<Inode>& inode, Interval written, Deferred& after) {
  const FileData& data = inode->file->data;
  for (std::uint64_t block = written.begin / kBlockSize; block * kBlockSize < written.end; ++block)
    if (data.written_to_the_end(block)) send(inode, block, after);
}

// Blocks that are dirty since this generation or an older one.
void WriteBehind::send_dirty(const std::shared_ptr<Inode>& inode, std::uint64_t generation, Deferred& after) {
  const FileData& data = inode->file->data;
  const std::vector<std::uint64_t> blocks(data.unsettled().begin(), data.unsettled().end());
  for (const std::uint64_t block : blocks)
    if (data.dirty_since(block, generation)) send(inode, block, after);
}

void WriteBehind::send(const std::shared_ptr<Inode>& inode, std::uint64_t block, Deferred& after) {
  if (!inode->on_server()) return;  // log_ahead() or handle_arrival() comes
  std::optional<OutgoingWrite> write = inode->file->data.begin_write(block, core_.call_max);
  if (!write) return;
  inode->file->beside_log = true;
  after.add([this, inode, write = std::move(*write), started = core_.scheduler.now()]() mutable {
    call(inode, std::move(write), started);
  });
}

void WriteBehind::call(const std::shared_ptr<Inode>& inode, OutgoingWrite write, TimePoint started) {
  if (!core_.path.sends_slowly()) return call_with(inode, std::move(write), started, std::nullopt);
  core_.scheduler.post([this, inode, write = std::move(write), started]() mutable {
    auto packed = rpc::compress_if_it_helps(write.bytes.bytes);
    call_with(inode, std::move(write), started, std::move(packed));
  });
}

void WriteBehind::call_with(const std::shared_ptr<Inode>& inode, OutgoingWrite write, TimePoint started,
                            std::optional<SharedBytes> packed) {
  rpc::CallRequest request;
  schema::WriteRequest& message = *request.message.mutable_write();
  message.set_handle(inode->handle());
  message.set_open_id(write.writer->open_id);
  message.set_offset(write.range.begin);
  message.set_length(static_cast<std::uint32_t>(write.range.size()));
  message.set_sync(write.writer->synchronous());
  message.set_compressed(packed.has_value());
  request.body = packed.value_or(write.bytes);
  request.priority = rpc::Priority::kBulk;
  core_.remote.transfer(std::move(request), schema::Reply::kWrite,
                        [this, inode, write = std::move(write), started](Result<rpc::CallReply> reply) {
                          if (!reply)
                            return finish(inode, write, started, std::unexpected(reply.error()), {});
                          const Way way{.verifier = core_.remote.verifier_of(reply->message)};
                          finish(inode, write, Told(started, reply->message, {}), reply->message.write(),
                                 way);
                        });
}

// ---------------------------------------------------------------- through the log

namespace {

// What was written under a lock must be on the server before the lock is given back, which goes another way
// than the log. With the inode's mutex held.
bool locked(const Inode& inode) {
  return !inode.lock_owners.empty() || std::ranges::any_of(inode.open_files, [](const OpenFile* open) {
    return open->flocked || open->record_locked;
  });
}

}  // namespace

bool WriteBehind::may_log(const Inode& inode) const {
  const TimePoint failed_at = failed_at_.load();
  const TimePoint now = core_.scheduler.now();
  const bool warned = failed_at != TimePoint::min() && now - failed_at < kWarned;
  return !warned && core_.trust.waited_for(now) && core_.log.stands(inode.log.made_under) &&
         !inode.file->beside_log && !locked(inode);
}

ByteCount WriteBehind::logged_max() const {
  const auto line = static_cast<ByteCount>(core_.path.recent().send_bandwidth * kLoggedSeconds);
  return std::clamp(line, kLoggedMin, OperationLog::kBytesMax);
}

WriteBehind::Handed WriteBehind::try_log(const std::shared_ptr<Inode>& inode) {
  std::vector<OutgoingWrite> writes;
  std::uint64_t exclusive = 0;
  timespec written{};
  bool all = true;
  const ByteCount logged = logged_max();
  const std::lock_guard hand(handing_);
  const OperationLog::Naming naming = core_.log.naming();
  {
    const std::lock_guard lock(inode->mutex);
    if (!inode->file || inode->file->data.all_settled()) return Handed::kAll;
    FileData& data = inode->file->data;
    const ByteCount dirty = data.dirty_bytes();
    const bool small = data.pending_bytes() <= kSmallMax;
    exclusive = inode->log.made_under;
    written = inode->file->written_time;
    if (!may_log(*inode)) return Handed::kNo;
    if (!small && (core_.path.sends_slowly() || data.pending_bytes() > std::min(kLoggedMax, logged / 2)))
      return Handed::kNo;
    if (dirty == 0) return Handed::kAll;  // it is in the log
    if (!small && (!core_.log.has_room() || core_.log.bytes() + dirty > logged)) return Handed::kLater;
    const std::vector<std::uint64_t> blocks(data.unsettled().begin(), data.unsettled().end());
    for (const std::uint64_t block : blocks) {
      if (data.dirty(block))
        if (auto write = data.begin_write(block, core_.call_max)) writes.push_back(std::move(*write));
      all = all && !data.dirty(block);
    }
  }
  for (OutgoingWrite& write : writes)
    all = append_to_log(naming, inode, exclusive, std::move(write), written) && all;
  return all ? Handed::kAll : Handed::kNo;
}

// A file that the server is about to make has no handle yet that its blocks could be sent under. Those that
// are full go behind its making, a round trip sooner than in calls of their own; more than the path holds
// would not get away sooner.
void WriteBehind::log_ahead(const std::shared_ptr<Inode>& inode, Interval written_now) {
  if (inode->on_server() || core_.path.sends_slowly()) return;
  std::vector<OutgoingWrite> writes;
  std::uint64_t exclusive = 0;
  timespec written{};
  const rpc::PathStats path = core_.path.recent();
  const ByteCount ahead = std::clamp(path_holds(path, path.send_bandwidth), kAheadMin, logged_max());
  const std::lock_guard hand(handing_);
  const OperationLog::Naming naming = core_.log.naming();
  {
    const std::lock_guard lock(inode->mutex);
    if (inode->on_server() || !may_log(*inode)) return;
    FileData& data = inode->file->data;
    exclusive = inode->log.made_under;
    written = inode->file->written_time;
    ByteCount taken = core_.log.bytes();
    if (!core_.log.has_room()) return;
    for (auto block = written_now.begin / kBlockSize; block * kBlockSize < written_now.end; ++block) {
      if (taken + kBlockSize > ahead) break;
      if (!data.written_to_the_end(block)) continue;
      auto write = data.begin_write(block, core_.call_max);
      if (!write) continue;
      taken += write->range.size();
      writes.push_back(std::move(*write));
    }
  }
  if (!writes.empty()) core_.log.send_gathered();  // its making, whose answer all others wait for
  for (OutgoingWrite& write : writes)
    (void)append_to_log(naming, inode, exclusive, std::move(write), written);
}

void WriteBehind::hand_to_log(const Asker& asker, const std::shared_ptr<Inode>& inode,
                              std::move_only_function<void(Result<bool>)> done) {
  const Handed handed = try_log(inode);
  // It is on its way, but it may not arrive, as the mount knows by now: the program waits for the answer.
  if (handed == Handed::kAll && core_.path.silent() && has_pending(*inode)) return done(false);
  if (handed != Handed::kLater) return done(handed == Handed::kAll);
  after_log_below<std::move_only_function<void(Result<bool>)>>(
      core_, logged_max() / 2, asker, std::move(done),
      [this, asker, inode](auto then) { hand_to_log(asker, inode, std::move(then)); });
}

bool WriteBehind::append_to_log(const OperationLog::Naming& naming, const std::shared_ptr<Inode>& inode,
                                std::uint64_t exclusive, OutgoingWrite write, timespec written) {
  schema::Request entry;
  entry.set_made_at_ns(to_unix_ns(written));
  schema::WriteRequest& message = *entry.mutable_write();
  message.set_handle(inode->name_in_log());
  message.set_open_id(write.writer->open_id);
  message.set_offset(write.range.begin);
  message.set_length(static_cast<std::uint32_t>(write.range.size()));
  message.set_sync(write.writer->synchronous());
  const SharedBytes bytes = write.bytes;
  const auto outgoing = std::make_shared<OutgoingWrite>(std::move(write));
  const TimePoint started = core_.scheduler.now();
  auto answered = [this, inode, outgoing, started,
                   in_log = facts_.begin_entry(inode)](Result<schema::Reply> reply) {
    const Way way{.by_log = true, .verifier = reply ? reply->write_verifier() : 0};
    if (!reply) return finish(inode, *outgoing, started, std::unexpected(reply.error()), way);
    const Told told(started, *reply, {});
    facts_.learn_logged(*inode, reply->write().attr(), told);
    finish(inode, *outgoing, told, reply->write(), way);
  };
  if (core_.log.append(naming, exclusive, {}, std::move(entry), bytes, std::move(answered))) return true;
  // Taken back meanwhile: behind what is in the log it goes as any other.
  {
    const std::lock_guard lock(inode->mutex);
    inode->file->beside_log = true;
  }
  core_.log.when_answered([this, inode, outgoing, started] { call(inode, std::move(*outgoing), started); });
  return false;
}

void WriteBehind::give_up(const std::shared_ptr<Inode>& inode, const Error& error) {
  Deferred after;
  const std::lock_guard lock(inode->mutex);
  if (!inode->file) return;
  note_error_locked(*inode, error, after);
  truncate_locked(inode, 0, after);
}

void WriteBehind::truncate_locked(const std::shared_ptr<Inode>& inode, ByteCount size, Deferred& after) {
  pending_ -= inode->file->data.truncate(size);
  IntervalSet& written = inode->file->written;
  if (inode->file->data.all_settled()) written.clear();
  written.remove(size, kWholeFile.end);
  settle(inode, after);
}

void WriteBehind::handle_arrival(const std::shared_ptr<Inode>& inode) {
  Deferred after;
  const std::lock_guard lock(inode->mutex);
  if (inode->file) send_dirty(inode, inode->file->data.next_generation(), after);
}

// ---------------------------------------------------------------- answers

void WriteBehind::finish(const std::shared_ptr<Inode>& inode, const OutgoingWrite& write, const Told& told,
                         const Result<schema::WriteReply>& reply, const Way& way) {
  Deferred after;
  const std::lock_guard lock(inode->mutex);
  FileState& file = *inode->file;
  const bool disowned = file.data.disowned(write.block);
  after.add([writer = file.data.end_write(write.block, reply.has_value())] {});
  file.last_write = core_.scheduler.now();
  if (reply) {
    core_.counters.sent += write.range.size();
    learn_written(*inode, write, *reply, told, way);
    if (!inode->open_files.empty()) pages_.written_locked(*inode, told.about(reply->attr()), after);
    after.add([this, inode, write, verifier = way.verifier] { keep(inode, write, verifier); });
    if (disowned && !file.data.any_disowned()) drop_kernel_pages(inode, after);
  } else if (!inode->log.failed) {  // else it has been told of that
    note_error_locked(*inode, reply.error(), after);
    if (way.by_log) failed_at_ = core_.scheduler.now();
    if (file.data.all_settled()) file.written.clear();  // how far the file reaches now the server tells
    drop_kernel_pages(inode, after);
  }
  pending_ -= write.range.size();
  send(inode, write.block, after);
  settle(inode, after);
}

// They may show what was written and is not the file's.
void WriteBehind::drop_kernel_pages(const std::shared_ptr<Inode>& inode, Deferred& after) {
  after.add([this, inode] { facts_.drop_kernel_pages(*inode); });
}

// Some of it is not on its way any more: tells who waits for that.
void WriteBehind::settle(const std::shared_ptr<Inode>& inode, Deferred& after) {
  if (inode->file->data.all_settled()) {
    inode->file->beside_log = false;
    const std::lock_guard set_lock(mutex_);
    dirty_.erase(inode);
  }
  wake_flushers(*inode, after);
  after.add([this] {
    Deferred replies;
    release_stalled(replies);
  });
}

void WriteBehind::learn_written(Inode& inode, const OutgoingWrite& write, const schema::WriteReply& reply,
                                const Told& told, const Way& way) {
  FileState& file = *inode.file;
  const Attributes attr = Attributes::from_schema(reply.attr());
  core_.loans.withdraw_locked(inode);
  if (!way.by_log) file.version.follow(reply.attr().change_before(), attr.change);
  if (inode.log.entries > 0 && !way.by_log)
    facts_.learn_beside_log_locked(inode, reply.attr(), told);
  else if (inode.log.entries == 0 && attr.mode != 0 &&
           inode.attributes.accept(attr, told.about(reply.attr()), core_.scheduler.now()))
    file.written.remove(write.range.begin, write.range.end);
  if (file.data.all_settled() && inode.log.entries == 0) facts_.written_locked(inode);
}

// Without a copy. What was written through O_SYNC is on the disk, but whoever makes older changes of the file
// again would do so over it.
void WriteBehind::keep(const std::shared_ptr<Inode>& inode, const OutgoingWrite& write,
                       std::uint64_t verifier) {
  if (write.writer->synchronous() && !core_.uncommitted.has_any(inode->handle(), inode.get())) return;
  core_.uncommitted.add({.request = nullptr,
                         .made = {},
                         .file = inode,
                         .range = write.range,
                         .bytes = write.bytes,
                         .verifier = verifier},
                        core_.remote.verifier());
}

void WriteBehind::handle_commit() {
  Deferred replies;
  release_stalled(replies);
}

// ---------------------------------------------------------------- errors

namespace {

// Somebody who writes, and has not closed it. Who only reads is told, too, but may not be heard by who wrote.
bool writer_of(const Inode& inode) {
  return std::ranges::any_of(inode.open_files, [](const OpenFile* open) { return open->writable(); });
}

std::string text_of_error(const Inode& inode) {
  const std::string which = inode.name.empty() ? "a file without a name" : "'" + inode.name + "'";
  return "write to " + which + ": " + inode.file->last_error.message();
}

}  // namespace

void WriteBehind::note_close_locked(const OpenFile& file) {
  Inode& inode = *file.inode;
  // Whatever this one was told: it may have come behind the error, and stayed longer than who wrote.
  if (inode.file && file.writable()) note_untold_locked(inode);
}

void WriteBehind::note_untold_locked(Inode& inode) {
  if (!writer_of(inode)) core_.untold.count(inode.file->failure);
}

void WriteBehind::settle_untold_locked(Inode& inode) {
  if (core_.untold.counts(inode.file->failure)) core_.untold.tell(inode.file->failure);
}

// Who only reads is told as well, but what he hears counts for nobody.
void WriteBehind::note_told_locked(OpenFile& file) {
  file.errors_told = file.inode->file->errors;
  if (file.writable()) core_.untold.tell(file.inode->file->failure);
}

void WriteBehind::note_error_locked(Inode& inode, const Error& error, Deferred& after) {
  FileState& file = *inode.file;
  ++file.errors;
  file.last_error = error;
  if (core_.untold.told(file.failure)) file.failure = core_.untold.note(text_of_error(inode));
  note_untold_locked(inode);
  inode.attributes.expire(core_.scheduler.now());  // the size may include what is lost now
  const TimePoint now = core_.scheduler.now();
  const bool to_log = file.error_logged_at == TimePoint::min() || now - file.error_logged_at >= kErrorsLogged;
  if (to_log) file.error_logged_at = now;
  core_.last_error.set(text_of_error(inode), after, to_log);
}

bool WriteBehind::has_error(OpenFile& file) {
  const std::lock_guard lock(file.inode->mutex);
  return file.inode->file && file.errors_told != file.inode->file->errors;
}

Result<void> WriteBehind::take_untold_error(const std::shared_ptr<Inode>& inode) {
  if (!inode) return {};
  const std::lock_guard lock(inode->mutex);
  if (!inode->file || !core_.untold.counts(inode->file->failure)) return {};
  settle_untold_locked(*inode);
  return std::unexpected(inode->file->last_error);
}

Result<void> WriteBehind::take_error(OpenFile& file) {
  const std::lock_guard lock(file.inode->mutex);
  if (!file.inode->file || file.errors_told == file.inode->file->errors) return {};
  note_told_locked(file);
  return std::unexpected(file.inode->file->last_error);
}

// ---------------------------------------------------------------- waiting

void WriteBehind::flush(const Asker& asker, const std::shared_ptr<Inode>& inode, Done done) {
  std::uint64_t generation = 0;  // of what is written by now
  {
    const std::lock_guard lock(inode->mutex);
    if (inode->file) generation = inode->file->data.next_generation();
  }
  if (!in_log(*inode)) return wait_until_settled(asker, inode, generation, std::move(done));
  // What can go with the log needs no round trip behind it.
  (void)try_log(inode);
  after_whole_log<Done>(core_, asker, std::move(done), [this, asker, inode, generation](Done then) {
    wait_until_settled(asker, inode, generation, std::move(then));
  });
}

void WriteBehind::wait_until_settled(const Asker& asker, const std::shared_ptr<Inode>& inode,
                                     std::uint64_t generation, Done done) {
  std::uint64_t ticket = 0;
  {
    Deferred after;
    const std::lock_guard lock(inode->mutex);
    if (!inode->file || inode->file->data.settled(generation)) {
      after.add([done = std::move(done)]() mutable { done({}); });
      return;
    }
    FileState& file = *inode->file;
    ticket = file.next_ticket++;
    file.flush_waiters.push_back({generation, ticket, std::move(done)});
    send_dirty(inode, generation, after);
  }
  if (!asker.interrupt) return;
  asker.interrupt->on_fire([this, inode, ticket] {
    core_.scheduler.post_after(core_.path.interrupt_grace(),
                               [this, inode, ticket] { give_up_flush(inode, ticket); });
  });
}

void WriteBehind::give_up_flush(const std::shared_ptr<Inode>& inode, std::uint64_t ticket) {
  Deferred after;
  const std::lock_guard lock(inode->mutex);
  std::erase_if(inode->file->flush_waiters, [&](FlushWaiter& waiter) {
    if (waiter.ticket != ticket) return false;
    after.add([done = std::move(waiter.done)]() mutable { done(fail(ErrorCode::kCancelled, "flush")); });
    return true;
  });
}

void WriteBehind::wake_flushers(Inode& inode, Deferred& after) {
  FileState& file = *inode.file;
  std::erase_if(file.flush_waiters, [&](FlushWaiter& waiter) {
    if (!file.data.settled(waiter.generation)) return false;
    after.add([done = std::move(waiter.done)]() mutable { done({}); });
    return true;
  });
}

void WriteBehind::flush_all(Done done) {
  std::vector<std::shared_ptr<Inode>> inodes;
  {
    const std::lock_guard lock(mutex_);
    inodes.assign(dirty_.begin(), dirty_.end());
  }
  struct Gathering {
    std::atomic<std::size_t> left;
    Done done;
  };
  auto gathering = std::make_shared<Gathering>();
  gathering->left = inodes.size() + 1;
  gathering->done = std::move(done);
  const auto one_less = [gathering](const Result<void>&) {
    if (--gathering->left == 0) gathering->done({});
  };
  for (const auto& inode : inodes) flush({}, inode, one_less);
  one_less({});
}

// Replies run without the mutex: a reply may write again.
void WriteBehind::release_stalled(Deferred& after) {
  const bool room = core_.committer.has_room();
  const ByteCount limit = pending_max();
  const std::lock_guard lock(mutex_);
  while (!stalled_.empty() && room && pending() <= limit) {
    after.add([stalled = std::move(stalled_.front())]() mutable { stalled.done(stalled.bytes); });
    stalled_.pop_front();
  }
}

}  // namespace tusk::client
