#include "fsclient/disk_cache.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace tusk::client {
namespace {

namespace fs = std::filesystem;

// A segment is what goes at once.
constexpr ByteCount kSegmentsPerCache = 64;
constexpr ByteCount kSegmentMin = 1024 * 1024;
constexpr ByteCount kSegmentMax = 1024 * 1024 * 1024;
constexpr std::string_view kSegmentSuffix = ".blocks";
// Between two records of a segment's use on the disk.
constexpr Duration kNoteUseEvery = std::chrono::minutes(1);
// Blocks that are written before somebody else on the disk's threads has a turn.
constexpr int kWritesPerTurn = 8;

struct SegmentName {
  std::uint64_t id = 0;
  std::uint64_t pin = 0;
};

// "ID-PIN.blocks", hexadecimal.
std::optional<SegmentName> parse_segment_name(std::string_view name) {
  if (!name.ends_with(kSegmentSuffix)) return std::nullopt;
  name.remove_suffix(kSegmentSuffix.size());
  const char* const end = name.data() + name.size();
  SegmentName parsed;
  const auto id = std::from_chars(name.data(), end, parsed.id, 16);
  if (id.ec != std::errc() || id.ptr == end || *id.ptr != '-' || parsed.id == 0) return std::nullopt;
  const auto pin = std::from_chars(id.ptr + 1, end, parsed.pin, 16);
  if (pin.ec != std::errc() || pin.ptr != end) return std::nullopt;
  return parsed;
}

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

DiskCache::DiskCache(Options options, Scheduler& disk)
    : options_(std::move(options)),
      segment_bytes_(std::clamp(options_.bytes_max / kSegmentsPerCache, kSegmentMin, kSegmentMax)),
      disk_(disk),
      pins_(DiskPins::load(options_.folder / "pins")) {
  list_segments();
  disk_.post([this] { load_next(); });
}

// ---------------------------------------------------------------- what is there from before

void DiskCache::list_segments() {
  struct File {
    timespec used;
    SegmentName name;
    ByteCount bytes;
  };
  std::vector<File> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(options_.folder, ignored)) {
    const auto name = parse_segment_name(entry.path().filename().native());
    struct stat st {};
    if (!name || ::lstat(entry.path().c_str(), &st) != 0 || !S_ISREG(st.st_mode)) continue;
    files.push_back({st.st_mtim, *name, static_cast<ByteCount>(st.st_size)});
  }
  std::ranges::sort(files, [](const File& a, const File& b) {
    return std::tuple(a.used.tv_sec, a.used.tv_nsec, a.name.id) <
           std::tuple(b.used.tv_sec, b.used.tv_nsec, b.name.id);
  });
  for (const File& file : files) {
    if (index_.has_segment(file.name.id)) continue;
    Result<std::unique_ptr<DiskSegment>> segment =
        DiskSegment::open(path_of_segment(file.name.id, file.name.pin));
    next_segment_ = std::max(next_segment_, file.name.id + 1);
    if (!segment) continue;
    segments_[file.name.id] = std::move(*segment);
    index_.add_segment(file.name.id, pins_.has(file.name.pin) ? file.name.pin : 0, file.bytes);
  }
  for (const auto& [id, segment] : segments_) to_load_.push_back(id);
}

// One segment at a time, the newest first, so that reads have their turn in between.
void DiskCache::load_next() {
  SegmentId id = 0;
  SegmentPointer segment;
  {
    const std::lock_guard lock(mutex_);
    if (!to_load_.empty()) {
      id = to_load_.back();
      to_load_.pop_back();
      segment = segments_.at(id);
    }
  }
  if (!segment) return finish_loading();
  std::vector<std::pair<DiskBlockId, DiskIndex::Place>> found;
  const Result<void> loaded = segment->load([&](const DiskHead& head, DiskSegment::Offset offset) {
    found.push_back({disk_block_id(head.handle, head.block), {id, offset, head.length, head.change}});
  });
  {
    const std::lock_guard lock(mutex_);
    if (!loaded || found.empty()) {
      index_.remove_segment(id);
      segments_.erase(id);
    } else {
      index_.resize_segment(id, segment->bytes());
      for (const auto& [block, place] : found) {
        const DiskIndex::Place* known = index_.find(block);
        if (known == nullptr || known->segment <= id) index_.put(block, place);
      }
    }
  }
  if (!loaded || found.empty()) segment->remove();
  disk_.post([this] { load_next(); });
}

