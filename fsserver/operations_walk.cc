// WALK: listings of many directories in one answer. READ_FILES: many small files in one answer. For clients
// that are far away and see a program go through a tree.
#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "fsserver/directory_reader.h"
#include "fsserver/listing_digest.h"
#include "fsserver/operations.h"
#include "proto/rpc/compression.h"

namespace tusk::server::ops {
namespace {

// Each level holds a descriptor. What lies deeper the client asks for itself.
constexpr std::size_t kWalkDepthMax = 64;

// Depth first through what the request names, until the answer is full. Listings that the client has kept are
// made like all others, but not sent if they come out the same.
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

  void list_all() {
    const auto& starts = call_.request().walk().starts();
    for (int start = 0; start < starts.size() && !full_; ++start) {
      const auto directory = call_.node(starts[start].handle());
      if (starts[start].names().empty()) list_start(start, 0, found_by_handle(starts[start].handle()));
      for (int name = 0; name < starts[start].names_size() && !full_; ++name)
        list_start(start, name + 1,
                   directory ? call_.nodes().lookup(*directory, starts[start].handle(),
                                                    starts[start].names(name), NodeTable::Keep::kNo)
                             : std::unexpected(directory.error()));
    }
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
    std::size_t next = 0;
  };

  Result<Found> found_by_handle(const std::string& handle) const {
    TUSK_ASSIGN(SharedFd fd, call_.node(handle));
    TUSK_ASSIGN(const Status status, status_of(*fd));
    return Found{std::move(fd), status, handle};
  }

  void list_start(int start, int name, const Result<Found>& found) {
    schema::WalkListing& listing = *listings_.add_listings();
    listing.set_start(static_cast<std::uint32_t>(start));
    listing.set_name(static_cast<std::uint32_t>(name));
    if (found && call_.exclusive_of_another(found->handle)) {
      listing.set_unlisted(true);
      return;
    }
    if (found) *listing.mutable_directory() = call_.node_of(*found);
    if (auto below = list(found); below && deep_) go_deeper(*found, std::move(*below));
  }

  // Entries of the listing that was added last; what lies below them. Nullopt when it has none: it is
  // unlisted, or gone again.
  std::optional<std::vector<Below>> list(const Result<Found>& found) {
    schema::WalkListing& listing = *listings_.mutable_listings()->rbegin();
    const std::size_t own_size =
        listing.ByteSizeLong() + kFieldHeadBytes + kLateFieldsBytes + (digests_ ? kDigestFieldBytes : 0);
    if (own_size > left_ && listings_.listings_size() > 1) {
      listings_.mutable_listings()->RemoveLast();
      full_ = true;
      return std::nullopt;
    }
    const std::size_t own_room = left_ > own_size ? left_ - own_size : 0;
    // More than can be sent if it may not have to be: the client keeps none that is larger than an answer.
    const std::size_t room = std::max(own_room, std::min<std::size_t>(unsent_left_, kWalkBytesMax));
    std::size_t left = room;
    const Result<bool> added = found ? list_whole(call_, *found, listing, left) : false;
    std::size_t size = own_size + room - left;
    bool whole = added && *added;
    std::vector<Below> below;
    if (whole) {
      if (deep_) below = directories_in(listing);
      if (digests_ && tell_digest(*found, listing)) size = listing.ByteSizeLong() + kFieldHeadBytes;
      whole = size <= left_;
    }
    if (!whole && found && added && listings_.listings_size() > 1) {
      // It may fit in another answer, where it comes first.
      listings_.mutable_listings()->RemoveLast();
      full_ = true;
      return std::nullopt;
    }
    if (!whole) {
      listing.clear_entries();
      listing.clear_digest();
      listing.clear_unchanged();
      listing.clear_entry_covers();
    }
    listing.set_unlisted(!whole);
    left_ -= std::min(left_, whole ? size : own_size);
    full_ = full_ || left_ == 0 || (!known_.empty() && unsent_left_ == 0) || call_.incoming()->cancelled();
    return whole ? std::optional(std::move(below)) : std::nullopt;
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

  void go_deeper(const Found& top, std::vector<Below> below) {
    std::vector<Level> levels;
    levels.push_back({top.fd, top.handle, listings_.listings_size() - 1, std::move(below)});
    while (!levels.empty() && !full_) {
      Level& level = levels.back();
      if (level.next == level.below.size()) {
        levels.pop_back();
        continue;
      }
      const Below& next = level.below[level.next++];
      const auto found = call_.nodes().lookup(level.directory, level.handle, next.name, NodeTable::Keep::kNo);
      // Another one may have its name since it was told.
      if (!found || found->handle != next.handle) continue;
      schema::WalkListing& listing = *listings_.add_listings();
      listing.set_parent(static_cast<std::uint32_t>(level.listing) + 1);
      listing.set_entry(static_cast<std::uint32_t>(next.entry));
      if (auto deeper = list(*found); deeper && levels.size() < kWalkDepthMax)
        levels.push_back({found->fd, found->handle, listings_.listings_size() - 1, std::move(*deeper)});
    }
  }

  static constexpr std::size_t kFieldHeadBytes = 4;
  static constexpr std::size_t kLateFieldsBytes = 4;  // `names` and `unlisted`
  static constexpr std::size_t kDigestFieldBytes = 9;

  Call& call_;
  const bool deep_;
  const bool digests_;
  std::vector<std::uint64_t> known_;  // digests of what the client has, sorted
  std::size_t left_;                  // bytes
  std::size_t unsent_left_;           // of listings that are made and not sent
  bool full_ = false;
  schema::WalkListings listings_;
};

template <class Starts>
Result<void> check_count(const Starts& starts) {
  int names = starts.size();
  for (const auto& start : starts) names += start.names_size();
  if (names > kNamesAtOnceMax) return fail(from_errno(EINVAL), "too many names at once");
  return {};
}

// Small files one after the other into one piece of memory.
class FilesReader {
 public:
  FilesReader(Call& call, MutableSharedBytes memory) : call_(call), memory_(std::move(memory)) {}

