// DiskCache: how blocks come to the disk.
#include <algorithm>

#include "fsclient/disk_cache.h"

namespace tusk::client {
namespace {

// Blocks that are written before somebody else on the disk's threads has a turn.
constexpr int kWritesPerTurn = 8;
// Blocks that are remembered not to be pinned: of those that are read from memory again and again.
constexpr std::size_t kNotPinnedMax = 65536;

}  // namespace

void DiskCache::store(const DiskKey& key, const std::function<SharedBytes()>& lend, PathOfFile path_of) {
  if (key.change == 0 || key.handle.size() > kDiskHandleMax) return;
  const DiskBlockId id = disk_block_id(key.handle, key.block);
  const std::lock_guard lock(mutex_);
  const DiskIndex::Place* place = index_.find(id);
  const bool there = place != nullptr && place->change == key.change;
  if (there && (pins_.empty() || index_.pinned(*place) || not_pinned_.contains(id))) return;
  if (queued_.contains(id)) return;  // of another change even: rare, and only not stored
  SharedBytes bytes = lend();
  if (bytes.empty() || bytes.size() > kDiskLengthMax) return;
  if (pending_ + bytes.size() > options_.pending_max || disk_.now() < paused_until_) {
    counted_.skipped_bytes += bytes.size();
    return;
  }
  queued_.insert(id);
  pending_ += bytes.size();
  queue_.push_back(
      {id, std::string(key.handle), key.change, key.block, std::move(bytes), std::move(path_of)});
  begin_writing_locked();
}

void DiskCache::forget(const DiskKey& key) {
  const DiskBlockId id = disk_block_id(key.handle, key.block);
  const std::lock_guard lock(mutex_);
  if (const DiskIndex::Place* place = index_.find(id); place != nullptr && place->change == key.change)
    index_.drop(id, DiskIndex::Place(*place));
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
    if (place != nullptr && place->change == job.change && (pin == 0 || index_.pinned(*place))) {
      if (not_pinned_.size() >= kNotPinnedMax) not_pinned_.clear();
      if (pin == 0) not_pinned_.insert(job.id);
      return;
    }
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
  set_problem_locked("pinned files take all of cache_size: nothing more is stored");
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

}  // namespace tusk::client