void DiskCache::finish_loading() {
  (void)make_room(0);
  const std::lock_guard lock(mutex_);
  // Writing goes on where it ended; of several that were left by pins that are gone, at the last.
  for (const auto& [id, segment] : segments_) {
    if (segment->sealed() || segment->bytes() >= segment_bytes_) continue;
    heads_[index_.pin_of_segment(id)] = id;
  }
  loading_ = false;
  begin_writing_locked();
}

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

// ---------------------------------------------------------------- storing

void DiskCache::store(const DiskKey& key, const std::function<SharedBytes()>& lend, PathOfFile path_of) {
  if (key.change == 0 || key.handle.size() > kDiskHandleMax) return;
  const DiskBlockId id = disk_block_id(key.handle, key.block);
  const std::lock_guard lock(mutex_);
  const DiskIndex::Place* place = index_.find(id);
  const bool there = place != nullptr && place->change == key.change;
  if (there && (pins_.empty() || index_.pinned(*place))) return;
  if (queued_.contains(id)) return;  // of another change even: rare, and only not stored
  SharedBytes bytes = lend();
  if (bytes.empty() || bytes.size() > kDiskLengthMax) return;
  if (pending_ + bytes.size() > kPendingMax || disk_.now() < paused_until_) {
    counted_.skipped_bytes += bytes.size();
    return;
  }
  queued_.insert(id);
  pending_ += bytes.size();
  queue_.push_back(
      {id, std::string(key.handle), key.change, key.block, std::move(bytes), std::move(path_of)});
  begin_writing_locked();
}

void DiskCache::begin_writing_locked() {
  if (queue_.empty() && !writing_) written_.notify_all();
  if (writing_ || loading_ || queue_.empty()) return;
  writing_ = true;
  disk_.post([this] { write_some(); });
}

void DiskCache::write_some() {
  for (int turn = 0; turn < kWritesPerTurn; ++turn) {
    Job job;
    {
      const std::lock_guard lock(mutex_);
      if (queue_.empty()) break;
      job = std::move(queue_.front());
      queue_.pop_front();
    }
    write(job);
    const std::lock_guard lock(mutex_);
    pending_ -= job.bytes.size();
    queued_.erase(job.id);
  }
  const std::lock_guard lock(mutex_);
  writing_ = false;
  begin_writing_locked();
}

DiskCache::PinId DiskCache::pin_of(const PathOfFile& path_of) const {
  {
    const std::lock_guard lock(mutex_);
    if (pins_.empty()) return 0;
  }
  const std::optional<std::string> path = path_of ? path_of() : std::nullopt;
  const std::lock_guard lock(mutex_);
  return path ? pins_.pin_of(*path) : 0;
}

