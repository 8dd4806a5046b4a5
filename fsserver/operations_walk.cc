// WALK: listings of many directories in one answer. READ_FILES: many small files in one answer. For clients
// that are far away and see a program go through a tree.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "fsserver/directory_reader.h"
#include "fsserver/listing_digest.h"
#include "fsserver/operations.h"

namespace tusk::server::ops {
namespace {

// Each level holds a descriptor. What lies deeper the client asks for itself.
constexpr std::size_t kWalkDepthMax = 64;

// Depth first through what the request names, until the answer is full. Listings that the client has kept are
// made like all others, but not sent if they come out the same. It goes on in a later turn when one is over.
class SubtreeLister {
 public:
  SubtreeLister(Call& call, std::size_t limit)
      : call_(call),
        deep_(call.request().walk().deep()),
        digests_(call.request().walk().digests()),
        known_(call.request().walk().known().begin(), call.request().walk().known().end()),
        left_(limit),
        unsent_left_(known_.empty() ? 0 : kWalkUnsentBytesMax) {
    std::ranges::sort(known_);
  }

  // False: the turn is over.
  [[nodiscard]] bool go_on() {
    full_ = full_ || call_.incoming()->cancelled();
    while (!full_) {
      if (this_turn().over() && may_pause()) return false;
      if (making_)
        go_on_listing();
      else if (!levels_.empty())
        begin_below();
      else if (!begin_start())
        break;
    }
    return true;
  }

  [[nodiscard]] const schema::WalkListings& listings() const { return listings_; }

 private:
  using Found = NodeTable::Found;
  // A directory among the entries of a listing, which need not be in the answer.
  struct Below {
    int entry;
    std::string name;
    std::string handle;
  };
  struct Level {
    SharedFd directory;
    std::string handle;
    int listing;
    std::vector<Below> below;
    Quota::Place place;  // of its descriptor
    std::size_t next = 0;
  };
  // The listing that was added last, while its entries are added.
  struct Making {
    WholeLister lister;
    std::size_t own_size;
    std::size_t room;
  };

  // What waits holds descriptors, and there may be many that wait. Who may have no more gets what there is.
  bool may_pause() {
    if (!paused_) paused_ = call_.session().descriptors()->take(kDescriptorsOfPaused);
    if (paused_) return true;
    if (making_) end_listing(&making_->lister.directory(), making_->own_size, false, true);
    full_ = true;
    return false;
  }

  Result<Found> found_by_handle(const std::string& handle) const {
    TUSK_ASSIGN(SharedFd fd, call_.node(handle));
    TUSK_ASSIGN(const Status status, status_of(*fd));
    return Found{std::move(fd), status, handle};
  }

  // False: that was all.
  bool begin_start() {
    const auto& starts = call_.request().walk().starts();
    if (start_ == starts.size()) return false;
    this_turn().spend(kEntryCost);
    const auto& start = starts[start_];
    if (start.names().empty()) {
      list_start(start_, 0, found_by_handle(start.handle()));
    } else {
      if (name_ == 0) directory_ = call_.node(start.handle());
      list_start(start_, name_ + 1,
                 directory_ ? call_.nodes().lookup(*directory_, start.handle(), start.names(name_),
                                                   NodeTable::Keep::kNo)
                            : std::unexpected(directory_.error()));
    }
    if (++name_ < start.names_size()) return true;
    ++start_;
    name_ = 0;
    return true;
  }

  void list_start(int start, int name, Result<Found> found) {
    schema::WalkListing& listing = *listings_.add_listings();
    listing.set_start(static_cast<std::uint32_t>(start));
    listing.set_name(static_cast<std::uint32_t>(name));
    if (found && call_.exclusive_of_another(found->handle)) {
      listing.set_unlisted(true);
      return;
    }
    if (found) *listing.mutable_directory() = call_.node_of(*found);
    begin_listing(std::move(found));
  }

  void begin_below() {
    Level& level = levels_.back();
    if (level.next == level.below.size()) return levels_.pop_back();
    const Below& next = level.below[level.next++];
    this_turn().spend(kEntryCost);
    auto found = call_.nodes().lookup(level.directory, level.handle, next.name, NodeTable::Keep::kNo);
    // Another one may have its name since it was told.
    if (!found || found->handle != next.handle) return;
    schema::WalkListing& listing = *listings_.add_listings();
    listing.set_parent(static_cast<std::uint32_t>(level.listing) + 1);
    listing.set_entry(static_cast<std::uint32_t>(next.entry));
    begin_listing(std::move(found));
  }

