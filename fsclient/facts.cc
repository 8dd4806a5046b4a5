#include "fsclient/facts.h"

namespace tusk::client {

Result<std::shared_ptr<Inode>> Facts::learn(const schema::Node& node, const Told& told) {
  if (node.handle().empty() || (node.attr().mode() & S_IFMT) == 0)
    return fail(ErrorCode::kMalformed, "the server told of a file without a handle or a type");
  std::shared_ptr<Inode> inode = core_.inodes.intern(node.handle());
  learn(*inode, node.attr(), told);
  return inode;
}

bool Facts::learn(Inode& inode, const schema::Attr& attr, const Told& told) {
  bool changed = false;
  {
    const std::lock_guard lock(inode.mutex);
    changed = learn_locked(inode, Attributes::from_schema(attr), told.about(attr));
  }
  if (changed) drop_pages_beside_reads(inode);
  return changed;
}

void Facts::learn_own(Inode& inode, const schema::Attr& attr, const Told& told) {
  bool changed = false;
  {
    const std::lock_guard lock(inode.mutex);
    const Attributes fresh = Attributes::from_schema(attr);
    core_.clock.answered(fresh.ctime, core_.scheduler.now() - told.started);
    prepare(inode, fresh);
    if (inode.file) {
      const Attributes& old = inode.attributes.value();
      const bool gap = attr.change_before() != old.change && !inode.written_since(told.started);
      if (inode.log.entries == 0) follow_touch(*inode.file, old, fresh);
      inode.file->version.follow(attr.change_before(), fresh.change);
      inode.file->last_write = core_.scheduler.now();
      changed = gap && inode.log.entries == 0 && forget_if_other_bytes(inode, old, fresh);
    }
    if (inode.log.entries == 0)
      inode.attributes.accept(fresh, told.about(attr), core_.scheduler.now());
    else if (inode.file)
      learn_beside_log_locked(inode, attr, told, false);
  }
  if (changed) drop_kernel_pages(inode);
}

bool Facts::learn_moved(Inode& inode, const schema::Node& moved, const Told& told) {
  const std::lock_guard lock(inode.mutex);
  const schema::Attr& attr = moved.attr();
  const Attributes fresh = Attributes::from_schema(attr);
  core_.clock.answered(fresh.ctime, core_.scheduler.now() - told.started);
  const bool as_known = moved.handle() == inode.handle() && inode.log.entries == 0 &&
                        attr.change_before() != 0 && attr.change_before() == inode.attributes.value().change;
  if (!as_known || !inode.attributes.accept(fresh, told.about(attr), core_.scheduler.now())) return false;
  if (inode.file) inode.file->version.follow(attr.change_before(), fresh.change);
  core_.loans.withdraw_locked(inode);
  return true;
}

Facts::InLog Facts::begin_entry(const std::shared_ptr<Inode>& inode) {
  if (!inode) return nullptr;
  {
    const std::lock_guard lock(inode->mutex);
    ++inode->log.entries;
  }
  return {nullptr, [this, inode](std::nullptr_t) {
            const std::lock_guard lock(inode->mutex);
            if (inode->directory) inode->directory->names_changed_at = core_.scheduler.now();
            if (--inode->log.entries == 0 && inode->log.told) settle_locked(*inode);
          }};
}

void Facts::learn_logged(Inode& inode, const schema::Attr& attr, const Told& told) {
  const std::lock_guard lock(inode.mutex);
  const Attributes fresh = Attributes::from_schema(attr);
  core_.clock.answered(fresh.ctime, core_.scheduler.now() - told.started);
  core_.inodes.numbers().saw(fresh.ino);
  if (inode.file) {
    if (inode.log.made_under != 0 && inode.attributes.value().change == 0 && !inode.log.told)
      inode.file->version.set(fresh.change);  // the first that is told of it
    else
      inode.file->version.follow(attr.change_before(), fresh.change);
    inode.file->last_write = core_.scheduler.now();
  }
  learn_beside_log_locked(inode, attr, told, true);
}

// The server makes entries and calls beside them in an order that their answers need not come in; those of
// entries do. What one was made upon tells it; if another came between, the server's clock, and on a tie the
// larger size, is a guess.
void Facts::learn_beside_log_locked(Inode& inode, const schema::Attr& attr, const Told& told, bool by_log) {
  const Attributes fresh = Attributes::from_schema(attr);
  if (fresh.mode == 0) return;
  auto& newest = inode.log.told;
  const bool upon_newest = newest && attr.change_before() != 0 && fresh.change != attr.change_before() &&
                           attr.change_before() == newest->attr.change;
  if (newest && !upon_newest && !(by_log && newest->by_log)) {
    inode.log.order_guessed = true;
    const bool tie = same_time(newest->attr.ctime, fresh.ctime);
    const auto extent = [](const Attributes& of) { return std::pair(of.size, of.blocks); };
    if (tie ? extent(fresh) < extent(newest->attr) : earlier(fresh.ctime, newest->attr.ctime)) return;
  }
  newest = {fresh, told.about(attr), by_log};
}

void Facts::learn_logged_somehow(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  inode.log.told.reset();
  inode.attributes.expire(core_.scheduler.now());
  core_.loans.withdraw_locked(inode);
}

// Programs go on seeing what they were shown.
void Facts::settle_locked(Inode& inode) {
  auto [attr, told, by_log] = *std::exchange(inode.log.told, std::nullopt);
  inode.attributes.expire(taken_back_.newest(inode.handle()));
  if (assumed_locked(inode)) {
    // What was told is from before the names that were made and removed in it meanwhile.
    const Attributes& assumed = inode.attributes.value();
    attr.mtime = assumed.mtime;
    attr.ctime = assumed.ctime;
    attr.nlink = assumed.nlink;
    attr.size = std::max(attr.size, assumed.size);
    inode.log.show_no_other_times();
  } else {
    const timespec shown = inode.shown_ctime();
    inode.log.assume_no_more();
    inode.log.shown_ctime = shown;
    inode.log.shown_until_change = attr.change;
  }
  inode.attributes.settle(attr, told, core_.scheduler.now());
  if (std::exchange(inode.log.order_guessed, false)) inode.attributes.expire(core_.scheduler.now());
  core_.loans.withdraw_locked(inode);
  if (inode.file && inode.file->data.all_settled()) written_locked(inode);
}

void Facts::written_locked(Inode& inode) {
  if (inode.attributes.value().size >= inode.file->written_end())
    inode.file->written.clear();
  else
    inode.attributes.expire(core_.scheduler.now());  // it was told of earlier than the last write
}

bool Facts::assumed_locked(const Inode& inode) const {
  return inode.log.assumed_under != 0 && core_.log.stands(inode.log.assumed_under);
}

// Asked before the last of them was made, it may tell of some of them only; one that tells no change counter
// would not be known again.
bool Facts::tells_assumed_locked(const Inode& inode, const Attributes& attr, TimePoint started) const {
  const bool after_all = !inode.directory || started > inode.directory->names_changed_at;
  return !assumed_locked(inode) || (after_all && attr.change != 0);
}

bool Facts::learn_locked(Inode& inode, const Attributes& attr, const Told& told) {
  core_.clock.saw(attr.ctime);
  prepare(inode, attr);
  if (inode.log.entries > 0 || !tells_assumed_locked(inode, attr, told.started)) return false;
  const Attributes old = inode.attributes.value();
  // A push about an inode that was not known left no mark on it. From here on it remembers by itself: not
  // only this answer may be older than the push, but also later ones (a listing that a lookup has overtaken).
  if (!inode.attributes.known()) inode.attributes.expire(taken_back_.newest(inode.handle()));
  const std::optional<Attributes> shown = assumed_locked(inode) ? std::optional(inode.shown()) : std::nullopt;
  if (!inode.attributes.accept(attr, told, core_.scheduler.now())) return false;
  if (shown) {
    inode.log.shown_ctime = shown->ctime;
    inode.log.shown_mtime = shown->mtime;
    inode.log.shown_until_change = attr.change;
  }
  inode.log.assumed_under = 0;
  if (attr.change != old.change) core_.loans.withdraw_locked(inode);
  if (!inode.file || inode.written_since(told.started)) return false;
  FileState& file = *inode.file;
  file.written.clear();  // all of it is in the server's size now
  follow_touch(file, old, attr);
  return forget_if_other_bytes(inode, old, attr);
}

// If somebody uses bytes that may not be the file's any more. True: the kernel may have some of them.
bool Facts::forget_if_other_bytes(Inode& inode, const Attributes& old, const Attributes& fresh) {
  FileState& file = *inode.file;
  // Who has it open reads what is here without asking again.
  const bool used = file.data_handed_out || (!inode.open_files.empty() && !file.data.blank());
  if (old.mode == 0 || !used || file.version.is(fresh.change)) return false;
  if (same_time(old.mtime, fresh.mtime) && old.size == fresh.size) return false;
  file.forget_bytes();
  file.version.mix();
  return true;
}

// The bytes are of the new change counter, too, if they were of the old one and nothing has happened since
// but that this mount touched the file.
void Facts::follow_touch(FileState& file, const Attributes& old, const Attributes& fresh) {
  const auto touched = std::exchange(file.touched, FileState::Touched::kNot);
  const bool same_bytes = same_time(old.mtime, fresh.mtime) && old.size == fresh.size;
  if (touched == FileState::Touched::kByUs && same_bytes && file.version.is(old.change))
    file.version.set(fresh.change);
}

bool Facts::covered_locked(const Inode& inode) const {
  const Learnt learnt = inode.attributes.learnt();
  if (!core_.trust.covered(learnt, core_.scheduler.now())) return false;
  return !inode.file || inode.file->version.is(inode.attributes.value().change);
}

// ---------------------------------------------------------------- how old bytes may be

bool Facts::ours_alone_locked(const Inode& inode) const {
  return inode.log.entries > 0 || core_.log.stands(inode.log.made_under);
}

void Facts::note_bytes_locked(Inode& inode, Learnt learnt) {
  std::optional<Learnt>& known = inode.file->bytes_learnt;
  if (!known) {
    known = learnt;
  } else if (!known->ever() || !learnt.ever()) {
    known->forget();
  } else {
    const TimePoint now = core_.scheduler.now();
    if (core_.trust.covered(*known, now)) known->at = now;
    known->at = std::min(known->at, learnt.at);
    known->lease = known->lease == 0 || learnt.lease == 0 ? 0 : std::min(known->lease, learnt.lease);
  }
}

bool Facts::bytes_fresh_locked(Inode& inode) {
  const TimePoint now = core_.scheduler.now();
  FileState& file = *inode.file;
  if (file.bytes_learnt && core_.trust.may_use(Fact::kBytes, *file.bytes_learnt, now)) return true;
  const Learnt told = inode.attributes.learnt();
  if (file.version.is(inode.attributes.value().change) && core_.trust.may_use(Fact::kBytes, told, now)) {
    file.bytes_learnt = told;
    return true;
  }
  return ours_alone_locked(inode);
}

bool Facts::bytes_covered_locked(Inode& inode) {
  const TimePoint now = core_.scheduler.now();
  const std::optional<Learnt>& learnt = inode.file->bytes_learnt;
  return (learnt && core_.trust.covered(*learnt, now)) || covered_locked(inode);
}

// Without a lease somebody else may have written over what is on its way, before or after: nothing tells.
bool Facts::check_bytes_locked(Inode& inode, bool leased) {
  FileState& file = *inode.file;
  const std::uint64_t change = inode.attributes.value().change;
  const bool same = file.version.is(change);
  if (same) {
    file.bytes_learnt = inode.attributes.learnt();
  } else {
    if (!leased) file.data.disown(kWholeFile);
    file.forget_bytes();
    file.version.set(change);
  }
  return same;
}

void Facts::prepare(Inode& inode, const Attributes& attr) {
  core_.inodes.numbers().saw(attr.ino);
  if (attr.is_regular() && !inode.file) add_file(inode);
  if (attr.is_directory() && !inode.directory) inode.directory = std::make_unique<Directory>();
}

// A push that came before the file was known left its mark elsewhere.
void Facts::add_file(Inode& inode) {
  inode.file = std::make_unique<FileState>(core_.cache, inode.weak_from_this());
  inode.file->taken_back_at = inode.file->pushed_at = taken_back_.newest(inode.handle());
}

Facts::ChangeOnItsWay Facts::begin_change(const std::shared_ptr<Inode>& inode) {
  if (!inode) return nullptr;
  std::vector<std::weak_ptr<PushAnswer>> waiting;
  {
    const std::lock_guard lock(inode->mutex);
    ++inode->changes.count;
    waiting.swap(inode->changes.waiting);
  }
  for (const auto& weak : waiting)
    if (const auto answer = weak.lock()) answer->give();
  return {nullptr, [this, inode](std::nullptr_t) {
            std::vector<std::move_only_function<void()>> parked;
            {
              const std::lock_guard lock(inode->mutex);
              if (--inode->changes.count == 0) parked.swap(inode->changes.parked);
            }
            for (auto& drop : parked) core_.scheduler.post_name_notification(std::move(drop));
          }};
}

namespace {

bool being_read(Inode& directory) {
  const std::lock_guard lock(directory.mutex);
  return directory.directory && directory.directory->in_kernel.being_read();
}

}  // namespace

void Facts::drop_kernel_names(const std::shared_ptr<Inode>& directory, std::vector<std::string> names) {
  if (names.empty() && !being_read(*directory)) return;
  std::move_only_function<void()> drop = [this, directory, names = std::move(names)]() mutable {
    {
      const std::lock_guard lock(directory->mutex);
      if (directory->changes.count > 0) {
        directory->changes.parked.emplace_back([this, directory, names = std::move(names)]() mutable {
          drop_kernel_names(directory, std::move(names));
        });
        return;
      }
    }
    for (const std::string& name : names) core_.kernel.invalidate_entry(directory->id, name);
    // Who reads it shall see the change when it begins again.
    if (being_read(*directory)) drop_kernel_pages(*directory);
  };
  core_.scheduler.post_name_notification(std::move(drop));
}

void Facts::answer_when_busy(Inode& inode, const std::shared_ptr<PushAnswer>& answer) {
  {
    const std::lock_guard lock(inode.mutex);
    std::erase_if(inode.changes.waiting, [](const auto& weak) { return weak.expired(); });
    if (inode.changes.count == 0) {
      inode.changes.waiting.push_back(answer);
      return;
    }
  }
  answer->give();
}

bool Facts::pages_being_dropped(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  return inode.pages_being_dropped > 0 || (inode.file && inode.file->kernel_reads.passed_over);
}

bool Facts::bytes_are_of(Inode& inode, std::uint64_t change) {
  const std::lock_guard lock(inode.mutex);
  return inode.file && inode.file->version.is(change) && inode.file->data.all_settled() &&
         inode.file->data.fetches_of(kWholeFile).empty();
}

void Facts::drop_kernel_pages(Inode& inode) {
  {
    const std::lock_guard lock(inode.mutex);
    ++inode.pages_being_dropped;
    if (inode.file) inode.file->kernel_reads.passed_over = false;
  }
  core_.scheduler.post_notification([&kernel = core_.kernel, dropped = inode.shared_from_this()] {
    kernel.invalidate_inode(dropped->id);
    const std::lock_guard lock(dropped->mutex);
    --dropped->pages_being_dropped;
  });
}

void Facts::drop_pages_beside_reads(Inode& inode) {
  {
    const std::lock_guard lock(inode.mutex);
    ++inode.pages_being_dropped;
    FileState::KernelReads& reads = inode.file->kernel_reads;
    ++reads.drops;
    reads.passed_over = !reads.ranges.empty();
  }
  core_.scheduler.post_notification([&kernel = core_.kernel, dropped = inode.shared_from_this()] {
    constexpr ByteCount kPage = 4096;
    IntervalSet being_read;
    {
      const std::lock_guard lock(dropped->mutex);
      for (const Interval& range : dropped->file->kernel_reads.ranges)
        being_read.add(range.begin / kPage * kPage, (range.end + kPage - 1) / kPage * kPage);
    }
    ByteCount from = 0;
    for (const Interval& range : being_read.intervals()) {
      if (from < range.begin) kernel.invalidate_range(dropped->id, {from, range.begin});
      from = range.end;
    }
    if (from == 0)
      kernel.invalidate_inode(dropped->id);
    else
      kernel.invalidate_from(dropped->id, from);
    const std::lock_guard lock(dropped->mutex);
    --dropped->pages_being_dropped;
  });
}

void Facts::drop_pages_of_read_locked(Inode& inode, Interval range, Deferred& after) {
  inode.file->kernel_reads.end(range);
  ++inode.pages_being_dropped;
  after.add([this, range, dropped = inode.shared_from_this()] {
    core_.scheduler.post_notification([&kernel = core_.kernel, range, dropped] {
      kernel.invalidate_range(dropped->id, range);
      const std::lock_guard lock(dropped->mutex);
      --dropped->pages_being_dropped;
    });
  });
}

void Facts::drop_passed_over(Inode& inode) {
  {
    const std::lock_guard lock(inode.mutex);
    if (!inode.file || !inode.file->kernel_reads.passed_over) return;
  }
  drop_kernel_pages(inode);
}

decltype(Directory::names) Facts::forget(Inode& inode, bool data, bool entries, Pages pages) {
  bool drop_pages = false;
  decltype(Directory::names) names;
  {
    const std::lock_guard lock(inode.mutex);
    inode.attributes.expire(core_.scheduler.now());
    if (inode.directory) inode.log.assume_no_more();
    if (inode.file) {
      inode.file->capability_absent = false;
      inode.file->touched = FileState::Touched::kByOthers;
    }
    if (inode.file) {
      FileState& file = *inode.file;
      file.pushed_at = core_.scheduler.now();
      // Bytes that are still right must be looked at again before a use, since nobody tells of the next
      // change.
      file.bytes_learnt = Learnt{};
      if (data) {
        file.taken_back_at = core_.scheduler.now();
        file.data.disown(kWholeFile);
        file.forget_bytes();
        file.version.mix();
        file.ahead.forget();
      }
      // Who opens it asks.
      if (data || !inode.open_files.empty()) drop_pages = std::exchange(file.data_handed_out, false);
    }
    if (entries && inode.directory) {
      names.swap(inode.directory->names);
      inode.directory->names_taken_back(core_.scheduler.now());
    }
  }
  if (drop_pages && pages == Pages::kDroppedBesideReads) drop_pages_beside_reads(inode);
  if (drop_pages && pages == Pages::kDropped) drop_kernel_pages(inode);
  return names;
}

}  // namespace tusk::client
