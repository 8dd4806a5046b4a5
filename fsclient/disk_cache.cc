#include "fsclient/disk_cache.h"

#include <cstring>

namespace tusk::client {
namespace {

// Between two records of a segment's use on the disk.
constexpr Duration kNoteUseEvery = std::chrono::minutes(1);

}  // namespace

// One read() on its way.
struct DiskCache::Reading {
  std::string handle;
  DiskKey key;  // of this handle
  DiskIndex::Place place;
  SegmentPointer segment;
  std::uint32_t begin = 0;
  MutableSharedBytes target;
  PathOfFile path_of;
  Done done;
};

// ---------------------------------------------------------------- asking

std::optional<DiskCache::Found> DiskCache::find(std::string_view handle, std::uint64_t block) const {
  const DiskBlockId id = disk_block_id(handle, block);
  const std::lock_guard lock(mutex_);
  const DiskIndex::Place* place = index_.find(id);
  if (place == nullptr) return std::nullopt;
  return Found{place->change, place->length};
}

void DiskCache::read(const DiskKey& key, std::uint32_t begin, MutableSharedBytes target, PathOfFile path_of,
                     Done done) {
  auto reading = std::make_shared<Reading>();
  {
    const std::lock_guard lock(mutex_);
    const DiskIndex::Place* place = index_.find(disk_block_id(key.handle, key.block));
    if (place != nullptr && place->change == key.change && begin <= place->length &&
        target.size() <= place->length - begin) {
      reading->place = *place;
      reading->segment = segments_.at(place->segment);
      index_.note_use(place->segment);
    }
  }
  if (!reading->segment) return done(fail(from_errno(ENOENT), "not in the disk cache"));
  reading->handle = key.handle;
  reading->key = {reading->handle, key.change, key.block};
  reading->begin = begin;
  reading->target = std::move(target);
  reading->path_of = std::move(path_of);
  reading->done = std::move(done);
  disk_.post([this, reading] { finish_read(*reading); });
}

void DiskCache::finish_read(Reading& reading) {
  const bool whole = reading.target.size() == reading.place.length;
  Result<void> outcome;
  if (whole) {
    outcome = reading.segment->read(reading.key, reading.place.offset, reading.target.bytes);
  } else {
    // The checksum is that of the whole block.
    const MutableSharedBytes block = allocate_bytes(reading.place.length);
    outcome = reading.segment->read(reading.key, reading.place.offset, block.bytes);
    if (outcome && reading.target.size() > 0)
      std::memcpy(reading.target.bytes.data(), block.bytes.data() + reading.begin, reading.target.size());
  }
  bool note_use = false;
  bool pinned = true;
  {
    const std::lock_guard lock(mutex_);
    if (outcome) {
      ++counted_.hits;
      counted_.hit_bytes += reading.target.size();
      const SegmentId segment = reading.place.segment;
      if (index_.has_segment(segment)) {
        const TimePoint now = disk_.now();
        const auto [noted, first] = noted_.try_emplace(segment, now);
        note_use = first || noted->second + kNoteUseEvery < now;
        if (note_use) noted->second = now;
        pinned = pins_.empty() || index_.pinned(reading.place);
      }
    } else {
      ++counted_.damaged;
      index_.drop(disk_block_id(reading.key.handle, reading.key.block), reading.place);
    }
  }
  if (note_use) reading.segment->note_use();
  if (outcome && whole && !pinned) keep_if_pinned(reading);
  reading.done(std::move(outcome));
}

// A pinned file's block among others: it gets a place with its like.
void DiskCache::keep_if_pinned(const Reading& reading) {
  if (pin_of(reading.path_of) == 0) return;
  store(
      reading.key, [&] { return copy_bytes(reading.target.bytes); }, reading.path_of);
}

// ---------------------------------------------------------------- pins

Result<void> DiskCache::pin(const std::string& path) { return change_pins(&DiskPins::pin, path); }
Result<void> DiskCache::unpin(const std::string& path) { return change_pins(&DiskPins::unpin, path); }

// Segments follow; their names say so from when the disk has time for it.
Result<void> DiskCache::change_pins(PinChange change, const std::string& path) {
  const std::lock_guard changing(pins_mutex_);
  std::optional<DiskPins> pins;
  {
    const std::lock_guard lock(mutex_);
    pins = pins_;
  }
  TUSK_ASSIGN(const DiskPins::Moved moved, ((*pins).*change)(path));
  const std::lock_guard lock(mutex_);
  pins_ = std::move(*pins);
  not_pinned_.clear();
  problem_.clear();
  for (const PinId from : moved.from) {
    for (const SegmentId id : index_.segments_of(from))
      disk_.post([this, segment = segments_.at(id), id, to = moved.to] {
        (void)segment->rename(path_of_segment(id, to));
      });
    index_.pin_segments(from, moved.to);
    heads_.erase(from);
  }
  return {};
}

// ---------------------------------------------------------------- the rest

std::vector<DiskCache::SegmentId> DiskCache::heads_locked() const {
  std::vector<SegmentId> ids = to_load_;
  for (const auto& [pin, id] : heads_) ids.push_back(id);
  return ids;
}

DiskCacheStats DiskCache::stats() const {
  const std::lock_guard lock(mutex_);
  DiskCacheStats stats = counted_;
  stats.folder = options_.folder;
  stats.used_bytes = index_.file_bytes();
  stats.max_bytes = options_.bytes_max;
  stats.pinned_bytes = index_.pinned_bytes();
  stats.blocks = index_.blocks();
  stats.pending_bytes = pending_;
  stats.loading = loading_;
  stats.problem = problem_;
  stats.pins = pins_.paths();
  return stats;
}

}  // namespace tusk::client
