#include "fsclient/directory_cache.h"

#include <dirent.h>

#include <algorithm>

namespace tusk::client {

// ---------------------------------------------------------------- names

NameAnswer DirectoryCache::lookup(Inode& directory, std::string_view name) {
  using Kind = NameAnswer::Kind;
  const std::lock_guard lock(directory.mutex);
  if (!directory.directory) return {};
  Directory& known = *directory.directory;
  const bool streamed = known.streamed != 0;
  const auto found = known.names.find(name);
  if (found != known.names.end()) {
    const bool exists = found->second.inode != nullptr;
    const Fact fact = exists ? Fact::kEntry : Fact::kAbsence;
    const Duration remaining = usable_for(fact, found->second.learnt, found->second.ahead);
    if (remaining > Duration::zero())
      return {exists ? Kind::kExists : Kind::kAbsent, found->second.inode,
              lifetime_of(directory, fact, found->second.learnt, remaining), streamed};
    if (exists) return {};
  }
  const Duration remaining = usable_for(Fact::kAbsence, known.names_complete, known.names_complete_ahead);
  if (remaining <= Duration::zero()) return {};
  // What the kernel remembers as a name must be found among the names when they are taken back. A program
  // that tries any number of them is answered each time.
  const std::size_t listed = known.listing ? known.listing->entries.size() : 0;
  if (known.names.size() >= listed + kAbsentMax) return {Kind::kAbsent, nullptr, Duration::zero(), streamed};
  known.names.insert_or_assign(std::string(name), KnownName{nullptr, known.names_complete, {}, 0});
  return {Kind::kAbsent, nullptr, lifetime_of(directory, Fact::kAbsence, known.names_complete, remaining),
          streamed};
}

// A name that is checked holds no lock of the kernel's, so the answer may come into force behind a change.
Duration DirectoryCache::lifetime_of(const Inode& directory, Fact fact, Learnt learnt, Duration remaining) {
  return directory.changes.count == 0 ? core_.loans.name(fact, learnt) : Loans::unsettled(remaining);
}

Duration DirectoryCache::usable_for(Fact fact, Learnt& learnt, Ahead& ahead) {
  const TimePoint now = core_.scheduler.now();
  if (!core_.trust.may_use(fact, learnt, now) && core_.foresight.take(ahead, now)) learnt = {now};
  return core_.trust.remaining(fact, learnt, now);
}

std::shared_ptr<Inode> DirectoryCache::last_known(Inode& directory, std::string_view name) {
  const std::lock_guard lock(directory.mutex);
  if (!directory.directory) return nullptr;
  const auto found = directory.directory->names.find(name);
  return found == directory.directory->names.end() ? nullptr : found->second.inode;
}

Learnt DirectoryCache::learn(Inode& directory, std::string_view name, std::shared_ptr<Inode> inode,
                             const Told& told) {
  const Learnt learnt = told.learnt(core_.scheduler.now());
  if (inode) note_place(*inode, directory, name, {});
  const std::lock_guard lock(directory.mutex);
  if (!directory.directory || outdated(directory, told)) return {};
  KnownName& known = directory.directory->names[std::string(name)];
  known.inode.swap(inode);  // the old one goes after the lock
  known.learnt = learnt;
  known.ahead.forget();
  return learnt;
}

// The answer may tell names as they were before a change of this mount's, or of somebody else's.
bool DirectoryCache::outdated(const Inode& directory, const Told& told) const {
  return directory.log.entries > 0 || told.started < directory.directory->names_changed_at ||
         facts_.taken_back_since(directory, told.started);
}

Learnt DirectoryCache::learn_absent(Inode& directory, std::string_view name, const Told& told) {
  return learn(directory, name, nullptr, told);
}

Learnt DirectoryCache::changed(Inode& directory, std::vector<OwnName> names, const Told& told) {
  Learnt learnt = told.learnt(core_.scheduler.now());
  std::size_t grown = 0;
  {
    for (const OwnName& own : names)
      if (own.inode) note_place(*own.inode, directory, own.name, {});
    const std::lock_guard lock(directory.mutex);
    if (!directory.directory) return {};
    Directory& all = *directory.directory;
    if (all.names.size() >= 2 * all.counted + kOwnNames) {
      grown = all.counted = all.names.size();
    }
    // Of two changes that crossed nobody here knows which was the last.
    if (directory.changes.count > 1 || told.started < all.names_changed_at) learnt.lease = 0;
    if (told.started < all.names_taken_back_at) learnt.forget();
    for (OwnName& own : names) {
      KnownName& known = all.names[std::string(own.name)];
      known.inode.swap(own.inode);  // the old one goes after the lock
      known.learnt = learnt;
      known.ahead.forget();
      note_changed_locked(directory, own.name);
    }
  }
  if (grown > 0) note_used(directory.shared_from_this(), grown);
  return learnt;
}

void DirectoryCache::taken_back(Inode& directory, std::string_view name) {
  std::shared_ptr<Inode> old;  // goes after the lock
  const std::lock_guard lock(directory.mutex);
  if (!directory.directory) return;
  Directory& known = *directory.directory;
  if (const auto found = known.names.find(name); found != known.names.end()) {
    old.swap(found->second.inode);
    known.names.erase(found);
  }
  note_changed_locked(directory, name);
  known.names_taken_back(core_.scheduler.now());
}

void DirectoryCache::changed_somehow(Inode& directory, std::string_view name) {
  std::shared_ptr<Inode> old;  // goes after the lock
  const std::lock_guard lock(directory.mutex);
  if (!directory.directory) return;
  Directory& known = *directory.directory;
  // It is not known any more, but the kernel may still have it.
  if (const auto found = known.names.find(name); found != known.names.end())
    old = std::exchange(found->second, {}).inode;
  known.names_complete.forget();
  known.names_complete_ahead.forget();
  note_changed_locked(directory, name);
}

// In one step with the change itself: a listing that ended in between would take the name for one that is
// gone, and say that it knows all there are.
void DirectoryCache::note_changed_locked(Inode& directory, std::string_view name) {
  directory.attributes.expire(core_.scheduler.now());
  directory.log.assume_no_more();  // a change by the log is assumed after this
  core_.loans.withdraw_locked(directory);
  Directory& known = *directory.directory;
  known.names_changed_at = core_.scheduler.now();
  if (!known.listing) return;
  known.listing->outdated = true;
  if (known.listing->loading()) known.changed_while_loading.emplace(name);
}

bool DirectoryCache::note_miss(const Asker& asker, const std::shared_ptr<Inode>& directory) {
  {
    const std::lock_guard lock(directory->mutex);
    if (!directory->directory) return false;
    Directory& known = *directory->directory;
    const bool busy =
        known.listing && (known.listing->loading() || known.listing->entries.size() > kRefreshedMax);
    const bool walking = core_.foresight.going_on(core_.scheduler.now());
    if (++known.misses < (walking ? 1 : kMissesToList) || busy) return false;
  }
  (void)begin(asker, directory);
  return true;
}

// ---------------------------------------------------------------- reading a listing

std::shared_ptr<Listing> DirectoryCache::begin(const Asker& asker, const std::shared_ptr<Inode>& directory) {
  auto load = std::make_shared<Load>();
  bool in_log = false;
  {
    const TimePoint now = core_.scheduler.now();
    const std::lock_guard lock(directory->mutex);
    Directory& known = *directory->directory;
    if (known.awaiting) return known.awaiting->listing;
    if (known.listing && !known.listing->outdated && !known.listing->error && may_list(*known.listing))
      return known.listing;
    if (auto here = listing_of_own(*directory)) {
      ++known.load;  // one that is still loading tells no names any more
      return known.listing = here;
    }
    load->listing = std::make_shared<Listing>();
    load->listing->learnt = {now};
    if (known.listing) known.listing->outdated = true;
    known.listing = load->listing;
    known.changed_while_loading.clear();
    known.misses = 0;
    load->id = ++known.load;
    load->asker = {asker.uid, asker.gid, asker.pid, nullptr};
    in_log = directory->log.entries > 0;
    if (known.walks > 0) {
      known.awaiting = load;  // what is on its way is sooner here
      return load->listing;
    }
  }
  load->directory = directory;
  // Behind what this mount has changed in it.
  if (in_log)
    core_.log.when_answered([this, load] { ask(load, 0, 0); });
  else
    ask(load, 0, 0);
  return load->listing;
}

// A directory that nobody else is told of, all names of which are known: the server would say the same,
// behind what is in the log.
std::shared_ptr<Listing> DirectoryCache::listing_of_own(Inode& directory) {
  const Directory& known = *directory.directory;
  const TimePoint now = core_.scheduler.now();
  if (!core_.log.stands(known.exclusive) || !core_.trust.may_use(Fact::kListing, known.names_complete, now))
    return nullptr;
  auto listing = std::make_shared<Listing>();
  for (const auto& [name, of] : known.names) {
    if (!of.inode) continue;
    if (core_.trust.remaining(Fact::kEntry, of.learnt, now) <= Duration::zero()) return nullptr;
    // Its type and number are looked up where it is told: one inode's mutex is held already.
    listing->entries.push_back({name, DT_UNKNOWN, 0, of.inode, of.learnt});
  }
  listing->complete = true;
  listing->learnt = known.names_complete;
  return listing;
}

std::shared_ptr<Listing> DirectoryCache::leased(const Inode& directory) const {
  const std::shared_ptr<Listing>& listing = directory.directory->listing;
  const bool usable = listing && listing->complete && !listing->error && !listing->outdated &&
                      core_.loans.listing(listing->learnt);
  return usable ? listing : nullptr;
}

// A listing that was told ahead is as good as one told now for who comes to it in time.
bool DirectoryCache::may_list(Listing& listing) {
  const TimePoint now = core_.scheduler.now();
  if (core_.trust.may_use(Fact::kListing, listing.learnt, now)) return true;
  if (!core_.foresight.take(listing.ahead, now)) return false;
  listing.learnt = {now};
  for (ListedEntry& entry : listing.entries) entry.learnt = {now};
  return true;
}

Result<bool> DirectoryCache::read(Inode& directory, Listing& listing, std::size_t index, std::size_t count,
                                  std::vector<ListedEntry>& entries, std::move_only_function<void()>& wake) {
  const std::lock_guard lock(directory.mutex);
  if (index < listing.entries.size()) {
    const auto first = listing.entries.begin() + static_cast<std::ptrdiff_t>(index);
    entries.assign(first,
                   first + static_cast<std::ptrdiff_t>(std::min(count, listing.entries.size() - index)));
    // Names that changed since keep their place in the listing, but what is told of them ages.
    if (listing.outdated)
      for (ListedEntry& entry : entries)
        entry.learnt = listing.taken_back ? Learnt{} : Learnt{entry.learnt.at};
    return true;
  }
  if (listing.error) return std::unexpected(*listing.error);
  if (listing.complete) return true;
  listing.waiters.push_back(std::move(wake));
  return false;
}

void DirectoryCache::wake(Listing& listing, Deferred& after) {
  for (auto& waiter : std::exchange(listing.waiters, {})) after.add(std::move(waiter));
}

// ---------------------------------------------------------------- loading a listing

void DirectoryCache::ask(const std::shared_ptr<Load>& load, std::uint64_t page, std::uint64_t cookie) {
  schema::Request request;
  schema::ReadDirRequest& readdir = *request.mutable_readdir();
  readdir.set_handle(load->directory->handle());
  readdir.set_cookie(cookie);
  readdir.set_with_nodes(true);
  readdir.set_limit_bytes(page == 0 ? kFirstPageBytes : kPageBytes);
  core_.remote.ask(load->asker, std::move(request), schema::Reply::kReaddir,
                   [this, load, page, started = core_.scheduler.now()](Result<rpc::CallReply> reply) {
                     arrived(load, page, started, std::move(reply));
                   });
}

// On the network thread: asks for the next page at once and leaves the parsing to a worker.
void DirectoryCache::arrived(const std::shared_ptr<Load>& load, std::uint64_t page, TimePoint started,
                             Result<rpc::CallReply> reply) {
  Result<schema::Reply> arrived = std::unexpected(Error{});
  if (!reply) {
    arrived = std::unexpected(reply.error());
  } else {
    const schema::ReadDirReply& entries = reply->message.readdir();
    if (!entries.end() && entries.entries().empty())
      arrived = fail(ErrorCode::kMalformed, "a page of a directory without entries that is not the end");
    else
      arrived = std::move(reply->message);
    if (arrived && !arrived->readdir().end() && page < kPagesMax)
      ask(load, page + 1, arrived->readdir().entries(arrived->readdir().entries_size() - 1).cookie());
  }
  {
    const std::lock_guard lock(load->directory->mutex);
    load->pages.emplace(page, std::move(arrived));
    if (load->taking_in) return;
    load->taking_in = true;
  }
  core_.scheduler.post([this, load, started] { take_in(load, started); });
}

// On a worker, one at a time per load, in the order of the pages.
void DirectoryCache::take_in(const std::shared_ptr<Load>& load, TimePoint started) {
  for (;;) {
    Result<schema::Reply> page = std::unexpected(Error{});
    {
      const std::lock_guard lock(load->directory->mutex);
      const auto next = load->pages.find(load->next_page);
      if (next == load->pages.end()) {
        load->taking_in = false;
        return;
      }
      page = std::move(next->second);
      load->pages.erase(next);
      ++load->next_page;
    }
    if (page) {
      add_page(load, *page, started);
      if (page->readdir().end() || load->next_page <= kPagesMax) continue;
      page = fail(ErrorCode::kLimitExceeded, "a directory that does not end");
    }
    Deferred after;
    const std::lock_guard lock(load->directory->mutex);
    finish(load, page.error(), after);
  }
}

// This mount made, removed or renamed it since the listing began: what that says of the name may be older,
// and of a file that is being made it would be known as another.
bool DirectoryCache::changed_since(const ListingLoad& load, const std::string& name) {
  const std::lock_guard lock(load.directory->mutex);
  return load.directory->directory->changed_while_loading.contains(name);
}

void DirectoryCache::add_page(const std::shared_ptr<Load>& load, const schema::Reply& reply,
                              TimePoint started) {
  const schema::ReadDirReply& page = reply.readdir();
  const Told told(started, reply, reply.names());
  const Learnt learnt = told.learnt(core_.scheduler.now());
  std::vector<ListedEntry> entries;
  entries.reserve(static_cast<std::size_t>(page.entries_size()));
  for (const schema::DirEntry& entry : page.entries()) {
    auto inode =
        changed_since(*load, entry.name()) ? nullptr : learn_entry(load->directory, entry, told, false);
    entries.push_back({entry.name(), entry.type(), entry.ino(), std::move(inode), learnt});
  }
  if (page.has_directory()) facts_.learn(*load->directory, page.directory(), told);

  std::size_t names = 0;
  const bool whole = page.end();
  {
    Deferred after;
    const std::lock_guard lock(load->directory->mutex);
    Directory& known = *load->directory->directory;
    load->under_lease = load->under_lease && learnt.lease != 0;
    load->lease = load->lease == 0 ? learnt.lease : std::min(load->lease, learnt.lease);
    if (reply.names() == schema::COVER_ONCE) load->listing->outdated = load->listing->taken_back = true;
    for (ListedEntry& entry : entries) {
      if (entry.inode && known.load == load->id && !known.changed_while_loading.contains(entry.name))
        known.names.insert_or_assign(entry.name, KnownName{entry.inode, learnt, {}, load->id});
      load->listing->entries.push_back(std::move(entry));
    }
    if (page.end()) finish(load, std::nullopt, after);
    wake(*load->listing, after);
    names = load->listing->entries.size();
  }
  if (whole) note_used(load->directory, names);
}

void DirectoryCache::finish(const std::shared_ptr<Load>& load, std::optional<Error> error, Deferred& after) {
  Directory& known = *load->directory->directory;
  Listing& listing = *load->listing;
  if (listing.loading()) {
    listing.complete = !error;
    listing.error = std::move(error);
  }
  if (listing.complete && known.load == load->id) {
    if (auto gone = forget_unlisted(known, load->id); !gone.empty())
      after.add([this, directory = load->directory, gone = std::move(gone)]() mutable {
        facts_.drop_kernel_names(directory, std::move(gone));
      });
    if (load->under_lease && !listing.outdated) listing.learnt.lease = load->lease;
    // Names without a node keep a lookup from answering, so they count as not complete. So do those that this
    // mount did something to meanwhile of which it does not know what came of it.
    const bool all_known =
        std::ranges::all_of(listing.entries, [](const ListedEntry& e) { return e.inode != nullptr; }) &&
        std::ranges::none_of(known.changed_while_loading, [&](const std::string& name) {
          const auto of = known.names.find(name);
          return of == known.names.end() || !of->second.learnt.ever();
        });
    known.names_complete = all_known && !listing.taken_back ? listing.learnt : Learnt{};
    known.names_complete_ahead.forget();
    known.changed_while_loading.clear();
  }
  wake(listing, after);
}

// Names outlive their lifetime only as long as there is room.
void DirectoryCache::note_used(const std::shared_ptr<Inode>& directory, std::size_t names) {
  std::vector<std::shared_ptr<Inode>> old;
  {
    const std::lock_guard lock(mutex_);
    if (const auto before = places_.find(directory.get()); before != places_.end())
      forget_use(before->second);
    if (names == 0) return;
    recent_.push_front({directory.get(), directory, names});
    places_.emplace(directory.get(), recent_.begin());
    names_ += names;
    while (names_ > kNamesMax && recent_.size() > 1) {
      if (auto inode = recent_.back().inode.lock()) old.push_back(std::move(inode));
      forget_use(std::prev(recent_.end()));
    }
  }
  for (const auto& inode : old)
    if (inode != directory) facts_.drop_kernel_names(inode, drop_names(*inode));
}

void DirectoryCache::forget_use(std::list<Use>::iterator use) {
  names_ -= use->names;
  places_.erase(use->directory);
  recent_.erase(use);
}

std::vector<std::string> DirectoryCache::drop_names(Inode& directory) {
  std::vector<std::string> names;
  Directory dropped;  // destroyed after the lock: it may hold the last reference to its children
  const std::lock_guard lock(directory.mutex);
  const auto& listing = directory.directory->listing;
  if (directory.log.entries > 0 || (listing && listing->loading())) return names;
  dropped.names.swap(directory.directory->names);
  dropped.listing.swap(directory.directory->listing);
  if (dropped.listing) dropped.listing->outdated = true;  // for who still reads it
  directory.directory->names_complete.forget();
  directory.directory->names_complete_ahead.forget();
  directory.directory->counted = 0;
  for (const auto& [name, known] : dropped.names) names.push_back(name);
  return names;
}

// Names that are out of date, or a server that lies, can have directories hold each other.
DirectoryCache::~DirectoryCache() {
  for (const Use& use : recent_)
    if (const auto directory = use.inode.lock()) drop_names(*directory);
}

// What a whole listing does not tell does not exist, unless this mount just made it.
std::vector<std::string> DirectoryCache::forget_unlisted(Directory& known, std::uint64_t load) {
  std::vector<std::string> gone;
  std::erase_if(known.names, [&](const auto& name) {
    const bool unlisted =
        name.second.inode && name.second.load != load && !known.changed_while_loading.contains(name.first);
    if (unlisted) gone.push_back(name.first);
    return unlisted;
  });
  return gone;
}

// ---------------------------------------------------------------- told before anybody asks

std::shared_ptr<Inode> DirectoryCache::learn_entry(const std::shared_ptr<Inode>& directory,
                                                   const schema::DirEntry& entry, const Told& told,
                                                   bool ahead) {
  if (!entry.has_node()) return nullptr;
  auto inode = facts_.learn(entry.node(), told);
  if (!inode) return nullptr;
  note_place(**inode, *directory, entry.name(), entry.link_target());
  if (ahead && !facts_.taken_back_since(**inode, told.started)) {
    const std::lock_guard lock((*inode)->mutex);
    (*inode)->attributes.foresee(core_.foresight, told.about(entry.node().attr()));
  }
  return std::move(*inode);
}

void DirectoryCache::note_place(Inode& inode, Inode& directory, std::string_view name,
                                std::string_view link_target) {
  const std::lock_guard lock(inode.mutex);
  inode.parent = directory.weak_from_this();
  inode.name = name;
  if (!link_target.empty()) inode.link_target = link_target;
}

std::vector<std::shared_ptr<Inode>> DirectoryCache::learn_ahead(const std::shared_ptr<Inode>& directory,
                                                                const schema::WalkListing& listed,
                                                                const Told& told) {
  const Learnt learnt = told.learnt(core_.scheduler.now());
  const Ahead ahead = core_.foresight.told(told);
  std::vector<std::shared_ptr<Inode>> inodes;
  std::vector<ListedEntry> entries;
  {
    // Before anything is taken in: a file that this mount is making must not become known as another.
    const std::lock_guard lock(directory->mutex);
    inodes.resize(static_cast<std::size_t>(listed.entries_size()));
    if (directory->directory && outdated(*directory, told)) return inodes;
    inodes.clear();
  }
  inodes.reserve(static_cast<std::size_t>(listed.entries_size()));
  entries.reserve(static_cast<std::size_t>(listed.entries_size()));
  for (const schema::DirEntry& entry : listed.entries()) {
    inodes.push_back(learn_entry(directory, entry, told, true));
    const schema::Attr& attr = entry.node().attr();
    const bool examined = inodes.back() != nullptr;
    entries.push_back({entry.name(), examined ? IFTODT(attr.mode()) : entry.type(),
                       examined ? attr.ino() : entry.ino(), inodes.back(), learnt});
  }
  {
    Deferred after;
    std::unordered_map<std::string, KnownName, Directory::StringHash, std::equal_to<>>
        old;  // goes after the lock
    const std::lock_guard lock(directory->mutex);
    if (!directory->directory) return inodes;
    Directory& known = *directory->directory;
    const bool being_read = known.listing && known.listing->loading() && !known.awaiting;
    // What somebody asked for later says more.
    const bool newer_here = known.listing && known.listing->complete && !known.listing->outdated &&
                            known.listing->learnt.at > told.started;
    // A push about a directory that was not known here left no mark on it.
    if (being_read || newer_here || known.names_changed_at == told.started || outdated(*directory, told))
      return inodes;
    const std::shared_ptr<Listing> listing =
        known.awaiting ? std::exchange(known.awaiting, nullptr)->listing : std::make_shared<Listing>();
    if (known.listing && known.listing != listing) known.listing->outdated = true;
    known.listing = listing;
    known.changed_while_loading.clear();
    known.misses = 0;
    ++known.load;
    old.swap(known.names);
    bool all_known = true;
    for (const ListedEntry& entry : entries) {
      all_known = all_known && entry.inode != nullptr;
      if (entry.inode) known.names.emplace(entry.name, KnownName{entry.inode, learnt, ahead, known.load});
    }
    // The kernel may still remember them.
    std::vector<std::string> gone;
    for (const auto& [name, before] : old) {
      if (!before.inode && all_known) known.names.emplace(name, KnownName{nullptr, learnt, ahead, 0});
      if (!known.names.contains(name)) gone.push_back(name);
    }
    if (!gone.empty())
      after.add([this, directory, gone = std::move(gone)]() mutable {
        facts_.drop_kernel_names(directory, std::move(gone));
      });
    known.names_complete = all_known ? learnt : Learnt{};
    known.names_complete_ahead = all_known ? ahead : Ahead{};
    listing->entries = std::move(entries);
    listing->learnt = learnt;
    listing->ahead = ahead;
    listing->complete = true;
    wake(*listing, after);
  }
  note_used(directory, inodes.size());
  return inodes;
}

std::uint32_t DirectoryCache::listing_wanted_beside(Inode& directory, std::string_view name) {
  const std::shared_ptr<Inode> inode = last_known(directory, name);
  if (!inode) return kBesideNameBytes;
  const std::lock_guard lock(inode->mutex);
  return inode->directory && leased(*inode) ? 0 : kBesideNameBytes;
}

void DirectoryCache::learn_beside_name(const std::shared_ptr<Inode>& directory,
                                       const schema::WalkListing& listed, const Told& told) {
  if (listed.entries_size() > kBesideNameMax || told.cover == schema::COVER_ONCE) return;
  (void)learn_ahead(directory, listed, told);
  const std::lock_guard lock(directory->mutex);
  if (!directory->directory) return;
  const std::shared_ptr<Listing>& listing = directory->directory->listing;
  directory->directory->listed_beside_name = listing && listing->complete && !listing->outdated;
}

void DirectoryCache::learn_name_ahead(Inode& directory, std::string_view name,
                                      const std::shared_ptr<Inode>& inode, const Told& told) {
  const Learnt learnt = told.learnt(core_.scheduler.now());
  const std::lock_guard lock(directory.mutex);
  if (!directory.directory || directory.directory->names_changed_at == told.started ||
      outdated(directory, told))
    return;
  const auto known = directory.directory->names.find(name);
  // Only what is known already is kept fresh: a name that is gone here stays gone.
  if (known == directory.directory->names.end() || known->second.inode != inode) return;
  // Told while somebody was changing it: the answer at hand does not say whether that is over.
  if (!known->second.learnt.ever()) return;
  // A lease may have told it already.
  if (known->second.learnt.lease == 0) known->second.learnt = learnt;
  known->second.ahead = core_.foresight.told(told);
}

void DirectoryCache::handle_walk_end(const std::shared_ptr<Inode>& directory) {
  std::shared_ptr<Load> load;
  {
    const std::lock_guard lock(directory->mutex);
    Directory& known = *directory->directory;
    if (--known.walks == 0) load = std::exchange(known.awaiting, nullptr);
  }
  if (!load) return;
  load->directory = directory;
  ask(load, 0, 0);
}

}  // namespace tusk::client
