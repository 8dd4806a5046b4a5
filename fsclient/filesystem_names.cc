// Filesystem: lookups, and operations that change which names there are.
#include <dirent.h>
#include <linux/fs.h>

#include <array>
#include <cerrno>
#include <climits>

#include "fsclient/filesystem.h"

namespace tusk::client {

void Filesystem::lookup(Asker asker, NodeId parent, std::string name, Done<EntryReply> done) {
  const Result<InodePointer> found = inode_of(parent);
  if (!found) return done(std::unexpected(found.error()));
  // Not there either, but that is not what is wrong with it.
  if (name.size() > NAME_MAX) return done(fail(from_errno(ENAMETOOLONG)));
  const InodePointer directory = *found;
  ++core_.counters.lookups;
  const NameAnswer known = names_.lookup(*directory, name);
  if (known.streamed) tree_.visit(asker, directory);
  if (known.kind == NameAnswer::Kind::kAbsent) {
    ++core_.counters.lookups_from_cache;
    return done(EntryReply{.entry_lifetime = known.remaining});
  }
  if (known.kind == NameAnswer::Kind::kExists && attributes_lifetime(*known.inode) > Duration::zero()) {
    ++core_.counters.lookups_from_cache;
    return after_pages_dropped(*known.inode, [this, known, done = std::move(done)]() mutable {
      done(entry_for(known.inode, known.remaining));
    });
  }
  if (!directory->on_server())
    return after_log<Done<EntryReply>>(
        asker, std::move(done),
        [this, asker, parent, name](Done<EntryReply> then) { lookup(asker, parent, name, std::move(then)); });
  if (names_.note_miss(asker, directory)) tree_.examine(asker, directory);
  const bool may_tell_more = core_.foresight.allowed() && !core_.path.receives_slowly();
  ask_name(asker, directory, name, may_tell_more ? names_.listing_wanted_beside(*directory, name) : 0,
           [this, done = std::move(done)](const Result<NameLearnt>& told) mutable {
             if (!told) return done(std::unexpected(told.error()));
             const auto& [inode, learnt] = *told;
             if (!inode) return done(EntryReply{.entry_lifetime = core_.loans.name(Fact::kAbsence, learnt)});
             after_pages_dropped(*inode, [this, inode, learnt, done = std::move(done)]() mutable {
               done(fresh_entry(inode, learnt));
             });
           });
}

void Filesystem::ask_name(const Asker& asker, const InodePointer& directory, const std::string& name,
                          std::uint32_t listing_bytes, Done<NameLearnt> done) {
  schema::Request request;
  request.mutable_lookup()->set_parent(directory->handle());
  request.mutable_lookup()->set_name(name);
  request.mutable_lookup()->set_tell_absence(true);
  request.mutable_lookup()->set_listing_bytes(listing_bytes);
  remote_.ask(asker, std::move(request), schema::Reply::kNode,
              [this, directory, name, started = core_.scheduler.now(),
               done = std::move(done)](Result<rpc::CallReply> reply) mutable {
                const bool absent =
                    reply ? !reply->message.node().has_node() : reply.error().code == from_errno(ENOENT);
                if (!reply && !absent) return done(std::unexpected(reply.error()));
                const Told told = reply ? Told(started, reply->message, reply->message.names()) : started;
                if (absent) return done(NameLearnt{nullptr, names_.learn_absent(*directory, name, told)});
                const Result<InodePointer> inode = facts_.learn(reply->message.node().node(), told);
                if (!inode) return done(std::unexpected(inode.error()));
                const Learnt learnt = names_.learn(*directory, name, *inode, told);
                if (const schema::NodeReply& node = reply->message.node(); node.has_listing())
                  names_.learn_beside_name(*inode, node.listing(),
                                           Told(started, reply->message, node.listing().names()));
                done(NameLearnt{*inode, learnt});
              });
}

EntryReply Filesystem::fresh_entry(const InodePointer& inode, Learnt learnt) {
  return entry_for(inode, core_.loans.name(Fact::kEntry, learnt));
}

void Filesystem::forget(NodeId node, std::uint64_t lookups) { core_.inodes.forget(node, lookups); }

void Filesystem::make_node(Asker asker, NodeId parent, std::string name, CreationMode mode,
                           std::uint64_t rdev, std::string target, Done<EntryReply> done) {
  const Result<InodePointer> found = inode_of(parent);
  if (!found) return done(std::unexpected(found.error()));
  if (make_node_here(asker, *found, name, mode, rdev, target, done)) return;
  if (in_log({*found}))
    return after_log<Done<EntryReply>>(
        asker, std::move(done), [this, asker, parent, name, mode, rdev, target](Done<EntryReply> then) {
          make_node(asker, parent, name, mode, rdev, target, std::move(then));
        });
  schema::Request request;
  request.set_want_exclusive(wants_exclusive());
  schema::MakeNodeRequest& make = *request.mutable_make_node();
  make.set_parent((*found)->handle());
  make.set_name(name);
  make.set_mode(mode.mode);
  make.set_umask(mode.umask);
  make.set_target(std::move(target));
  make.set_rdev(rdev);
  remote_.mutate(
      asker, std::move(request), schema::Reply::kNode,
      [this, directory = *found, name, started = core_.scheduler.now(), change = facts_.begin_change(*found),
       done = std::move(done)](Result<rpc::CallReply> reply) mutable {
        if (!reply) {
          names_.changed_somehow(*directory, name);
          return done(std::unexpected(reply.error()));
        }
        const Told told(started, reply->message, reply->message.names());
        const Result<InodePointer> inode = facts_.learn(reply->message.node().node(), told);
        if (!inode) return done(std::unexpected(inode.error()));
        const Learnt learnt = names_.changed(*directory, name, *inode, told);
        note_exclusive(directory, reply->message, started);
        if (reply->message.node().made_names() == schema::COVER_EXCLUSIVE)
          note_new_directory(**inode, reply->message.exclusive(), reply->message.lease());
        done(changed_entry(*inode, learnt));
      });
}

void Filesystem::remove(Asker asker, NodeId parent, std::string name, bool is_directory, Done<void> done) {
  const Result<InodePointer> found = inode_of(parent);
  if (!found) return done(std::unexpected(found.error()));
  if (remove_here(asker, *found, name, is_directory, done)) return;
  if (in_log({*found, names_.last_known(**found, name)}))
    return after_log<Done<void>>(asker, std::move(done),
                                 [this, asker, parent, name, is_directory](Done<void> then) {
                                   remove(asker, parent, name, is_directory, std::move(then));
                                 });
  acquire_around(asker, *found);
  open_first(asker, names_.last_known(**found, name),
             [this, asker, directory = *found, name, is_directory,
              done = std::move(done)](Result<NoOpens> no_opens) mutable {
               if (!no_opens) return done(std::unexpected(no_opens.error()));
               send_remove(asker, directory, name, is_directory, std::move(*no_opens), std::move(done));
             });
}

void Filesystem::send_remove(const Asker& asker, const InodePointer& directory, const std::string& name,
                             bool is_directory, NoOpens no_opens, Done<void> done) {
  schema::Request request;
  request.set_want_exclusive(wants_exclusive());
  schema::RemoveRequest& remove = *request.mutable_remove();
  remove.set_parent(directory->handle());
  remove.set_name(name);
  remove.set_directory(is_directory);
  if (const InodePointer removed = names_.last_known(*directory, name)) request.set_node(removed->handle());
  remote_.mutate(
      asker, std::move(request), schema::Reply::kRemove,
      [this, directory, name, started = core_.scheduler.now(), change = facts_.begin_change(directory),
       emptied = facts_.begin_change(names_.last_known(*directory, name)), no_opens = std::move(no_opens),
       done = std::move(done)](Result<rpc::CallReply> reply) mutable {
        if (!reply) {
          names_.changed_somehow(*directory, name);
          return done(std::unexpected(reply.error()));
        }
        const InodePointer removed = names_.last_known(*directory, name);
        names_.changed(*directory, name, nullptr, Told(started, reply->message, reply->message.names()));
        note_exclusive(directory, reply->message, started);
        const schema::RemoveReply& told = reply->message.remove();
        note_removed(removed, Told(started, reply->message, {}), told.has_attr() ? &told.attr() : nullptr);
        done({});
      });
}

// What is left of a file whose name is gone. An answer without attributes: nobody has it any more but
// those who have it open here.
void Filesystem::note_removed(const InodePointer& inode, const Told& told, const schema::Attr* attr) {
  if (!inode) return;
  if (attr != nullptr) return facts_.learn_own(*inode, *attr, told);
  touched(inode);
  const std::lock_guard lock(inode->mutex);
  inode->attributes.adjust([](Attributes& known) { known.nlink = 0; });
}

// Without attributes the server does not know it any more, and a directory has no other name.
void Filesystem::note_replaced(const InodePointer& inode, const Told& told,
                               const schema::RenameReply& reply) {
  if (!inode) return;
  bool is_it = false;
  bool is_directory = false;
  {
    const std::lock_guard lock(inode->mutex);
    is_it = reply.replaced().ino() == inode->attributes.value().ino;
    is_directory = inode->attributes.value().is_directory();
  }
  if (reply.has_replaced() && is_it) return note_removed(inode, told, &reply.replaced());
  if (is_directory && !reply.has_replaced()) return note_removed(inode, told, nullptr);
  touched(inode);
}

void Filesystem::note_moved(const InodePointer& inode, const Told& told, const schema::RenameReply& reply) {
  if (!inode || (reply.has_moved() && facts_.learn_moved(*inode, reply.moved(), told))) return;
  touched(inode);
  // Somebody else may have changed it before.
  const std::lock_guard lock(inode->mutex);
  if (inode->file && reply.has_moved()) inode->file->touched = FileState::Touched::kByOthers;
}

void Filesystem::rename(Asker asker, NodeId old_parent, std::string old_name, NodeId new_parent,
                        std::string new_name, std::uint32_t flags, Done<void> done) {
  const Result<InodePointer> from = inode_of(old_parent);
  const Result<InodePointer> to = inode_of(new_parent);
  if (!from || !to) return done(std::unexpected(from ? to.error() : from.error()));
  // What is moved to where it is to stay has to be whole.
  if (Result<void> whole = write_behind_.take_untold_error(names_.last_known(**from, old_name)); !whole)
    return done(std::move(whole));
  if (rename_here(asker, *from, old_name, *to, new_name, flags, done)) return;
  if (in_log({*from, *to, names_.last_known(**from, old_name), names_.last_known(**to, new_name)}))
    return after_log<Done<void>>(
        asker, std::move(done),
        [this, asker, old_parent, old_name, new_parent, new_name, flags](Done<void> then) {
          rename(asker, old_parent, old_name, new_parent, new_name, flags, std::move(then));
        });
  open_first(asker, names_.last_known(**to, new_name),
             [this, asker, from = *from, to = *to, old_name, new_name, flags,
              done = std::move(done)](Result<NoOpens> no_opens) mutable {
               if (!no_opens) return done(std::unexpected(no_opens.error()));
               send_rename(asker, from, old_name, to, new_name, flags, std::move(*no_opens), std::move(done));
             });
}

void Filesystem::send_rename(const Asker& asker, const InodePointer& from, const std::string& old_name,
                             const InodePointer& to, const std::string& new_name, std::uint32_t flags,
                             NoOpens no_opens, Done<void> done) {
  no_more_ours_alone(names_.last_known(*from, old_name));
  no_more_ours_alone(names_.last_known(*to, new_name));
  schema::Request request;
  request.set_want_exclusive(wants_exclusive());
  schema::RenameRequest& rename = *request.mutable_rename();
  rename.set_old_parent(from->handle());
  rename.set_old_name(old_name);
  rename.set_new_parent(to->handle());
  rename.set_new_name(new_name);
  rename.set_flags(flags);
  // For a redo: what was moved, and what it took the place of.
  if (const InodePointer moved = names_.last_known(*from, old_name)) rename.set_expected(moved->handle());
  if (const InodePointer replaced = names_.last_known(*to, new_name)) rename.set_replaced(replaced->handle());
  remote_.mutate(
      asker, std::move(request), schema::Reply::kRename,
      [this, from, to, old_name, new_name, flags, started = core_.scheduler.now(),
       change = std::array{facts_.begin_change(from), from == to ? nullptr : facts_.begin_change(to),
                           facts_.begin_change(names_.last_known(*from, old_name)),
                           facts_.begin_change(names_.last_known(*to, new_name))},
       no_opens = std::move(no_opens), done = std::move(done)](Result<rpc::CallReply> reply) mutable {
        const InodePointer moved = names_.last_known(*from, old_name);
        const InodePointer replaced = names_.last_known(*to, new_name);
        const bool exchange = (flags & RENAME_EXCHANGE) != 0;
        if (reply)
          note_moved(moved, Told(started, reply->message, {}), reply->message.rename());
        else
          touched(moved);
        if (reply && !exchange)
          note_replaced(replaced, Told(started, reply->message, {}), reply->message.rename());
        else
          touched(replaced);
        const bool another = reply && moved && reply->message.rename().has_moved() &&
                             reply->message.rename().moved().handle() != moved->handle();
        const bool leaves_another = (flags & RENAME_WHITEOUT) != 0;
        if (!reply || !moved || another || leaves_another || (exchange && !replaced)) {
          names_.changed_somehow(*from, old_name);
          names_.changed_somehow(*to, new_name);
        } else {
          const Told told(started, reply->message, reply->message.names());
          const InodePointer left = exchange ? replaced : nullptr;
          if (from == to) {
            names_.changed(*from, {{old_name, left}, {new_name, moved}}, told);
            note_exclusive(from, reply->message, started);
          } else {
            names_.changed(*from, old_name, left, told);
            names_.changed(*to, new_name, moved, told);
          }
        }
        if (!reply) return done(std::unexpected(reply.error()));
        done({});
      });
}

void Filesystem::link(Asker asker, NodeId node, NodeId new_parent, std::string new_name,
                      Done<EntryReply> done) {
  const Result<InodePointer> inode = inode_of(node);
  const Result<InodePointer> to = inode_of(new_parent);
  if (!inode || !to) return done(std::unexpected(inode ? to.error() : inode.error()));
  if (in_log({*inode, *to}))
    return after_log<Done<EntryReply>>(asker, std::move(done),
                                       [this, asker, node, new_parent, new_name](Done<EntryReply> then) {
                                         link(asker, node, new_parent, new_name, std::move(then));
                                       });
  no_more_ours_alone(*inode);
  schema::Request request;
  schema::LinkRequest& link = *request.mutable_link();
  link.set_handle((*inode)->handle());
  link.set_new_parent((*to)->handle());
  link.set_new_name(new_name);
  remote_.mutate(
      asker, std::move(request), schema::Reply::kNode,
      [this, inode = *inode, to = *to, new_name, started = core_.scheduler.now(),
       change = facts_.begin_change(*to), done = std::move(done)](Result<rpc::CallReply> reply) mutable {
        if (!reply) {
          names_.changed_somehow(*to, new_name);
          return done(std::unexpected(reply.error()));
        }
        const Told told(started, reply->message, reply->message.names());
        facts_.learn_own(*inode, reply->message.node().node().attr(), told);
        done(changed_entry(inode, names_.changed(*to, new_name, inode, told)));
      });
}

void Filesystem::read_link(Asker asker, NodeId node, Done<std::string> done) {
  const Result<InodePointer> found = inode_of(node);
  if (!found) return done(std::unexpected(found.error()));
  std::optional<std::string> known;
  {
    const std::lock_guard lock((*found)->mutex);
    known = (*found)->link_target;  // a symlink's target never changes
  }
  if (known) return done(std::move(*known));
  schema::Request request;
  request.mutable_readlink()->set_handle((*found)->handle());
  remote_.ask(asker, std::move(request), schema::Reply::kReadlink,
              [inode = *found, done = std::move(done)](Result<rpc::CallReply> reply) mutable {
                if (!reply) return done(std::unexpected(reply.error()));
                std::string target = reply->message.readlink().target();
                {
                  const std::lock_guard lock(inode->mutex);
                  inode->link_target = target;
                }
                done(std::move(target));
              });
}

// ---------------------------------------------------------------- directories

// One readdir in progress.
struct Filesystem::DirectoryRead {
  DirectoryRead(std::shared_ptr<OpenDirectory> from, std::shared_ptr<Listing> names, std::uint64_t first,
                bool attributes, DirectorySink out, Done<void> then)
      : directory(std::move(from)),
        listing(std::move(names)),
        offset(first),
        with_attributes(attributes),
        sink(std::move(out)),
        done(std::move(then)) {}