  // Entries of the listing that was added last.
  void begin_listing(Result<Found> found) {
    schema::WalkListing& listing = *listings_.mutable_listings()->rbegin();
    const std::size_t own_size =
        listing.ByteSizeLong() + kFieldHeadBytes + kLateFieldsBytes + (digests_ ? kDigestFieldBytes : 0);
    if (own_size > left_ && listings_.listings_size() > 1) {
      listings_.mutable_listings()->RemoveLast();
      full_ = true;
      return;
    }
    const std::size_t own_room = left_ > own_size ? left_ - own_size : 0;
    // More than can be sent if it may not have to be: the client keeps none that is larger than an answer.
    const std::size_t room = std::max(own_room, std::min<std::size_t>(unsent_left_, kWalkBytesMax));
    auto lister = found ? WholeLister::begin(call_, std::move(*found), listing, room)
                        : Result<WholeLister>(std::unexpected(found.error()));
    if (!lister) return end_listing(nullptr, own_size, false, false);
    making_.emplace(Making{std::move(*lister), own_size, room});
  }

  void go_on_listing() {
    using enum WholeLister::Progress;
    const auto progress = making_->lister.go_on(call_);
    if (progress == kTurnOver) return;
    const Making made = std::move(*making_);
    making_.reset();
    examined_ += made.lister.examined();
    end_listing(&made.lister.directory(), made.own_size + made.room - made.lister.left(), progress == kWhole,
                progress.has_value());
  }

  // `whole`: all entries are in it. `listed`: it could be read. Null: there is no such directory.
  void end_listing(const Found* found, std::size_t size, bool whole, bool listed) {
    schema::WalkListing& listing = *listings_.mutable_listings()->rbegin();
    std::vector<Below> below;
    if (whole) {
      if (deep_) below = directories_in(listing);
      if (digests_ && tell_digest(*found, listing)) size = listing.ByteSizeLong() + kFieldHeadBytes;
      whole = size <= left_;
    }
    if (!whole && listed && listings_.listings_size() > 1) {
      // It may fit in another answer, where it comes first.
      listings_.mutable_listings()->RemoveLast();
      full_ = true;
      return;
    }
    if (!whole) {
      listing.clear_entries();
      listing.clear_digest();
      listing.clear_unchanged();
      listing.clear_entry_covers();
      size = listing.ByteSizeLong() + kFieldHeadBytes + kLateFieldsBytes;
    }
    listing.set_unlisted(!whole);
    left_ -= std::min(left_, size);
    full_ = full_ || left_ == 0 || (!known_.empty() && unsent_left_ == 0) || examined_ >= kWalkExaminedMax ||
            call_.incoming()->cancelled();
    if (whole && deep_ && levels_.size() < kWalkDepthMax) go_below(*found, std::move(below));
  }

  void go_below(const Found& found, std::vector<Below> below) {
    auto place = call_.session().descriptors()->take();
    if (place)
      levels_.push_back(
          {found.fd, found.handle, listings_.listings_size() - 1, std::move(below), std::move(*place)});
  }

  // True: the client has it, so there are no entries any more.
  bool tell_digest(const Found& found, schema::WalkListing& listing) {
    const std::uint64_t digest = listing_digest(found.handle, listing.entries());
    if (!std::ranges::binary_search(known_, digest)) {
      listing.set_digest(digest);
      return false;
    }
    unsent_left_ -= std::min<std::size_t>(unsent_left_, listing.ByteSizeLong());
    listing.set_unchanged(true);
    bool same = true;
    for (const schema::DirEntry& entry : listing.entries()) {
      listing.add_entry_covers(entry.node().attr().cover());
      same = same && listing.entry_covers(0) == entry.node().attr().cover();
    }
    if (same) listing.mutable_entry_covers()->Truncate(std::min(1, listing.entry_covers_size()));
    listing.clear_entries();
    return true;
  }

  static std::vector<Below> directories_in(const schema::WalkListing& listing) {
    std::vector<Below> below;
    for (int i = 0; i < listing.entries_size(); ++i)
      if (const schema::DirEntry& entry = listing.entries(i);
          entry.has_node() && S_ISDIR(entry.node().attr().mode()))
        below.push_back({i, entry.name(), entry.node().handle()});
    return below;
  }

  static constexpr std::size_t kFieldHeadBytes = 4;
  static constexpr std::size_t kLateFieldsBytes = 4;  // `names` and `unlisted`
  static constexpr std::size_t kDigestFieldBytes = 9;
  static constexpr std::size_t kDescriptorsOfPaused = 3;

  Call& call_;
  const bool deep_;
  const bool digests_;
  std::vector<std::uint64_t> known_;  // digests of what the client has, sorted
  std::size_t left_;                  // bytes
  std::size_t unsent_left_;           // of listings that are made and not sent
  bool full_ = false;
  std::size_t examined_ = 0;
  schema::WalkListings listings_;
  // Where it is.
  int start_ = 0;
  int name_ = 0;
  Result<SharedFd> directory_ = SharedFd();  // that the names are in
  std::optional<Making> making_;
  std::vector<Level> levels_;
  std::optional<Quota::Place> paused_;
};

template <class Starts>
Result<void> check_count(const Starts& starts) {
  int names = starts.size();
  for (const auto& start : starts) names += start.names_size();
  if (names > kNamesAtOnceMax) return fail(from_errno(EINVAL), "too many names at once");
  return {};
}

// Small files one after the other into one piece of memory. It goes on in a later turn when one is over.
class FilesReader {
 public:
  FilesReader(Call& call, MutableSharedBytes memory) : call_(call), memory_(std::move(memory)) {}

