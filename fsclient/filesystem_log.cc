// Filesystem: changes that this mount answers by itself, because nobody else is told of the directory
// meanwhile (docs/PROTOCOL.md, "The log"). Each becomes an entry of the operation log; what is known here is
// as if the server had made it already.
//
// Every method whose name ends with _here returns false, and has done nothing, where the server must be
// asked.
#include <fcntl.h>
#include <limits.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "fsclient/filesystem.h"
#include "proto/rpc/log_alias.h"

namespace tusk::client {
namespace {

constexpr std::size_t kNameMax = 255;
// As ext4 shows them.
constexpr ByteCount kEmptyDirectory = 4096;
constexpr ByteCount kLinkInInode = 59;  // a longer target takes a block
constexpr std::uint64_t kBlock = 4096 / 512;
// Of a directory in a file system that does not count its links (btrfs).
constexpr std::uint32_t kLinksNotCounted = 1;

const timespec& later(const timespec& one, const timespec& other) {
  return earlier(one, other) ? other : one;
}

bool open_without_server(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  return std::ranges::any_of(inode.open_files, [](const OpenFile* open) { return open->open_id == 0; });
}

std::string text_of_failure(const std::string& name, const Error& error) {
  return "'" + name + "': what was answered before could not be done: " + error.message();
}

}  // namespace

// ---------------------------------------------------------------- what it rests on

std::optional<Filesystem::Standing> Filesystem::standing_in(Inode& directory) {
  const TimePoint now = core_.scheduler.now();
  const std::lock_guard lock(directory.mutex);
  if (!directory.directory || !core_.log.stands(directory.directory->exclusive) || !trust_->waited_for(now) ||
      core_.path.silent() || !core_.log.has_room() ||
      attributes_lifetime_locked(directory) == Duration::zero())
    return std::nullopt;
  exclusive_use_.note();
  Standing standing{.exclusive = directory.directory->exclusive,
                    .told = now,
                    .directory = directory.attributes.value(),
                    .at = core_.clock.after({}),
                    .naming = core_.log.naming()};
  standing.told.lease = directory.directory->exclusive_lease;
  standing.told.cover = schema::COVER_LEASE;
  return standing;
}

void Filesystem::note_exclusive(const InodePointer& directory, const schema::Reply& reply, TimePoint asked) {
  if (reply.names() == schema::COVER_EXCLUSIVE)
    note_exclusive(*directory, reply, reply.has_directory() ? &reply.directory() : nullptr, asked);
}

void Filesystem::note_exclusive(Inode& directory, const schema::Reply& reply, const schema::Attr* attr,
                                TimePoint asked) {
  core_.log.grant(reply.exclusive());
  exclusive_use_.note();
  const std::lock_guard lock(directory.mutex);
  if (!directory.directory || asked <= directory.directory->default_acl_set_at) return;
  directory.directory->exclusive = reply.exclusive();
  directory.directory->exclusive_lease = reply.lease();
  if (attr == nullptr || directory.log.entries > 0) return;
  core_.clock.saw(Attributes::from_schema(*attr).ctime);
  directory.attributes.assume(Attributes::from_schema(*attr), {core_.scheduler.now(), reply.lease()});
}

// From here on the server is asked for what is made in it.
void Filesystem::give_up_names(Inode& directory) {
  const std::lock_guard lock(directory.mutex);
  if (!directory.directory) return;
  directory.directory->exclusive = 0;
  directory.directory->default_acl_set_at = core_.scheduler.now();
}

// A directory that has just been made and that nobody else knows: it is empty.
void Filesystem::note_new_directory(Inode& directory, std::uint64_t exclusive, std::uint64_t lease) {
  const std::lock_guard lock(directory.mutex);
  if (!directory.directory) directory.directory = std::make_unique<Directory>();
  directory.directory->exclusive = exclusive;
  directory.directory->exclusive_lease = lease;
  directory.directory->names_complete = {core_.scheduler.now(), lease};
}

bool Filesystem::wants_exclusive() const {
  return options_.log && trust_->lease() > Duration::zero() && !options_.read_only;
}

// Who removes in one directory after the other comes to those beside them next: their exclusiveness is had
// before, all in one call.
void Filesystem::acquire_around(const Asker& asker, const InodePointer& directory) {
  constexpr std::size_t kAcquiredMax = 4096;
  const TimePoint now = core_.scheduler.now();
  const TimePoint removed_before = removed_at_.exchange(now);
  TimePoint before = acquired_at_.load();
  if (!wants_exclusive() || removed_before == TimePoint::min() || now > removed_before + kRemovingGoesOn ||
      (before != TimePoint::min() && now < before + kAcquirePause) ||
      !acquired_at_.compare_exchange_strong(before, now))
    return;
  std::vector<InodePointer> found;
  {
    const std::lock_guard lock(directory->mutex);
    InodePointer parent = directory->parent.lock();
    found.push_back(parent ? parent : directory);
  }
  std::vector<InodePointer> wanted;
  for (std::size_t next = 0; next < found.size() && wanted.size() < kAcquiredMax; ++next) {
    const std::lock_guard lock(found[next]->mutex);
    if (!found[next]->directory) continue;
    for (const auto& [name, known] : found[next]->directory->names)
      if (known.inode && found.size() < kAcquiredMax) found.push_back(known.inode);
    if (!found[next]->on_server() || core_.log.stands(found[next]->directory->exclusive)) continue;
    wanted.push_back(found[next]);
  }
  acquire(asker, std::move(wanted), [] {});
}

// A mount that is alone makes its first file without asking, too. Whoever comes next takes that back.
void Filesystem::acquire_root(std::move_only_function<void()> answered) {
  if (wants_exclusive()) acquire({}, {core_.inodes.root()}, std::move(answered));
}

void Filesystem::acquire(const Asker& asker, std::vector<InodePointer> directories,
                         std::move_only_function<void()> answered) {
  if (directories.empty()) return;
  schema::Request request;
  for (const InodePointer& directory : directories)
    request.mutable_acquire()->add_handles(directory->handle());
  remote_.ask({asker.uid, asker.gid, asker.pid, nullptr}, std::move(request), schema::Reply::kAcquire,
              [this, asked = std::move(directories), started = core_.scheduler.now(),
               answered = std::move(answered)](const Result<rpc::CallReply>& reply) mutable {
                if (reply) note_acquired(asked, reply->message, started);
                answered();
              });
}

void Filesystem::note_acquired(const std::vector<InodePointer>& asked, const schema::Reply& reply,
                               TimePoint started) {
  const schema::AcquireReply& acquired = reply.acquire();
  const auto count = std::min<std::size_t>(
      asked.size(), static_cast<std::size_t>(std::min(acquired.names_size(), acquired.directories_size())));
  for (std::size_t i = 0; i < count; ++i)
    if (acquired.names(static_cast<int>(i)) == schema::COVER_EXCLUSIVE)
      note_exclusive(*asked[i], reply, &acquired.directories(static_cast<int>(i)), started);
}

// ---------------------------------------------------------------- what is made

std::uint32_t Filesystem::mode_at_server(std::uint32_t mode) const {
  constexpr std::uint32_t kPrivileges = S_ISUID | S_ISGID;
  return special_bits_stripped_ && !S_ISDIR(mode) ? mode & ~kPrivileges : mode;
}

Filesystem::InodePointer Filesystem::new_inode(const Asker& asker, const Standing& standing,
                                               std::uint32_t mode, std::uint64_t rdev) {
  const InodePointer inode = core_.inodes.make();
  const std::uint64_t number = core_.log.next_name();
  const bool inherits = (standing.directory.mode & S_ISGID) != 0;
  mode = mode_at_server(mode);
  Attributes attr;
  attr.ino = OwnNumbers::wide(number);
  attr.mode = mode | (S_ISDIR(mode) && inherits ? S_ISGID : 0);
  attr.nlink = S_ISDIR(mode) && standing.directory.nlink != kLinksNotCounted ? 2 : 1;
  attr.size = S_ISDIR(mode) ? kEmptyDirectory : 0;
  attr.blocks = S_ISDIR(mode) ? kBlock : 0;
  attr.uid = options_.identity.is_real() ? asker.uid : owner_uid_;
  attr.gid = inherits ? standing.directory.gid : options_.identity.is_real() ? asker.gid : owner_gid_;
  attr.rdev = rdev;
  attr.atime = attr.mtime = attr.ctime = standing.at;
  attr.no_xattrs = true;
  const std::lock_guard lock(inode->mutex);
  inode->log.number = number;
  inode->log.alias = rpc::handle_of_alias(number);
  inode->log.made_under = standing.exclusive;
  inode->log.shown_ino = core_.inodes.numbers().take(number);
  inode->attributes.assume(attr, standing.learnt());
  if (S_ISREG(mode)) {
    inode->file = std::make_unique<FileState>(core_.cache, inode);
    inode->file->capability_absent = true;
  }
  return inode;
}

bool Filesystem::append_making(const Asker& asker, const Standing& standing, const InodePointer& directory,
                               const std::string& name, const InodePointer& inode, schema::Request entry) {
  // From before the first change here on: an answer to an earlier entry must not undo it.
  const auto in_log = std::pair(facts_.begin_entry(directory), facts_.begin_entry(inode));
  entry.set_alias(inode->log.number);
  entry.set_made_at_ns(to_unix_ns(standing.at));
  names_.changed(*directory, name, inode, standing.told);
  assume_changed(*directory, standing, S_ISDIR(attributes_of(*inode).mode) ? 1 : 0);
  auto answered = [this, directory, name, inode, told = standing.told,
                   in_log](const Result<schema::Reply>& reply) {
    end_unconfirmed(*inode);
    const schema::Node* node = nullptr;
    if (reply) node = reply->has_open() ? &reply->open().node() : &reply->node().node();
    if (reply && node->handle().empty())
      return not_made(directory, name, inode,
                      {ErrorCode::kMalformed, "a file that was made without a handle"});
    if (!reply) return not_made(directory, name, inode, reply.error());
    inode->arrive(node->handle());
    core_.inodes.adopt(inode);
    facts_.learn_logged(*inode, node->attr(), Told(told.started, *reply, {}));
    if (S_ISDIR(node->attr().mode()) && reply->node().made_names() == schema::COVER_LIFETIME)
      lose_names(inode);
    write_behind_.handle_arrival(inode);
  };
  if (core_.log.append(standing.naming, standing.exclusive, asker, std::move(entry), {}, std::move(answered)))
    return true;
  names_.changed_somehow(*directory, name);
  return false;
}

// Of a directory that this mount has made: the server does not tell it of changes by others.
void Filesystem::lose_names(const InodePointer& directory) {
  std::vector<std::string> names;
  for (const auto& [name, known] : facts_.forget(*directory, false, true)) names.push_back(name);
  facts_.drop_kernel_names(directory, std::move(names));
}

void Filesystem::not_made(const InodePointer& directory, const std::string& name, const InodePointer& inode,
                          const Error& error) {
  if (error.code == from_errno(EMFILE) || error.code == from_errno(ENFILE))
    open_refused_at_ = core_.scheduler.now();
  {
    const std::lock_guard lock(inode->mutex);
    inode->log.failed = error;
  }
  write_behind_.give_up(inode, error);
  UntoldFailures::Id failure = 0;
  {
    const std::lock_guard lock(inode->mutex);
    // Of a file the writers are told, or whoever renames it.
    failure = inode->file ? inode->file->failure : core_.untold.add(text_of_failure(name, error));
    inode->log.failure = failure;
  }
  not_done(directory, name, error, failure);
}

// Programs have been told that it was done. Whoever has it open is told at its close, who syncs the directory
// then; everybody by `tusk status`.
void Filesystem::not_done(const InodePointer& directory, const std::string& name, const Error& error,
                          UntoldFailures::Id failure) {
  names_.changed_somehow(*directory, name);
  facts_.drop_kernel_names(directory, {name});
  core_.last_error.set(text_of_failure(name, error));
  const std::lock_guard lock(directory->mutex);
  if (directory->directory) directory->directory->note_failure(error, failure, core_.untold);
}

bool Filesystem::never_made(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  return inode.log.failed.has_value();
}

// ESTALE says that the server does not know the file by what the entry called it. Whether the name is free
// the server is asked.
void Filesystem::ask_whether_gone(const InodePointer& directory, const std::string& name,
                                  const Error& error) {
  if (never_made(*directory)) return;
  schema::Request request;
  request.mutable_lookup()->set_parent(directory->handle());
  request.mutable_lookup()->set_name(name);
  request.mutable_lookup()->set_tell_absence(true);
  remote_.ask({}, std::move(request), schema::Reply::kNode,
              [this, directory, name, error](const Result<rpc::CallReply>& reply) {
                const bool gone =
                    reply ? !reply->message.node().has_node() : reply.error().code == from_errno(ENOENT);
                if (!gone) not_done(directory, name, error, core_.untold.add(text_of_failure(name, error)));
              });
}

void Filesystem::assume_changed(Inode& directory, const Standing& standing, int links) {
  const std::lock_guard lock(directory.mutex);
  Attributes attr = directory.attributes.value();
  attr.mtime = standing.at;
  attr.ctime = later(standing.at, core_.clock.past(directory.shown_ctime()));
  if (attr.nlink != kLinksNotCounted)
    attr.nlink = static_cast<std::uint32_t>(static_cast<int>(attr.nlink) + links);
  directory.attributes.assume(attr, standing.learnt());
  directory.log.assumed_under = standing.exclusive;
  directory.log.show_no_other_times();
  core_.loans.withdraw_locked(directory);
}

// A program that opens more files than the server lets it have is told by open(2), but for so many.
bool Filesystem::may_open_unconfirmed() const {
  const TimePoint refused_at = open_refused_at_.load();
  const bool refused =
      refused_at != TimePoint::min() && core_.scheduler.now() - refused_at < WriteBehind::kWarned;
  return !refused && opens_unconfirmed_ < kOpensUnconfirmedMax;
}

void Filesystem::end_unconfirmed(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  if (std::exchange(inode.log.open_unconfirmed, false)) --opens_unconfirmed_;
}

bool Filesystem::create_here(const Asker& asker, const InodePointer& directory, const std::string& name,
                             CreationMode mode, std::uint32_t flags, Done<CreateReply>& done) {
  const auto standing = standing_in(*directory);
  if (!standing || name.size() > kNameMax || (flags & (O_SYNC | O_DSYNC | O_DIRECT)) != 0) return false;
  if (!may_open_unconfirmed()) return false;
  if (names_.lookup(*directory, name).kind != NameAnswer::Kind::kAbsent) return false;
  const InodePointer inode = new_inode(asker, *standing, S_IFREG | (mode.mode & 07777), 0);
  const std::uint64_t open_id = core_.log.next_open_id();
  schema::Request entry;
  schema::CreateRequest& create = *entry.mutable_create();
  create.set_parent(directory->name_in_log());
  create.set_name(name);
  create.set_mode(mode.mode);
  create.set_umask(mode.umask);
  // What somebody has made there meanwhile is not ours to empty.
  create.set_flags((flags | O_EXCL) & ~static_cast<std::uint32_t>(O_TRUNC));
  create.set_open_id(open_id);
  {
    const std::lock_guard lock(inode->mutex);
    inode->log.open_unconfirmed = true;
    ++opens_unconfirmed_;
  }
  if (!append_making(asker, *standing, directory, name, inode, std::move(entry))) {
    end_unconfirmed(*inode);
    return false;
  }
  const Handle handle = new_file(inode, open_id, flags);
  done(CreateReply{changed_entry(inode, standing->learnt()), {handle, false}});
  return true;
}

bool Filesystem::make_node_here(const Asker& asker, const InodePointer& directory, const std::string& name,
                                CreationMode mode, std::uint64_t rdev, const std::string& target,
                                Done<EntryReply>& done) {
  const auto standing = standing_in(*directory);
  if (!standing || name.size() > kNameMax || target.size() >= PATH_MAX) return false;
  // Whether the server may make a device is for it to say.
  if (S_ISCHR(mode.mode) || S_ISBLK(mode.mode)) return false;
  if (names_.lookup(*directory, name).kind != NameAnswer::Kind::kAbsent) return false;
  const bool is_link = S_ISLNK(mode.mode);
  const InodePointer inode = new_inode(asker, *standing, is_link ? S_IFLNK | 0777 : mode.mode, rdev);
  if (S_ISDIR(mode.mode)) note_new_directory(*inode, standing->exclusive, standing->told.lease);
  if (is_link) {
    const std::lock_guard lock(inode->mutex);
    inode->link_target = target;
    inode->attributes.adjust([&](Attributes& attr) {
      attr.size = target.size();
      attr.blocks = target.size() > kLinkInInode ? kBlock : 0;
    });
  }
  schema::Request entry;
  schema::MakeNodeRequest& make = *entry.mutable_make_node();
  make.set_parent(directory->name_in_log());
  make.set_name(name);
  make.set_mode(mode.mode);
  make.set_umask(mode.umask);
  make.set_target(target);
  make.set_rdev(rdev);
  if (!append_making(asker, *standing, directory, name, inode, std::move(entry))) return false;
  done(changed_entry(inode, standing->learnt()));
  return true;
}

// ---------------------------------------------------------------- what is removed and renamed

// Of a directory that is ours alone and all names of which are known; else nothing is known of it.
std::optional<bool> Filesystem::known_empty(Inode& directory) {
  const TimePoint now = core_.scheduler.now();
  const std::lock_guard lock(directory.mutex);
  if (!directory.directory || !core_.log.stands(directory.directory->exclusive) ||
      !core_.trust.may_use(Fact::kAbsence, directory.directory->names_complete, now))
    return std::nullopt;
  return std::ranges::none_of(directory.directory->names,
                              [](const auto& name) { return name.second.inode != nullptr; });
}

void Filesystem::unlinked_here(Inode& inode, const timespec& at) {
  const std::lock_guard lock(inode.mutex);
  if (inode.file) inode.file->touch();
  const timespec shown = inode.shown_ctime();
  inode.attributes.adjust([&](Attributes& attr) {
    attr.nlink = attr.is_directory() || attr.nlink == 0 ? 0 : attr.nlink - 1;
    if (attr.is_directory()) attr.size = 0;
    attr.ctime = later(at, core_.clock.past(shown));
  });
  inode.log.show_no_other_times();
  core_.loans.withdraw_locked(inode);
}

bool Filesystem::remove_here(const Asker& asker, const InodePointer& directory, const std::string& name,
                             bool is_directory, Done<void>& done) {
  const auto standing = standing_in(*directory);
  if (!standing) return false;
  const NameAnswer known = names_.lookup(*directory, name);
  if (known.kind != NameAnswer::Kind::kExists) return false;
  const InodePointer& removed = known.inode;
  if (attributes_of(*removed).is_directory() != is_directory) return false;
  if (is_directory) {
    const std::optional<bool> empty = known_empty(*removed);
    if (!empty) return false;
    if (!*empty) {
      done(fail(from_errno(ENOTEMPTY), "rmdir"));
      return true;
    }
  }
  schema::Request entry;
  schema::RemoveRequest& remove = *entry.mutable_remove();
  remove.set_parent(directory->name_in_log());
  remove.set_name(name);
  remove.set_directory(is_directory);
  remove.set_expected(removed->name_in_log());
  const auto in_log = std::pair(facts_.begin_entry(directory), facts_.begin_entry(removed));
  if (open_without_server(*removed)) return false;  // from here on nobody opens it so (open_meanwhile)
  auto answered = [this, directory, name, removed, told = standing->told,
                   in_log](const Result<schema::Reply>& reply) {
    const bool unknown = !reply && reply.error().code == from_errno(ESTALE) && never_made(*removed);
    // Nothing of what the program wanted is missing then.
    const bool gone = unknown || (!reply && reply.error().code == from_errno(ENOENT));
    if (!reply && !gone)
      return not_done(directory, name, reply.error(), core_.untold.add(text_of_failure(name, reply.error())));
    if (!reply) names_.changed_somehow(*directory, name);
    if (unknown) ask_whether_gone(directory, name, reply.error());
    if (reply && reply->remove().has_attr())
      facts_.learn_logged(*removed, reply->remove().attr(), Told(told.started, *reply, {}));
    else
      facts_.learn_logged_somehow(*removed);
  };
  names_.changed(*directory, name, nullptr, standing->told);
  if (!core_.log.append(standing->naming, standing->exclusive, asker, std::move(entry), {},
                        std::move(answered))) {
    names_.changed_somehow(*directory, name);
    return false;
  }
  assume_changed(*directory, *standing, is_directory ? -1 : 0);
  unlinked_here(*removed, standing->at);
  done({});
  return true;
}

bool Filesystem::rename_here(const Asker& asker, const InodePointer& from, const std::string& old_name,
                             const InodePointer& to, const std::string& new_name, std::uint32_t flags,
                             Done<void>& done) {
  const auto standing = standing_in(*from);
  const auto standing_there = standing_in(*to);
  if (!standing || !standing_there || standing->exclusive != standing_there->exclusive || flags != 0 ||
      new_name.size() > kNameMax)
    return false;
  const NameAnswer old = names_.lookup(*from, old_name);
  const NameAnswer there = names_.lookup(*to, new_name);
  if (old.kind != NameAnswer::Kind::kExists || there.kind == NameAnswer::Kind::kUnknown ||
      old.inode == there.inode)
    return false;
  const InodePointer moved = old.inode;
  const InodePointer replaced = there.inode;
  const bool is_directory = attributes_of(*moved).is_directory();
  if (replaced && (is_directory || attributes_of(*replaced).is_directory())) return false;
  if (replaced && !is_directory) {
    // What a program puts in the place of a good file (an editor that saves) has to be whole.
    const std::lock_guard lock(moved->mutex);
    if (moved->file && moved->file->data.pending_bytes() > WriteBehind::kSmallMax) return false;
  }
  schema::Request entry;
  schema::RenameRequest& rename = *entry.mutable_rename();
  rename.set_old_parent(from->name_in_log());
  rename.set_old_name(old_name);
  rename.set_new_parent(to->name_in_log());
  rename.set_new_name(new_name);
  rename.set_expected(moved->name_in_log());
  if (replaced) rename.set_replaced(replaced->name_in_log());
  const auto in_log = std::array{facts_.begin_entry(from), facts_.begin_entry(to), facts_.begin_entry(moved),
                                 facts_.begin_entry(replaced)};
  if (replaced && open_without_server(*replaced)) return false;
  auto answered = [this, from, old_name, to, new_name, moved, replaced, started = core_.scheduler.now(),
                   in_log](const Result<schema::Reply>& reply) {
    if (reply && reply->rename().has_moved())
      facts_.learn_logged(*moved, reply->rename().moved().attr(), Told(started, *reply, {}));
    else
      facts_.learn_logged_somehow(*moved);
    if (replaced && reply && reply->rename().has_replaced())
      facts_.learn_logged(*replaced, reply->rename().replaced(), Told(started, *reply, {}));
    else if (replaced)
      facts_.learn_logged_somehow(*replaced);
    if (reply) return;
    const UntoldFailures::Id failure = core_.untold.add(text_of_failure(new_name, reply.error()));
    not_done(from, old_name, reply.error(), failure);
    not_done(to, new_name, reply.error(), failure);
  };
  if (from == to) {
    names_.changed(*from, {{old_name, nullptr}, {new_name, moved}}, standing->told);
  } else {
    names_.changed(*from, old_name, nullptr, standing->told);
    names_.changed(*to, new_name, moved, standing_there->told);
  }
  if (!core_.log.append(standing->naming, standing->exclusive, asker, std::move(entry), {},
                        std::move(answered))) {
    names_.changed_somehow(*from, old_name);
    names_.changed_somehow(*to, new_name);
    return false;
  }
  const int links = is_directory && from != to ? 1 : 0;
  assume_changed(*from, *standing, -links);
  if (from != to) assume_changed(*to, *standing_there, links);
  if (replaced) unlinked_here(*replaced, standing->at);
  {
    const std::lock_guard lock(moved->mutex);
    const timespec shown = moved->shown_ctime();
    moved->attributes.adjust(
        [&](Attributes& attr) { attr.ctime = later(standing->at, core_.clock.past(shown)); });
    moved->log.show_no_other_times();
    core_.loans.withdraw_locked(*moved);
  }
  done({});
  return true;
}

// ---------------------------------------------------------------- attributes

bool Filesystem::set_attributes_here(const Asker& asker, const InodePointer& inode, NewAttributes changes,
                                     Done<AttributesReply>& done) {
  if (!trust_->waited_for(core_.scheduler.now()) || core_.path.silent()) return false;
  std::uint64_t exclusive = 0;
  {
    const std::lock_guard lock(inode->mutex);
    exclusive = inode->log.made_under;
    const bool written = inode->file && (inode->file->data.dirty_bytes() > 0 || inode->file->beside_log);
    if (written) return false;  // just now, or not by the log: the entry would not come behind it
    const Attributes& attr = inode->attributes.value();
    const bool gives_away =
        (changes.uid && *changes.uid != attr.uid) || (changes.gid && *changes.gid != attr.gid);
    if (gives_away && (!options_.identity.is_real() || asker.uid != 0)) return false;
  }
  if (!core_.log.stands(exclusive) || !core_.log.has_room()) return false;
  const timespec at = core_.clock.after({});
  timespec now{};
  {
    const std::lock_guard lock(inode->mutex);
    now = core_.clock.past(inode->shown_ctime());
  }
  for (std::optional<NewTime>* time : {&changes.atime, &changes.mtime})
    if (*time && std::holds_alternative<TimeNow>(**time)) *time = at;
  const OperationLog::Naming naming = core_.log.naming();
  schema::Request entry;
  write_set_attributes(*entry.mutable_setattr(), changes);
  entry.mutable_setattr()->set_handle(inode->name_in_log());
  const auto in_log = facts_.begin_entry(inode);
  if (changes.may_lock_out() && open_without_server(*inode)) return false;
  const Attributes before = attributes_of(*inode);
  {
    const std::lock_guard lock(inode->mutex);
    entry.mutable_setattr()->set_open_id(inode->any_open_id());
    inode->attributes.adjust([&](Attributes& attr) {
      changes.apply_to(attr, now);
      if (changes.mode) attr.mode = mode_at_server(attr.mode);
    });
    inode->log.show_no_other_times();
    core_.loans.withdraw_locked(*inode);
  }
  auto answered = [this, inode, started = core_.scheduler.now(), in_log](const Result<schema::Reply>& reply) {
    if (reply) return facts_.learn_logged(*inode, reply->attr().attr(), Told(started, *reply, {}));
    const std::string text =
        "attributes that were answered before could not be set: " + reply.error().message();
    core_.last_error.set(text);
    Deferred after;
    const std::lock_guard lock(inode->mutex);
    inode->attributes.expire(core_.scheduler.now());
    core_.loans.withdraw_locked(*inode);
    if (inode->log.failed) return;  // which is counted
    if (inode->file) return write_behind_.note_error_locked(*inode, reply.error(), after);
    const UntoldFailures::Id failure = core_.untold.add(text);
    if (inode->directory) inode->directory->note_failure(reply.error(), failure, core_.untold);
  };
  if (!core_.log.append(naming, exclusive, asker, std::move(entry), {}, std::move(answered))) {
    const std::lock_guard lock(inode->mutex);
    inode->attributes.adjust([&](Attributes& attr) { attr = before; });
    return false;
  }
  done(changed_attributes(*inode));
  return true;
}

// Others may come to it by a name in another directory: what becomes of it they must be told first.
void Filesystem::no_more_ours_alone(const InodePointer& inode) {
  if (!inode) return;
  const std::lock_guard lock(inode->mutex);
  inode->log.made_under = 0;
}

// ---------------------------------------------------------------- ends

// The open ends behind the writes that went through it.
void Filesystem::close_own(std::uint64_t open_id, std::uint64_t exclusive) {
  schema::Request entry;
  entry.mutable_close()->set_open_id(open_id);
  if (core_.log.append(core_.log.naming(), exclusive, {}, entry, {}, [](const Result<schema::Reply>&) {}))
    return;
  core_.log.when_answered([this, entry = std::move(entry)]() mutable {
    remote_.ask({}, std::move(entry), schema::Reply::kEmpty, [](const Result<rpc::CallReply>&) {});
  });
}

// What the log still holds points to all the rest.
Filesystem::~Filesystem() { core_.log.drop(); }

void Filesystem::flush_all(Done<void> done) {
  write_behind_.flush_all([this, done = std::move(done)](const Result<void>&) mutable {
    core_.log.when_answered(
        [this, done = std::move(done)]() mutable { core_.committer.commit_all(std::move(done)); });
  });
}

bool Filesystem::in_log(std::initializer_list<InodePointer> inodes) {
  return std::ranges::any_of(inodes, [](const InodePointer& inode) {
    if (!inode) return false;
    const std::lock_guard lock(inode->mutex);
    return inode->log.entries > 0;
  });
}

}  // namespace tusk::client
