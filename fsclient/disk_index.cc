#include "fsclient/disk_index.h"

#include <algorithm>

namespace tusk::client {

void DiskIndex::add_segment(SegmentId id, PinId pin, ByteCount file_bytes) {
  segments_[id] = Segment{.pin = pin, .file_bytes = file_bytes, .used = ++uses_};
  file_bytes_ += file_bytes;
}

void DiskIndex::resize_segment(SegmentId id, ByteCount file_bytes) {
  Segment& segment = segments_.at(id);
  file_bytes_ = file_bytes_ - segment.file_bytes + file_bytes;
  segment.file_bytes = file_bytes;
}

void DiskIndex::remove_segment(SegmentId id) {
  const auto gone = segments_.extract(id);
  if (gone.empty()) return;
  file_bytes_ -= gone.mapped().file_bytes;
  for (const DiskBlockId& block : gone.mapped().blocks) {
    const auto place = blocks_.find(block);
    if (place != blocks_.end() && place->second.segment == id) blocks_.erase(place);
  }
}

void DiskIndex::pin_segments(PinId from, PinId to) {
  for (auto& [id, segment] : segments_)
    if (segment.pin == from) segment.pin = to;
}

void DiskIndex::note_use(SegmentId id) {
  if (const auto place = segments_.find(id); place != segments_.end()) place->second.used = ++uses_;
}

std::vector<DiskIndex::SegmentId> DiskIndex::segments_of(PinId pin) const {
  std::vector<SegmentId> ids;
  for (const auto& [id, segment] : segments_)
    if (segment.pin == pin) ids.push_back(id);
  return ids;
}

std::optional<DiskIndex::SegmentId> DiskIndex::coldest(const std::vector<SegmentId>& in_use) const {
  const auto before = [](const auto* a, const auto* b) {
    return std::pair(a->second.pin != 0, a->second.used) < std::pair(b->second.pin != 0, b->second.used);
  };
  const std::map<SegmentId, Segment>::value_type* coldest = nullptr;
  for (const auto& candidate : segments_) {
    const auto& [id, segment] = candidate;
    const bool kept = segment.pin != 0 && segment.live_bytes >= segment.file_bytes / 2;
    if (kept || std::ranges::find(in_use, id) != in_use.end()) continue;
    if (coldest == nullptr || before(&candidate, coldest)) coldest = &candidate;
  }
  if (coldest == nullptr) return std::nullopt;
  return coldest->first;
}

const DiskIndex::Place* DiskIndex::find(const DiskBlockId& block) const {
  const auto place = blocks_.find(block);
  return place == blocks_.end() ? nullptr : &place->second;
}

void DiskIndex::put(const DiskBlockId& block, const Place& place) {
  const auto [known, fresh] = blocks_.try_emplace(block, place);
  if (!fresh) {
    leave(known->second);
    known->second = place;
  }
  Segment& segment = segments_.at(place.segment);
  segment.live_bytes += place.length;
  segment.blocks.push_back(block);
}

void DiskIndex::drop(const DiskBlockId& block, const Place& place) {
  const auto known = blocks_.find(block);
  if (known == blocks_.end() || known->second != place) return;
  leave(place);
  blocks_.erase(known);
}

void DiskIndex::leave(const Place& place) { segments_.at(place.segment).live_bytes -= place.length; }

ByteCount DiskIndex::pinned_bytes() const {
  ByteCount bytes = 0;
  for (const auto& [id, segment] : segments_)
    if (segment.pin != 0) bytes += segment.file_bytes;
  return bytes;
}

}  // namespace tusk::client