  const std::shared_ptr<OpenDirectory> directory;
  const std::shared_ptr<Listing> listing;
  std::uint64_t offset;
  const bool with_attributes;
  DirectorySink sink;
  Done<void> done;
  std::atomic<bool> ended{false};

  void end(Result<void> result) {
    if (!ended.exchange(true)) done(std::move(result));
  }
};

namespace {

// Offsets 1 and 2 come after "." and "..", 3 + i after entry i.
constexpr std::uint64_t kDotOffsets = 2;
// Entries taken from the listing at a time; the kernel asks with a page or more, about 24 entries each.
constexpr std::size_t kEntriesAtATime = 64;

Attributes shown_of(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  return inode.shown();
}

}  // namespace

Result<OpenDirectoryReply> Filesystem::open_directory(const Asker& asker, NodeId node) {
  using Use = KernelListing::Use;
  const Result<InodePointer> found = inode_of(node);
  if (!found) return std::unexpected(found.error());
  Use use = Use::kAside;
  std::shared_ptr<Listing> listing;
  std::uint64_t errors_told = 0;
  {
    const std::lock_guard lock((*found)->mutex);
    Directory* const directory = (*found)->directory.get();
    if (directory == nullptr) return fail(from_errno(ENOTDIR), "opendir");
    listing = names_.leased(**found);
    errors_told = directory->errors;
    if (trust_->lease() > Duration::zero()) use = directory->in_kernel.open(listing, core_.scheduler.now());
  }
  auto opened = std::make_shared<OpenDirectory>(*found, use);
  opened->errors_told = errors_told;
  if (use == Use::kKept) tree_.visit(asker, *found);  // it may be all that is heard of this reader ...
  if (use != Use::kAside) opened->listing = std::move(listing);  // ... or it goes on here in the middle
  return OpenDirectoryReply{directories_.insert(std::move(opened)), use};
}

void Filesystem::close_directory(Handle handle) {
  const std::shared_ptr<OpenDirectory> directory = directories_.take(handle);
  const std::lock_guard lock(directory->inode->mutex);
  if (directory->in_kernel()) directory->inode->directory->in_kernel.close();
}

void Filesystem::read_directory(Asker asker, Handle handle, std::uint64_t offset, bool with_attributes,
                                DirectorySink sink, Done<void> done) {
  ++core_.counters.operations;
  const std::shared_ptr<OpenDirectory> directory = directories_.find(handle);
  std::shared_ptr<Listing> listing;
  {
    const std::lock_guard lock(directory->inode->mutex);
    listing = directory->listing;
  }
  if (offset == 0 || !listing) {
    tree_.visit(asker, directory->inode);
    listing = names_.begin(asker, directory->inode);
    const std::lock_guard lock(directory->inode->mutex);
    directory->listing = listing;
    if (directory->in_kernel()) directory->inode->directory->in_kernel.tell(listing);
  }
  auto read = std::make_shared<DirectoryRead>(directory, std::move(listing), offset, with_attributes,
                                              std::move(sink), std::move(done));
  if (asker.interrupt) {
    asker.interrupt->on_fire([this, weak = std::weak_ptr(read)] {
      core_.scheduler.post_after(core_.path.interrupt_grace(), [weak] {
        if (const auto stuck = weak.lock()) stuck->end(fail(ErrorCode::kCancelled, "readdir"));
      });
    });
  }
  continue_directory(read);
}

void Filesystem::continue_directory(const std::shared_ptr<DirectoryRead>& read) {
  const std::uint64_t ino = shown_of(*read->directory->inode).ino;
  bool added = false;
  for (const std::string_view dots : {".", ".."}) {
    if (read->offset >= dots.size()) continue;
    if (!read->sink({dots, ino, DT_DIR, std::nullopt, dots.size()})) return read->end({});
    read->offset = dots.size();
    added = true;
  }
  for (;;) {
    std::vector<ListedEntry> entries;
    std::move_only_function<void()> wake = [this, read] {
      core_.scheduler.post([this, read] { continue_directory(read); });
    };
    // What was added already is worth a reply; more will be asked for.
    if (added) wake = [] {};
    const Result<bool> ready = names_.read(*read->directory->inode, *read->listing,
                                           read->offset - kDotOffsets, kEntriesAtATime, entries, wake);
    if (added && (!ready || !*ready || entries.empty())) return read->end({});
    if (!ready) return read->end(std::unexpected(ready.error()));
    if (!*ready) return;
    if (entries.empty()) return end_directory(read);
    for (const ListedEntry& entry : entries) {
      DirectoryEntryOut out{entry.name, entry.ino, entry.type, std::nullopt, read->offset + 1};
      core_.inodes.numbers().saw(entry.ino);
      if (entry.inode) {
        // A file that this mount has made may go by another number than the server's.
        const Attributes shown = shown_of(*entry.inode);
        out.ino = shown.ino;
        out.type = IFTODT(shown.mode);
      }
      if (read->with_attributes && entry.inode && !facts_.pages_being_dropped(*entry.inode)) {
        const TimePoint now = core_.scheduler.now();
        const bool known = attributes_lifetime(*entry.inode) > Duration::zero() &&
                           core_.trust.may_use(Fact::kEntry, entry.learnt, now);
        const Duration rest =
            read->directory->use == KernelListing::Use::kAnew ? Loans::kRestOfKept : Loans::kRest;
        const bool lent =
            core_.trust.covered(entry.learnt, now) && core_.loans.kernel_has(*entry.inode, rest);
        if (known && !lent) out.attributes = fresh_entry(entry.inode, entry.learnt);
        if (read->directory->in_kernel()) renew_with(*read->directory->inode, *entry.inode);
      }
      if (!read->sink(out)) {
        if (out.attributes) core_.inodes.forget(entry.inode->id, 1);  // it was not told after all
        return read->end({});
      }
      ++read->offset;
      added = true;
    }
  }
}

// What the kernel has been told it would tell again to who begins again (rewinddir), without asking. Unless
// that would be called back, it must not have it when the reader gets to know that this was all.
void Filesystem::end_directory(const std::shared_ptr<DirectoryRead>& read) {
  Inode& directory = *read->directory->inode;
  if (read->directory->in_kernel()) {
    const bool kept = [&] {
      const std::lock_guard lock(directory.mutex);
      return names_.leased(directory) == read->listing;
    }();
    if (!kept) facts_.drop_kernel_pages(directory);
  }
  after_pages_dropped(directory, [read] { read->end({}); });
}

// The kernel will have to ask for what it is told of `entry` now: better by listing all.
void Filesystem::renew_with(Inode& directory, Inode& entry) {
  TimePoint lent_until{};
  {
    const std::lock_guard lock(entry.mutex);
    lent_until = entry.lent_until;
  }
  const std::lock_guard lock(directory.mutex);
  directory.directory->in_kernel.renew_at(std::max(lent_until, TimePoint{Loans::kRest}) - Loans::kRest);
}

// The COMMIT goes behind the whole log: attributes of files in the directory are in it, too.
void Filesystem::sync_directory(Asker asker, Handle handle, Done<void> done) {
  const std::shared_ptr<OpenDirectory> directory = directories_.find(handle);
  if (core_.log.entries() == 0) return commit_directory(asker, directory, std::move(done));
  after_whole_log<Done<void>>(core_, asker, std::move(done), [this, asker, directory](Done<void> then) {
    commit_directory(asker, directory, std::move(then));
  });
}

void Filesystem::commit_directory(const Asker& asker, const std::shared_ptr<OpenDirectory>& directory,
                                  Done<void> done) {
  if (Result<void> lost = take_error(*directory); !lost) return done(std::move(lost));
  schema::Request request;
  request.mutable_commit()->set_handle(directory->inode->handle());
  request.mutable_commit()->set_directory(true);
  // Once only: the server's disk tells an error one time, and a repeat would find nothing wrong.
  remote_.mutate(asker, std::move(request), schema::Reply::kCommit,
                 [this, directory, done = std::move(done)](Result<rpc::CallReply> reply) mutable {
                   // Of a directory that was removed nothing is left to be made safe.
                   const bool gone = !reply && reply.error().code == from_errno(ESTALE);
                   if (!reply && !gone) return done(std::unexpected(reply.error()));
                   done(take_error(*directory));  // what came to nothing meanwhile, in a redo
                 });
}

Result<void> Filesystem::take_error(OpenDirectory& directory) {
  const std::lock_guard lock(directory.inode->mutex);
  if (Result<void> made = made_locked(*directory.inode); !made) return made;
  Directory& names = *directory.inode->directory;
  if (directory.errors_told == names.errors && !names.failures.any_counts(core_.untold)) return {};
  directory.errors_told = names.errors;
  names.failures.tell(core_.untold);
  return std::unexpected(names.last_error);
}

}  // namespace tusk::client
