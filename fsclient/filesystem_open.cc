// Filesystem: how open files begin and end.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "fsclient/filesystem.h"

namespace tusk::client {

namespace {

Attributes locked_copy(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  return inode.shown();
}

// The exclusiveness under which this mount made the file; 0: it did not.
std::uint64_t log_number_of(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  return inode.log.made_under;
}

// A change counter that is not the known one may include WRITEs of ours that are still to be answered. Under
// a lease that is all it can be: of changes by others pushes tell, which disown what is on its way. Without
// one somebody else may have written over the same bytes since, and nothing tells whether.
void forget_bytes(FileState& file, bool leased) {
  if (!leased) file.data.disown(kWholeFile);
  file.forget_bytes();
}

// Who opens the file sees it as of this change, which was told under a lease or not. Whether the bytes that
// are known, here and in the kernel, are of it; else those here are forgotten. With the inode's mutex held.
bool keep_bytes_of(FileState& file, std::uint64_t change, bool leased) {
  const bool same = file.version.is(change);
  if (!same) {
    forget_bytes(file, leased);
    file.version.set(change);
  }
  file.capability_absent = file.capability_absent && same;
  return same;
}

// The kernel may have something else in mind: what was shown before, or even what was shown long before.
bool others_changed(const Attributes& before, Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  const Attributes now = inode.shown();
  if (inode.told_size && *inode.told_size != now.size) return true;
  return before.mode != 0 && (before.size != now.size || !same_time(before.mtime, now.mtime));
}

}  // namespace

// One open for reading that may find all it needs here, or on its way.
struct Filesystem::WaitingOpen {
  Asker asker;
  InodePointer inode;
  std::uint32_t flags = 0;
  Done<OpenReply> done;
  std::atomic<bool> ended{false};
};

std::shared_ptr<OpenFile> Filesystem::make_file(const InodePointer& inode, std::uint64_t open_id,
                                                std::uint32_t flags) {
  // The server is told from a worker: the last reference may go while a lock is held.
  auto close = [this, exclusive = log_number_of(*inode)](std::uint64_t id) {
    if (id == 0) return;
    if (exclusive != 0) return core_.scheduler.post([this, id, exclusive] { close_own(id, exclusive); });
    core_.scheduler.post([this, id] { close_at_server(id); });
  };
  return std::make_shared<OpenFile>(inode, open_id, flags, std::move(close));
}

Handle Filesystem::enter_file_locked(const std::shared_ptr<OpenFile>& file) {
  Inode& inode = *file->inode;
  if (inode.file) file->errors_told = inode.file->errors;
  inode.open_files.push_back(file.get());
  return files_.insert(file);
}

Handle Filesystem::new_file(const InodePointer& inode, std::uint64_t open_id, std::uint32_t flags,
                            Interval held) {
  const std::shared_ptr<OpenFile> file = make_file(inode, open_id, flags);
  file->held = held;
  const std::lock_guard lock(inode->mutex);
  return enter_file_locked(file);
}

// Also through an outage in which other calls fail: the session may outlive it, and what is open in it.
void Filesystem::close_at_server(std::uint64_t open_id) {
  rpc::CallRequest call;
  call.message.mutable_close()->set_open_id(open_id);
  call.outlives_outages = true;
  remote_.transfer(std::move(call), schema::Reply::kEmpty, [](const Result<rpc::CallReply>&) {});
}

void Filesystem::open(Asker asker, NodeId node, std::uint32_t flags, Done<OpenReply> done) {
  const Result<InodePointer> found = inode_of(node);
  if (!found) return done(std::unexpected(found.error()));
  if ((flags & (O_ACCMODE | O_TRUNC | O_DIRECT)) == O_RDONLY) {
    auto waiting = std::make_shared<WaitingOpen>();
    waiting->asker = std::move(asker);
    waiting->inode = *found;
    waiting->flags = flags;
    waiting->done = std::move(done);
    files_ahead_.note_open(*found);
    return open_to_read(waiting);
  }
  if (in_log({*found}))
    return after_log<Done<OpenReply>>(
        asker, std::move(done),
        [this, asker, node, flags](Done<OpenReply> then) { open(asker, node, flags, std::move(then)); });
  if ((flags & O_TRUNC) == 0) return send_open(asker, *found, flags, std::move(done));
  // Writes on their way must not land in the emptied file.
  write_behind_.flush(
      asker, *found,
      [this, asker, inode = *found, flags, done = std::move(done)](Result<void> flushed) mutable {
        if (!flushed) return done(std::unexpected(flushed.error()));
        send_open(asker, inode, flags, std::move(done));
      });
}

void Filesystem::open_to_read(const std::shared_ptr<WaitingOpen>& open) {
  if (open->ended) return;
  if (answer_here(open)) return;
  std::move_only_function<void()> again = [this, open] { open_to_read(open); };
  if (in_log({open->inode})) {
    if (!open->ended.exchange(true))
      after_log<Done<OpenReply>>(
          open->asker, std::move(open->done),
          [this, asker = open->asker, node = open->inode->id, flags = open->flags](Done<OpenReply> then) {
            this->open(asker, node, flags, std::move(then));
          });
    return;
  }
  if (!files_ahead_.wait_for(*open->inode, again)) {
    if (answer_here(open)) return;  // its bytes came between the two looks
    if (const auto opened = open_meanwhile(open->asker, open->inode, open->flags)) {
      if (open->ended.exchange(true)) return release(opened->handle, false);
      return open->done(*opened);
    }
    if (!open->ended.exchange(true)) send_open(open->asker, open->inode, open->flags, std::move(open->done));
    return;
  }
  heed_interrupt(open);
}

void Filesystem::heed_interrupt(const std::shared_ptr<WaitingOpen>& open) {
  if (!open->asker.interrupt) return;
  open->asker.interrupt->on_fire([this, weak = std::weak_ptr(open)] {
    core_.scheduler.post_after(core_.path.interrupt_grace(), [weak] {
      const auto stuck = weak.lock();
      if (stuck && !stuck->ended.exchange(true)) stuck->done(fail(ErrorCode::kCancelled, "open"));
    });
  });
}

bool Filesystem::answer_here(const std::shared_ptr<WaitingOpen>& open) {
  const std::optional<OpenReply> opened = open_here(open->inode, open->flags);
  if (!opened) return false;
  auto answer = [this, open, reply = *opened] {
    if (open->ended.exchange(true)) return release(reply.handle, false);
    open->done(reply);
  };
  if (opened->keep_cache) {
    answer();
  } else {
    heed_interrupt(open);
    after_attributes_dropped(*open->inode, std::move(answer));
  }
  return true;
}

// The kernel cuts every read at the size it knows: it must ask anew before the program reads.
void Filesystem::after_attributes_dropped(const Inode& inode, std::move_only_function<void()> then) {
  core_.scheduler.post_notification(
      [&kernel = core_.kernel, id = inode.id, then = std::move(then)]() mutable {
        kernel.invalidate_attributes(id);
        then();
      });
}

std::optional<OpenReply> Filesystem::open_here(const InodePointer& inode, std::uint32_t flags) {
  Interval held;
  bool known_size = false;
  {
    const std::lock_guard lock(inode->mutex);
    if (!inode->file) return std::nullopt;
    FileState& file = *inode->file;
    held = {0, inode->size()};
    const bool own = inode->log.entries > 0 && core_.log.stands(inode->log.made_under);
    const bool whole =
        file.data.has(held) &&
        (own || (file.data.all_settled() && file.version.is(inode->attributes.value().change)));
    const bool room = held_here_ + held.size() <= core_.cache.budget()->cap() / kHeldShare;
    known_size = !inode->told_size || *inode->told_size == held.size();
    if (!whole || !room || attributes_lifetime_locked(*inode) == Duration::zero()) return std::nullopt;
    if (!own && !core_.foresight.take(file.ahead, core_.scheduler.now()) && !facts_.covered_locked(*inode))
      return std::nullopt;
    file.data.hold(held);
  }
  held_here_ += held.size();
  return OpenReply{new_file(inode, 0, flags, held), known_size};
}

// Whether the server, too, is going to allow what the kernel has allowed here. Where that is not plain
// (access control lists, groups), it is asked.
bool Filesystem::server_lets_read(const Asker& asker, const Attributes& attr) const {
  constexpr std::uint32_t kAnybody = S_IRUSR | S_IRGRP | S_IROTH;
  const std::uint32_t acts_as = options_.identity.is_real() ? asker.uid : owner_uid_;
  if (acts_as == 0) return true;
  if (!attr.no_xattrs) return false;
  return (attr.mode & kAnybody) == kAnybody || (acts_as == attr.uid && (attr.mode & S_IRUSR) != 0);
}

// All that an OPEN would tell is known under a lease, and nobody can take the file away before it is open:
// pushes about it wait for that, and this mount's own changes that could ask for it first (open_first). If
// the server does not open it after all the reads tell why; they name it by its handle.
std::optional<OpenReply> Filesystem::open_meanwhile(const Asker& asker, const InodePointer& inode,
                                                    std::uint32_t flags) {
  const std::shared_ptr<OpenFile> open_file = make_file(inode, 0, flags);
  OpenReply reply{};
  std::shared_ptr<OpensMeanwhile::Group> group;
  {
    const std::lock_guard lock(inode->mutex);
    if (!inode->file || inode->size() <= kOpenReadAhead || !core_.foresight.allowed()) return std::nullopt;
    if (inode->file->opens_meanwhile.barred() || inode->log.entries > 0) return std::nullopt;
    if (opens_meanwhile_ >= kOpensMeanwhileMax) return std::nullopt;
    FileState& file = *inode->file;
    const Attributes& attr = inode->attributes.value();
    const bool known_size = !inode->told_size || *inode->told_size == inode->size();
    const bool leased = core_.trust.covered(inode->attributes.learnt(), core_.scheduler.now());
    if (!known_size || !file.data.all_settled() || !server_lets_read(asker, attr) || !leased)
      return std::nullopt;
    reply.keep_cache = keep_bytes_of(file, attr.change, leased);
    reply.handle = enter_file_locked(open_file);
    group = file.opens_meanwhile.begin();
    ++opens_meanwhile_;
  }
  const Asker unstoppable{asker.uid, asker.gid, asker.pid, nullptr};
  open_at_server(unstoppable, std::span(&open_file, 1), [this, inode, group](const Result<void>&) {
    --opens_meanwhile_;
    OpensMeanwhile::Pushes pushes;
    {
      const std::lock_guard lock(inode->mutex);
      pushes = inode->file->opens_meanwhile.end(group);
    }
    for (const auto& push : pushes) push->handle_opened();
  });
  return reply;
}

void Filesystem::open_first(const Asker& asker, const InodePointer& inode, Done<NoOpens> then) {
  NoOpens bar;
  if (inode) {
    const std::lock_guard lock(inode->mutex);
    if (inode->file) {
      inode->file->opens_meanwhile.bar();
      bar = NoOpens(nullptr, [inode](std::nullptr_t) {
        const std::lock_guard unlock(inode->mutex);
        inode->file->opens_meanwhile.unbar();
      });
    }
  }
  open_at_server(asker, inode,
                 [bar = std::move(bar), then = std::move(then)](const Result<void>& opened) mutable {
                   const NoOpens held = std::move(bar);
                   if (!opened) return then(std::unexpected(opened.error()));
                   then(held);
                 });
}

void Filesystem::open_at_server(const Asker& asker, const InodePointer& inode, Done<void> then) {
  std::vector<std::shared_ptr<OpenFile>> here;
  if (inode) {
    const std::lock_guard lock(inode->mutex);
    for (OpenFile* file : inode->open_files)
      if (auto open = file->open_id == 0 ? file->weak_from_this().lock() : nullptr)
        here.push_back(std::move(open));
  }
  open_at_server(asker, here, std::move(then));
}

void Filesystem::open_at_server(const Asker& asker, std::span<const std::shared_ptr<OpenFile>> files,
                                Done<void> then) {
  if (files.empty()) return then({});
  struct Rest {
    std::atomic<std::size_t> count;
    Done<void> then;
    std::atomic<bool> ended{false};

    void end(Result<void> result) {
      // Not kept until the last one is answered: a bar to opens may hang on it.
      if (!ended.exchange(true)) std::exchange(then, nullptr)(std::move(result));
    }
  };
  const auto rest = std::make_shared<Rest>(files.size(), std::move(then));
  if (asker.interrupt)
    asker.interrupt->on_fire([this, weak = std::weak_ptr(rest)] {
      core_.scheduler.post_after(core_.path.interrupt_grace(), [weak] {
        if (const auto stuck = weak.lock()) stuck->end(fail(ErrorCode::kCancelled, "waiting for an open"));
      });
    });
  for (const auto& file : files) {
    schema::Request request;
    request.mutable_open()->set_handle(file->inode->handle());
    request.mutable_open()->set_flags(file->flags & O_ACCMODE);
    remote_.mutate({asker.uid, asker.gid, asker.pid, nullptr}, std::move(request), schema::Reply::kOpen,
                   [file, rest](const Result<rpc::CallReply>& reply) {
                     // Two that need it may have asked at the same time.
                     std::uint64_t none = 0;
                     const std::uint64_t id = reply ? reply->message.open().open_id() : 0;
                     if (id != 0 && !file->open_id.compare_exchange_strong(none, id)) file->close(id);
                     if (--rest->count == 0) rest->end({});
                   });
  }
}

void Filesystem::send_open(const Asker& asker, const InodePointer& inode, std::uint32_t flags,
                           Done<OpenReply> done) {
  rpc::CallRequest call;
  schema::OpenRequest& open = *call.message.mutable_open();
  open.set_handle(inode->handle());
  open.set_flags(flags);
  const bool truncates = (flags & O_TRUNC) != 0;
  {
    const std::lock_guard lock(inode->mutex);
    const ByteCount start =
        std::min(inode->size(), core_.path.receives_slowly() ? kOpenReadAheadSlow : kOpenReadAhead);
    const bool reads = (flags & O_ACCMODE) != O_WRONLY && !truncates && inode->file != nullptr;
    if (reads && start > 0) {
      open.set_read_ahead(static_cast<std::uint32_t>(start));
      call.reply_body = allocate_bytes(start);
      if (inode->file->data.has({0, start}))
        open.set_known_change(inode->file->version.value());
      else
        open.set_known_change(kept_.change_of_start(*inode, start));
    }
  }
  const MutableSharedBytes body = call.reply_body;
  auto answered = [this, inode, flags, truncates, body, started = core_.scheduler.now(),
                   done = std::move(done)](Result<rpc::CallReply> reply) mutable {
    if (!reply && truncates) may_have_changed(*inode, reply.error());
    if (!reply) return done(std::unexpected(reply.error()));
    const Attributes shown_before = locked_copy(*inode);
    Result<OpenReply> result = opened(inode, reply->message.open(), flags, Told(started, reply->message, {}),
                                      body.bytes.first(reply->body_size));
    if (!result || !others_changed(shown_before, *inode)) return done(std::move(result));
    after_attributes_dropped(
        *inode, [done = std::move(done), result = std::move(result)]() mutable { done(std::move(result)); });
  };
  // Once only, for reading too: an open that was done twice would leave one that nobody closes.
  remote_.mutate_with_body(asker, std::move(call), schema::Reply::kOpen, std::move(answered));
}

// Close-to-open: whatever others wrote and closed before this open is seen from now on.
Result<OpenReply> Filesystem::opened(const InodePointer& inode, const schema::OpenReply& reply,
                                     std::uint32_t flags, const Told& told, std::span<const std::byte> body) {
  const Attributes attr = Attributes::from_schema(reply.node().attr());
  if (reply.open_id() == 0 || reply.body_bytes() != body.size() || !attr.is_regular())
    return fail(ErrorCode::kMalformed, "an OPEN reply whose parts disagree");
  const Told about = told.about(reply.node().attr());
  const TimePoint now = core_.scheduler.now();
  const bool leased = core_.trust.covered(about.learnt(now), now);
  bool keep = false;
  {
    Deferred after;
    const std::lock_guard lock(inode->mutex);
    facts_.learn_locked(*inode, attr, about);
    FileState& file = *inode->file;
    // By a push: what this tells, and the bytes that come with it, may be of before.
    const bool overtaken = file.overtaken(told.started);
    if ((flags & O_TRUNC) != 0) {
      write_behind_.truncate_locked(inode, 0, after);
      write_behind_.settle_untold_locked(*inode);
      if (inode->log.entries > 0) {  // whose answers may be of before or after it
        inode->attributes.adjust([](Attributes& known) { known.size = 0; });
        inode->log.order_guessed = true;
      }
      file.last_write = core_.scheduler.now();
      file.version.set(attr.change);
    } else if (!overtaken) {
      keep = keep_bytes_of(file, attr.change, leased);
    }
    if (overtaken && !file.version.is(attr.change)) {  // what was read since may be older than the open
      forget_bytes(file, leased);
      file.version.mix();
    } else if (!overtaken && !body.empty() && !inode->written_since(told.started)) {
      file.data.fill(0, body, attr.change);
      facts_.note_bytes_locked(*inode, about.learnt(now));
      core_.counters.fetched += body.size();
      kept_.keep(*inode, {0, body.size()});
    }
  }
  core_.cache.trim();
  return OpenReply{new_file(inode, reply.open_id(), flags), keep};
}

void Filesystem::create(Asker asker, NodeId parent, std::string name, CreationMode mode, std::uint32_t flags,
                        Done<CreateReply> done) {
  const Result<InodePointer> found = inode_of(parent);
  if (!found) return done(std::unexpected(found.error()));
  if (create_here(asker, *found, name, mode, flags, done)) return;
  if (in_log({*found, names_.last_known(**found, name)}))
    return after_log<Done<CreateReply>>(asker, std::move(done),
                                        [this, asker, parent, name, mode, flags](Done<CreateReply> then) {
                                          create(asker, parent, name, mode, flags, std::move(then));
                                        });
  schema::Request request;
  request.set_want_exclusive(wants_exclusive());
  schema::CreateRequest& create = *request.mutable_create();
  create.set_parent((*found)->handle());
  create.set_name(name);
  create.set_mode(mode.mode);
  create.set_umask(mode.umask);
  create.set_flags(flags);
  remote_.mutate(
      asker, std::move(request), schema::Reply::kOpen,
      [this, directory = *found, name, flags, started = core_.scheduler.now(),
       change = facts_.begin_change(*found), done = std::move(done)](Result<rpc::CallReply> reply) mutable {
        if (!reply) {
          names_.changed_somehow(*directory, name);
          return done(std::unexpected(reply.error()));
        }
        const schema::OpenReply& open = reply->message.open();
        const Told told(started, reply->message, reply->message.names());
        const Result<InodePointer> inode = facts_.learn(open.node(), told);
        if (!inode) return done(std::unexpected(inode.error()));
        const Result<OpenReply> handle = opened(*inode, open, flags, told, {});
        if (!handle) return done(std::unexpected(handle.error()));
        if (open.created()) {
          const std::lock_guard lock((*inode)->mutex);
          (*inode)->file->capability_absent = true;
        }
        const Learnt learnt = names_.changed(*directory, name, *inode, told);
        note_exclusive(directory, reply->message, started);
        done(CreateReply{changed_entry(*inode, learnt), *handle});
      });
}

void Filesystem::release(Handle handle, bool flocked) {
  const std::shared_ptr<OpenFile> file = files_.take(handle);
  if (flocked)
    unlock_behind_data(file, {.flock = true, .owner = handle.value(), .type = F_UNLCK, .end = INT64_MAX});
  unlock_description(file);
  {
    const std::lock_guard lock(file->inode->mutex);
    std::erase(file->inode->open_files, file.get());
    write_behind_.note_close_locked(*file);
    if (!file->held.empty()) file->inode->file->data.release(file->held);
  }
  end_unconfirmed(*file->inode);
  files_ahead_.note_close(*file);
  held_here_ -= file->held.size();
  reader_.handle_close(file);
}

}  // namespace tusk::client
