#include "fsclient/tree_stream.h"

#include <dirent.h>

#include <algorithm>
#include <unordered_set>

#include "fsclient/tree_order.h"
#include "proto/rpc/compression.h"

namespace tusk::client {
namespace {

constexpr std::size_t kAncestorsMax = 64;
constexpr std::size_t kHandleBytes = 128;  // at most
constexpr ByteCount kKeptPerTold = 4;      // the server looks at them all before it answers

// Of kept listings, beside an answer of at most `limit`.
ByteCount kept_bytes_max(ByteCount limit) {
  return std::min(KeptListings::kGatheredBytesMax, kKeptPerTold * limit);
}

bool within(TimePoint earlier, Duration span, TimePoint now) { return earlier + span >= now; }

void remember_child(Inode& parent, const std::shared_ptr<Inode>& child) {
  const std::lock_guard lock(parent.mutex);
  if (parent.directory) parent.directory->last_child = child;
}

std::shared_ptr<Inode> nearest_common_ancestor(const std::shared_ptr<Inode>& a,
                                               const std::shared_ptr<Inode>& b) {
  std::unordered_set<const Inode*> above;
  std::shared_ptr<Inode> next = a;
  for (std::size_t depth = 0; next && depth < kAncestorsMax; ++depth, next = parent_of(*next))
    above.insert(next.get());
  next = b;
  for (std::size_t depth = 0; next && depth < kAncestorsMax; ++depth, next = parent_of(*next))
    if (above.contains(next.get())) return next;
  return nullptr;
}

}  // namespace

// ---------------------------------------------------------------- recognising a walk

void TreeStream::visit(const Asker& asker, const std::shared_ptr<Inode>& directory) {
  if (!core_.foresight.allowed()) return;
  const TimePoint now = core_.scheduler.now();
  std::shared_ptr<Inode> parent;
  std::uint64_t streamed = 0;
  bool here = false;
  bool by_chance = false;  // it is here, which says nothing of those beside it
  bool coming = false;
  {
    const std::lock_guard lock(directory->mutex);
    if (!directory->directory) return;
    Directory& known = *directory->directory;
    parent = directory->parent.lock();
    streamed = std::exchange(known.streamed, 0);
    by_chance = std::exchange(known.listed_beside_name, false) && streamed == 0;
    coming = known.walks > 0;
    if (known.listing && known.listing->complete && !known.listing->outdated)
      here = core_.trust.may_use(Fact::kListing, known.listing->learnt, now) ||
             core_.foresight.may_take(known.listing->ahead, now);
    known.visited_at = now;
    known.spread_at = TimePoint::min();
  }
  const bool step = parent && went_on(*parent, now) && !unknown_;
  if (!step && !(streamed != 0 && here)) {
    if (parent) remember_child(*parent, directory);
    return;
  }
  begin_if_new(now);
  core_.foresight.note_step(now);
  if (streamed != 0 && here) use(streamed);
  if (parent && (!here || by_chance) && !coming) miss(parent, directory, now);
  if (parent) remember_child(*parent, directory);
  ask_more(asker);
}

// To list one directory after the other is to walk through the one they are in.
bool TreeStream::went_on(Inode& parent, TimePoint now) {
  const std::lock_guard lock(parent.mutex);
  if (!parent.directory) return false;
  return within(std::exchange(parent.directory->visited_at, now), Foresight::kPauseMax, now);
}

void TreeStream::begin_if_new(TimePoint now) {
  if (core_.foresight.going_on(now)) return;
  const std::lock_guard lock(mutex_);
  window_.restart();
  walk_.clear();
  streamed_.clear();
}

void TreeStream::use(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  misses_ = 0;
  window_.use(number);
  streamed_.erase(streamed_.begin(), streamed_.upper_bound(number));
}

void TreeStream::miss(const std::shared_ptr<Inode>& parent, const std::shared_ptr<Inode>& directory,
                      TimePoint now) {
  bool again = false;
  {
    const std::lock_guard lock(mutex_);
    again = (answered_ || requests_ == 0) && ++misses_ > kMissesMax;
    if (again) {
      misses_ = 0;
      window_.restart();
      streamed_.clear();
    }
  }
  {
    const std::lock_guard lock(parent->mutex);
    if (!parent->directory) return;
    if (!again && within(parent->directory->spread_at, Foresight::kAgeMax, now)) return;
    parent->directory->spread_at = now;
  }
  put_in_front(spread(parent, directory, now));
  const std::lock_guard lock(mutex_);
  answered_ = false;
}

// All that is in `parent` is likely to be wanted, from `first` on. If the listing of `parent` is not known,
// it is the first that is.
std::vector<TreePlace> TreeStream::spread(const std::shared_ptr<Inode>& parent,
                                          const std::shared_ptr<Inode>& first, TimePoint now) {
  std::vector<Sibling> all;
  std::shared_ptr<Inode> previous;
  {
    const std::lock_guard lock(parent->mutex);
    Directory& known = *parent->directory;
    previous = known.last_child.lock();
    if (!known.listing || !known.listing->complete) return {{{}, "", parent, now}};
    for (const ListedEntry& entry : known.listing->entries)
      if (entry.inode && entry.type == DT_DIR) all.push_back({entry.name, entry.ino, entry.inode});
  }
  put_in_order(all, guess_order(all, previous.get(), first.get()), first.get());
  std::vector<TreePlace> places;
  places.reserve(all.size());
  for (const Sibling& next : all) places.push_back({parent, next.name, next.inode, now});
  return places;
}

// The second directory shortly after a first one: what they have in common is being gone through.
void TreeStream::examine(const Asker& asker, const std::shared_ptr<Inode>& directory) {
  if (!core_.foresight.allowed()) return;
  const TimePoint now = core_.scheduler.now();
  std::shared_ptr<Inode> other;
  {
    const std::lock_guard lock(mutex_);
    if (within(examined_at_, Foresight::kPauseMax, now)) other = examined_.lock();
    examined_ = directory;
    examined_at_ = now;
  }
  if (!other || other == directory || unknown_) return;
  // The way down from there: its first step is what to go on from.
  std::shared_ptr<Inode> first = directory;
  std::shared_ptr<Inode> top = nearest_common_ancestor(directory, other);
  if (!top) return;
  for (auto next = parent_of(*first); first != top && next && next != top; next = parent_of(*first))
    first = next;
  begin_if_new(now);
  core_.foresight.note_step(now);
  miss(top, first, now);
  remember_child(*top, first);
  ask_more(asker);
}

void TreeStream::put_in_front(std::vector<TreePlace> places) {
  const std::lock_guard lock(mutex_);
  walk_.put_in_front(std::move(places));
}

std::vector<std::shared_ptr<Inode>> TreeStream::upcoming(std::size_t count) {
  std::vector<std::shared_ptr<Inode>> next;
  const std::lock_guard lock(mutex_);
  for (const auto& [number, directory] : streamed_) {
    if (next.size() == count) break;
    if (auto inode = directory.lock()) next.push_back(std::move(inode));
  }
  return next;
}

// ---------------------------------------------------------------- asking

void TreeStream::ask_more(const Asker& asker) {
  while (const auto request = next_request()) {
    request->asker = {asker.uid, asker.gid, asker.pid, nullptr};
    gather(request);
  }
}

std::shared_ptr<TreeStream::Request> TreeStream::next_request() {
  while (true) {
    auto request = std::make_shared<Request>();
    std::vector<TreePlace> places;
    std::vector<std::shared_ptr<Inode>> looked_at;  // an inode's end takes other locks
    {
      const std::lock_guard lock(mutex_);
      if (walk_.empty() || requests_ >= kRequestsMax || !window_.worth_asking()) return nullptr;
      request->limit = std::clamp(window_.room(), kRequestMin, kRequestMax);
      places = take_places_locked(request->limit, looked_at);
      request->reserved = request->limit;
      request->ticket = window_.begin(request->reserved);
      ++requests_;
    }
    for (TreePlace& place : places) add(*request, std::move(place));
    if (!request->starts.empty()) return request;
    give_back(*request, request->reserved);
    const std::lock_guard lock(mutex_);
    --requests_;
  }
}

// Somewhat more than will fit: what is not reached is asked for again. Those that are kept here take no room
// in the answer.
std::vector<TreePlace> TreeStream::take_places_locked(ByteCount limit,
                                                      std::vector<std::shared_ptr<Inode>>& looked_at) {
  std::vector<TreePlace> places;
  const ByteCount mean = std::max<ByteCount>(1, listing_bytes_);
  const auto fitting = std::clamp<std::size_t>(limit * 3 / 2 / mean, 8, kNamesMax);
  const std::size_t fitting_kept = kept_bytes_max(limit) / mean;
  std::size_t kept = 0;
  std::size_t bytes = 0;
  while (!walk_.empty() && places.size() < kNamesMax && bytes < kNameBytesMax &&
         places.size() - kept < fitting && kept <= fitting_kept) {
    places.push_back(walk_.take());
    bytes += places.back().name.size() + kHandleBytes;
    auto directory = places.back().directory.lock();
    if (!directory) continue;
    if (kept_.has(*directory)) ++kept;
    looked_at.push_back(std::move(directory));
  }
  return places;
}

void TreeStream::give_back(Request& request, ByteCount bytes) {
  const std::lock_guard lock(mutex_);
  window_.end(bytes);
  request.reserved -= bytes;
}

// Unless it is known, or on its way, or somebody was there meanwhile.
void TreeStream::add(Request& request, TreePlace place) {
  const auto directory = place.directory.lock();
  const auto parent = place.parent.lock();
  if (!directory || (!parent && !place.name.empty())) return;
  if (!directory->on_server() || (parent && !parent->on_server())) return;
  {
    const std::lock_guard lock(directory->mutex);
    if (!directory->directory) return;
    Directory& known = *directory->directory;
    if (known.walks > 0 || known.streamed != 0 || known.visited_at > place.queued ||
        known.told_at >= place.queued)
      return;
    ++known.walks;
  }
  request.directories.push_back(directory);
  request.queued = std::min(request.queued, place.queued);
  const bool joins = parent && !request.starts.empty() && request.starts.back().parent == parent;
  if (!joins) request.starts.push_back({parent, {}});
  request.starts.back().places.push_back(std::move(place));
}

// What is here of all that the answer may tell. Until it is known how much that is, it has all of the window
// it may come to take.
void TreeStream::gather(const std::shared_ptr<Request>& request) {
  std::vector<std::string> handles;
  for (const auto& directory : request->directories)
    if (kept_.has(*directory)) handles.push_back(directory->handle());
  if (handles.empty()) return send(request);
  const ByteCount bytes_max = kept_bytes_max(request->limit);
  {
    const std::lock_guard lock(mutex_);
    window_.begin(bytes_max);
    request->reserved += bytes_max;
  }
  kept_.gather(std::move(handles), bytes_max, [this, request, bytes_max](KeptListings::Gathered kept) {
    give_back(*request, bytes_max - kept.bytes);
    if (kept.cut_short && request->limit > kRequestMin) {
      // More of it is here: what is beyond need not be told, but confirmed by the next request.
      give_back(*request, request->limit - kRequestMin);
      request->limit = kRequestMin;
    }
    request->kept = std::move(kept);
    send(request);
  });
}

void TreeStream::send(const std::shared_ptr<Request>& request) {
  request->started = core_.scheduler.now();
  rpc::CallRequest call;
  schema::WalkRequest& walk = *call.message.mutable_walk();
  for (const Start& from : request->starts) {
    schema::WalkRequest::Start& start = *walk.add_starts();
    start.set_handle(from.parent ? from.parent->handle() : from.places[0].directory.lock()->handle());
    if (from.parent)
      for (const TreePlace& place : from.places) start.add_names(place.name);
  }
  walk.set_limit_bytes(static_cast<std::uint32_t>(request->limit));
  walk.set_deep(true);
  walk.set_digests(kept_.enabled());
  for (const auto& [handle, kept] : request->kept.listings) walk.add_known(kept.digest);
  request->body = allocate_bytes(request->limit);
  call.reply_body = request->body;
  // The first one is what a program waits for.
  call.priority = request->limit <= kWindowFirst ? rpc::Priority::kInteractive : rpc::Priority::kBulk;
  core_.remote.transfer(
      std::move(call), schema::Reply::kWalk, [this, request](Result<rpc::CallReply> reply) mutable {
        core_.scheduler.post(
            [this, request, reply = std::move(reply)]() mutable { finish(request, std::move(reply)); });
      });
}

// ---------------------------------------------------------------- taking in

void TreeStream::finish(const std::shared_ptr<Request>& request, Result<rpc::CallReply> reply) {
  std::vector<Told> told;
  Result<schema::WalkListings> listings = std::unexpected(Error{});
  core_.foresight.note_step(core_.scheduler.now());  // the time on the way is not the program's pause
  if (reply) {
    request->lease = reply->message.lease();
    listings = unpack(*request, *reply);
    Result<void> taken = listings ? take_in(*request, *listings, told) : std::unexpected(listings.error());
    if (!taken) core_.last_error.set("listing ahead: " + taken.error().message());
    if (!told.empty()) put_in_front(not_reached(*request, told));
  }
  if (!reply && reply.error().code == ErrorCode::kUnsupported) unknown_ = true;
  for (const auto& directory : request->directories) names_.handle_walk_end(directory);
  give_back(*request, request->reserved);
  {
    const std::lock_guard lock(mutex_);
    --requests_;
    answered_ = true;
  }
  ask_more(request->asker);
  for (const Told& here : told)
    if (here.directory) kept_.keep(*here.directory, *here.listing);
}

Result<schema::WalkListings> TreeStream::unpack(const Request& request, const rpc::CallReply& reply) {
  const schema::WalkReply& walk = reply.message.walk();
  SharedBytes plain = request.body.first(reply.body_size);
  if (walk.length() > request.limit) return fail(ErrorCode::kMalformed, "a WALK reply larger than asked for");
  if (walk.compressed()) {
    TUSK_ASSIGN(plain, rpc::decompress(plain.bytes, walk.length()));
  }
  schema::WalkListings listings;
  if (plain.size() != walk.length() ||
      !listings.ParseFromArray(plain.bytes.data(), static_cast<int>(plain.size())))
    return fail(ErrorCode::kMalformed, "a WALK reply that is no listings");
  return listings;
}

client::Told TreeStream::answer_of(const Request& request, schema::Cover cover) {
  client::Told told(request.started);
  told.lease = request.lease;
  told.cover = cover;
  return told;
}

Result<void> TreeStream::take_in(Request& request, const schema::WalkListings& listings,
                                 std::vector<Told>& told) {
  for (const schema::WalkListing& listing : listings.listings()) {
    TUSK_ASSIGN(const std::shared_ptr<Inode> directory, directory_of(request, listing, told));
    TUSK_ASSIGN(const schema::WalkListing* entries, whole(request, listing, told));
    Told& here = told.emplace_back(directory, entries);
    here.entries.resize(static_cast<std::size_t>(entries->entries_size()));
    if (directory && !listing.unlisted()) {
      here.entries = names_.learn_ahead(directory, *entries, answer_of(request, listing.names()));
      note_streamed(directory, entries->ByteSizeLong(), request);
    }
    here.listed.resize(here.entries.size());
  }
  return {};
}

Result<const schema::WalkListing*> TreeStream::whole(Request& request, const schema::WalkListing& listing,
                                                     const std::vector<Told>& told) {
  if (!listing.unchanged()) return &listing;
  const std::string& handle =
      listing.parent() == 0
          ? listing.directory().handle()
          : told[listing.parent() - 1].listing->entries(static_cast<int>(listing.entry())).node().handle();
  const auto found = request.kept.listings.find(handle);
  if (found == request.kept.listings.end())
    return fail(ErrorCode::kMalformed, "a WALK listing that is as it was, but is not here");
  schema::WalkListing& kept = found->second.listing;
  const int covers = listing.entry_covers_size();
  if (covers != 1 && covers != kept.entries_size())
    return fail(ErrorCode::kMalformed, "a WALK listing that tells too many or too few covers");
  for (int i = 0; i < kept.entries_size(); ++i) {
    schema::DirEntry& entry = *kept.mutable_entries(i);
    if (entry.has_node())
      entry.mutable_node()->mutable_attr()->set_cover(listing.entry_covers(covers == 1 ? 0 : i));
  }
  return &kept;
}

// Null: another one has its name now.
Result<std::shared_ptr<Inode>> TreeStream::directory_of(Request& request, const schema::WalkListing& listing,
                                                        std::vector<Told>& told) {
  const auto malformed = [] {
    return fail(ErrorCode::kMalformed, "a WALK listing of a directory nobody knows");
  };
  if (listing.parent() != 0) {
    if (listing.parent() > told.size()) return malformed();
    Told& parent = told[listing.parent() - 1];
    if (listing.entry() >= parent.entries.size()) return malformed();
    parent.listed[listing.entry()] = true;
    const std::shared_ptr<Inode>& directory = parent.entries[listing.entry()];
    if (directory) {
      const std::lock_guard lock(directory->mutex);
      if (!directory->directory) return malformed();
    }
    return directory;
  }
  if (listing.start() >= request.starts.size()) return malformed();
  Start& start = request.starts[listing.start()];
  const bool by_name = start.parent != nullptr;
  const std::size_t index = by_name ? listing.name() - 1 : listing.name();
  if (index >= start.places.size()) return malformed();
  const auto expected = start.places[index].directory.lock();
  start.places[index].directory.reset();  // answered
  if (!listing.has_directory()) return nullptr;
  TUSK_ASSIGN(const std::shared_ptr<Inode> directory,
              facts_.learn(listing.directory(), answer_of(request, {})));
  if (directory != expected) return nullptr;
  if (by_name) names_.learn_name_ahead(*start.parent, start.places[index].name, directory, request.started);
  if (facts_.taken_back_since(*directory, request.started)) return directory;
  const std::lock_guard lock(directory->mutex);
  directory->attributes.foresee(core_.foresight, answer_of(request, listing.directory().attr().cover()));
  return directory;
}

void TreeStream::note_streamed(const std::shared_ptr<Inode>& directory, ByteCount cost,
                               const Request& request) {
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = window_.add(cost, request.ticket);
    if (number != 0) streamed_.emplace_hint(streamed_.end(), number, directory);
    listing_bytes_ = (7 * listing_bytes_ + cost) / 8;
  }
  bool used = false;
  {
    const std::lock_guard lock(directory->mutex);
    used = directory->directory->visited_at >= request.started;
    directory->directory->told_at = core_.scheduler.now();
    if (!used) directory->directory->streamed = number;
  }
  if (used) use(number);
}

// They have waited as long as what they were found in: one that has been told since is not asked for again,
// even if a server says that it lies within itself. In the order of the walk: the server goes depth first and
// stops somewhere, so what it left out is beside the way down to the last listing, the deepest first; then
// come those it did not begin with.
std::vector<TreePlace> TreeStream::not_reached(const Request& request, const std::vector<Told>& told) {
  std::vector<TreePlace> places;
  for (auto here = told.rbegin(); here != told.rend(); ++here)
    for (std::size_t i = 0; i < here->entries.size(); ++i) {
      const schema::DirEntry& entry = here->listing->entries(static_cast<int>(i));
      if (!here->entries[i] || here->listed[i] || !S_ISDIR(entry.node().attr().mode())) continue;
      places.push_back({here->directory, entry.name(), here->entries[i], request.queued});
    }
  for (const Start& start : request.starts)
    for (const TreePlace& place : start.places)
      if (!place.directory.expired()) places.push_back(place);
  return places;
}

}  // namespace tusk::client