  // False: the turn is over.
  [[nodiscard]] bool go_on() {
    const auto& folders = call_.request().read_files().folders();
    for (; folder_ < folders.size(); ++folder_, name_ = 0) {
      const auto& folder = folders[folder_];
      const auto directory = call_.node(folder.handle());
      this_turn().spend(kEntryCost);
      for (; directory && name_ < folder.names_size(); ++name_) {
        if (call_.incoming()->cancelled()) return true;
        if (this_turn().over()) return false;
        read(folder, *directory);
      }
    }
    return true;
  }

  [[nodiscard]] SharedBytes bytes() const { return memory_.first(used_); }

 private:
  using Folder = schema::ReadFilesRequest::Folder;

  void read(const Folder& folder, const SharedFd& directory) {
    this_turn().spend(kEntryCost);
    const auto found =
        call_.nodes().lookup(directory, folder.handle(), folder.names(name_), NodeTable::Keep::kNo);
    if (!found) return;
    schema::FileBytes file;
    *file.mutable_node() = call_.node_of(*found);
    const auto& known = folder.known_changes();
    file.set_unchanged(name_ < known.size() && known[name_] != 0 &&
                       known[name_] == file.node().attr().change());
    if (!add(*found, file.unchanged())) return;
    file.set_folder(static_cast<std::uint32_t>(folder_));
    file.set_name(static_cast<std::uint32_t>(name_));
    if (!file.unchanged()) file.set_length(static_cast<std::uint32_t>(found->status.stx_size));
    *call_.reply.mutable_read_files()->add_files() = std::move(file);
  }

  // Opened with the kernel's permission check, as for OPEN.
  bool add(const NodeTable::Found& found, bool unchanged) {
    const std::uint64_t size = found.status.stx_size;
    const bool fits = size <= call_.request().read_files().file_bytes_max() && size <= memory_.size() - used_;
    if (!S_ISREG(found.status.stx_mode) || !fits) return false;
    const auto fd = reopen(*found.fd, O_RDONLY);
    if (!fd) return false;
    if (unchanged) return true;
    const auto read = read_fully(*fd, 0, memory_.bytes.subspan(used_, size));
    if (!read || *read != size) return false;  // it is being changed
    used_ += size;
    return true;
  }

  Call& call_;
  const MutableSharedBytes memory_;
  std::size_t used_ = 0;
  int folder_ = 0;
  int name_ = 0;
};

Result<void> answer_walk(Call& call, const std::shared_ptr<SubtreeLister>& lister) {
  if (!lister->go_on()) {
    call.rest = [&call, lister] { return answer_walk(call, lister); };
    return {};
  }
  SharedBytes plain = [&] {
    const MutableSharedBytes memory = allocate_bytes(lister->listings().ByteSizeLong());
    lister->listings().SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(memory.bytes.data()));
    return memory.first(memory.size());
  }();
  schema::WalkReply& reply = *call.reply.mutable_walk();
  reply.set_length(static_cast<std::uint32_t>(plain.size()));
  auto packed = compress(plain.bytes);
  reply.set_compressed(packed.has_value());
  call.body = packed ? std::move(*packed) : std::move(plain);
  if (call.body.size() > call.incoming()->reply_body_capacity())
    return fail(from_errno(EINVAL), "no room for the answer");
  return {};
}

Result<void> answer_read_files(Call& call, const std::shared_ptr<FilesReader>& reader) {
  if (!reader->go_on()) {
    call.rest = [&call, reader] { return answer_read_files(call, reader); };
    return {};
  }
  schema::ReadFilesReply& reply = *call.reply.mutable_read_files();
  call.body = reader->bytes();
  reply.set_length(static_cast<std::uint32_t>(call.body.size()));
  if (!call.request().read_files().compress()) return {};
  if (auto packed = compress(call.body.bytes)) {
    reply.set_compressed(true);
    call.body = std::move(*packed);
  }
  return {};
}

}  // namespace

Result<void> walk(Call& call) {
  const auto& request = call.request().walk();
  TUSK_TRY(check_count(request.starts()));
  if (request.known_size() > kListingsKnownMax) return fail(from_errno(EINVAL), "too many known listings");
  const ByteCount room = std::min(reply_body_bytes(call.request()), call.incoming()->reply_body_capacity());
  return answer_walk(call, std::make_shared<SubtreeLister>(call, room));
}

Result<void> read_files(Call& call) {
  TUSK_TRY(check_count(call.request().read_files().folders()));
  const ByteCount room = std::min(reply_body_bytes(call.request()), call.incoming()->reply_body_capacity());
  return answer_read_files(call, std::make_shared<FilesReader>(call, allocate_bytes(room)));
}

}  // namespace tusk::server::ops