void DiskCache::write(const Job& job) {
  PinId pin = pin_of(job.path_of);
  {
    const std::lock_guard lock(mutex_);
    const DiskIndex::Place* place = index_.find(job.id);
    if (place != nullptr && place->change == job.change && (pin == 0 || index_.pinned(*place))) return;
    if (disk_.now() < paused_until_) {
      counted_.skipped_bytes += job.bytes.size();
      return;
    }
  }
  const DiskHead head{.handle = job.handle,
                      .change = job.change,
                      .block = job.block,
                      .length = static_cast<std::uint32_t>(job.bytes.size()),
                      .checksum = disk_checksum(job.bytes.bytes)};
  if (!make_room(head.record_bytes() + head.head_bytes() + DiskSegment::kTrailerBytes)) {
    const std::lock_guard lock(mutex_);
    counted_.skipped_bytes += job.bytes.size();
    return;
  }
  const Result<SegmentId> segment_id = head_for(pin);
  if (!segment_id) return handle_write_failure(job, segment_id.error());
  SegmentPointer segment;
  {
    const std::lock_guard lock(mutex_);
    segment = segments_.at(*segment_id);
  }
  const Result<DiskSegment::Offset> offset = segment->append(head, job.bytes.bytes);
  if (!offset) return handle_write_failure(job, offset.error());
  const bool full = segment->bytes() >= segment_bytes_;
  if (full) (void)segment->seal();  // without its table it is read in full at the next start
  const std::lock_guard lock(mutex_);
  index_.resize_segment(*segment_id, segment->bytes());
  index_.put(job.id, {*segment_id, *offset, head.length, job.change});
  counted_.stored_bytes += job.bytes.size();
  problem_.clear();
  if (full) std::erase_if(heads_, [&](const auto& entry) { return entry.second == *segment_id; });
}

// Only the one who writes calls it, so what is made stays until it is used.
bool DiskCache::make_room(ByteCount bytes) {
  for (;;) {
    SegmentPointer victim;
    {
      const std::lock_guard lock(mutex_);
      const bool enough =
          index_.file_bytes() + bytes <= options_.bytes_max && index_.blocks() < DiskIndex::kBlocksMax;
      if (enough) return true;
      const std::optional<SegmentId> coldest = index_.coldest(heads_locked());
      if (!coldest) break;
      victim = std::move(segments_.extract(*coldest).mapped());
      counted_.evicted_bytes += victim->bytes();
      index_.remove_segment(*coldest);
      noted_.erase(*coldest);
    }
    victim->remove();
  }
  const std::lock_guard lock(mutex_);
  set_problem_locked("pinned files take all of cache-size: nothing more is stored");
  return false;
}

Result<DiskCache::SegmentId> DiskCache::head_for(PinId pin) {
  SegmentId id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (const auto head = heads_.find(pin); head != heads_.end()) return head->second;
    id = next_segment_++;
  }
  TUSK_ASSIGN(SegmentPointer segment, DiskSegment::create(path_of_segment(id, pin)));
  const std::lock_guard lock(mutex_);
  if (pin != 0 && !pins_.has(pin)) pin = 0;  // taken back meanwhile
  index_.add_segment(id, pin, segment->bytes());
  segments_[id] = std::move(segment);
  heads_[pin] = id;
  return id;
}

void DiskCache::handle_write_failure(const Job& failed, const Error& error) {
  std::deque<Job> dropped;  // memory goes after the lock
  const std::lock_guard lock(mutex_);
  set_problem_locked("nothing is stored for a while: " + error.message());
  paused_until_ = disk_.now() + kPauseAfterFailure;
  counted_.skipped_bytes += failed.bytes.size();
  heads_.clear();  // what follows a record that is not whole would be lost
  dropped = take_queue_locked();
}

// Nothing of it is stored.
std::deque<DiskCache::Job> DiskCache::take_queue_locked() {
  for (const Job& job : queue_) {
    counted_.skipped_bytes += job.bytes.size();
    pending_ -= job.bytes.size();
    queued_.erase(job.id);
  }
  return std::exchange(queue_, {});
}

void DiskCache::finish(std::chrono::milliseconds limit) {
  std::deque<Job> dropped;
  std::unique_lock lock(mutex_);
  written_.wait_for(lock, limit, [this] { return queue_.empty() && !writing_; });
  dropped = take_queue_locked();
}

void DiskCache::set_problem_locked(std::string problem) {
  if (problem == problem_) return;
  problem_ = std::move(problem);
  if (tell_) tell_("disk cache: " + problem_);
}

void DiskCache::on_trouble(std::function<void(const std::string&)> tell) {
  const std::lock_guard lock(mutex_);
  tell_ = std::move(tell);
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

fs::path DiskCache::path_of_segment(SegmentId id, PinId pin) const {
  return options_.folder / fmt::format("{:016x}-{:016x}{}", id, pin, kSegmentSuffix);
}

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