  void read_all() {
    const auto& folders = call_.request().read_files().folders();
    for (int folder = 0; folder < folders.size(); ++folder) {
      const auto directory = call_.node(folders[folder].handle());
      if (!directory) continue;
      for (int name = 0; name < folders[folder].names_size(); ++name) {
        if (call_.incoming()->cancelled()) return;
        const auto found = call_.nodes().lookup(*directory, folders[folder].handle(),
                                                folders[folder].names(name), NodeTable::Keep::kNo);
        if (!found) continue;
        schema::FileBytes file;
        *file.mutable_node() = call_.node_of(*found);
        const auto& known = folders[folder].known_changes();
        file.set_unchanged(name < known.size() && known[name] != 0 &&
                           known[name] == file.node().attr().change());
        if (!add(*found, file.unchanged())) continue;
        file.set_folder(static_cast<std::uint32_t>(folder));
        file.set_name(static_cast<std::uint32_t>(name));
        if (!file.unchanged()) file.set_length(static_cast<std::uint32_t>(found->status.stx_size));
        *call_.reply.mutable_read_files()->add_files() = std::move(file);
      }
    }
  }

  [[nodiscard]] SharedBytes bytes() const { return memory_.first(used_); }

 private:
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
};

}  // namespace

Result<void> walk(Call& call) {
  const auto& request = call.request().walk();
  TUSK_TRY(check_count(request.starts()));
  if (request.known_size() > kListingsKnownMax) return fail(from_errno(EINVAL), "too many known listings");
  const ByteCount capacity = call.incoming()->reply_body_capacity();
  SubtreeLister lister(call, std::min(reply_body_bytes(call.request()), capacity));
  lister.list_all();

  SharedBytes plain = [&] {
    const MutableSharedBytes memory = allocate_bytes(lister.listings().ByteSizeLong());
    lister.listings().SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(memory.bytes.data()));
    return memory.first(memory.size());
  }();
  schema::WalkReply& reply = *call.reply.mutable_walk();
  reply.set_length(static_cast<std::uint32_t>(plain.size()));
  auto packed = rpc::compress_if_it_helps(plain.bytes);
  reply.set_compressed(packed.has_value());
  call.body = packed ? std::move(*packed) : std::move(plain);
  if (call.body.size() > capacity) return fail(from_errno(EINVAL), "no room for the answer");
  return {};
}

Result<void> read_files(Call& call) {
  const auto& request = call.request().read_files();
  TUSK_TRY(check_count(request.folders()));
  const ByteCount capacity = call.incoming()->reply_body_capacity();
  FilesReader reader(call, allocate_bytes(std::min(reply_body_bytes(call.request()), capacity)));
  reader.read_all();

  schema::ReadFilesReply& reply = *call.reply.mutable_read_files();
  call.body = reader.bytes();
  reply.set_length(static_cast<std::uint32_t>(call.body.size()));
  if (!request.compress()) return {};
  if (auto packed = rpc::compress_if_it_helps(call.body.bytes)) {
    reply.set_compressed(true);
    call.body = std::move(*packed);
  }
  return {};
}

}  // namespace tusk::server::ops
