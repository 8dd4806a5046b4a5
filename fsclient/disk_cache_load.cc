// DiskCache: what is there from before.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>

#include "fsclient/disk_cache.h"

namespace tusk::client {
namespace {

// A segment is what goes at once.
constexpr ByteCount kSegmentsPerCache = 64;
constexpr ByteCount kSegmentMin = 1024 * 1024;
constexpr ByteCount kSegmentMax = 1024 * 1024 * 1024;
constexpr std::string_view kSegmentSuffix = ".blocks";

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

DiskCache::DiskCache(Options options, Scheduler& disk)
    : options_(std::move(options)),
      segment_bytes_(std::clamp(options_.bytes_max / kSegmentsPerCache, kSegmentMin, kSegmentMax)),
      disk_(disk),
      pins_(DiskPins::load(options_.folder / "pins")) {
  list_segments();
  disk_.post([this] { load_next(); });
}

std::filesystem::path DiskCache::path_of_segment(SegmentId id, PinId pin) const {
  return options_.folder / fmt::format("{:016x}-{:016x}{}", id, pin, kSegmentSuffix);
}

void DiskCache::list_segments() {
  struct File {
    timespec used;
    SegmentName name;
    ByteCount bytes;
  };
  std::vector<File> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder, ignored)) {
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

}  // namespace tusk::client
