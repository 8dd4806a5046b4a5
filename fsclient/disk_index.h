// What lies where in the disk cache, and which segment goes next. Pure: no file, no clock, no lock.
//
// A block has one place: a newer version of it takes the older one's. What that leaves behind in its segment
// is dead until the segment goes. A segment goes as a whole: the one of use longest ago, but one that keeps
// pinned files only if half of it is dead.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "fsclient/disk_record.h"
#include "proto/base/strong_int.h"

namespace tusk::client {

class DiskIndex {
 public:
  using SegmentId = std::uint64_t;  // later ones have larger numbers
  using PinId = std::uint64_t;      // 0: not pinned

  struct Place {
    SegmentId segment = 0;
    std::uint32_t offset = 0;
    std::uint32_t length = 0;
    std::uint64_t change = 0;
    bool operator==(const Place&) const = default;
  };

  // Of all blocks, so that memory stays below 200 MB; with whole blocks that is 512 GiB.
  static constexpr std::size_t kBlocksMax = 2 * 1024 * 1024;

  // ---- segments

  // `file_bytes`: of the whole file. Segments that are added later are of use later.
  void add_segment(SegmentId id, PinId pin, ByteCount file_bytes);
  void resize_segment(SegmentId id, ByteCount file_bytes);
  // Its blocks are gone.
  void remove_segment(SegmentId id);
  void pin_segments(PinId from, PinId to);
  // Somebody read from it.
  void note_use(SegmentId id);
  [[nodiscard]] bool has_segment(SegmentId id) const { return segments_.contains(id); }
  [[nodiscard]] std::vector<SegmentId> segments_of(PinId pin) const;
  [[nodiscard]] PinId pin_of_segment(SegmentId id) const { return segments_.at(id).pin; }

  // Which to remove when there is no room; nullopt: there is none. Never one of `in_use`.
  [[nodiscard]] std::optional<SegmentId> coldest(const std::vector<SegmentId>& in_use) const;

  // ---- blocks

  [[nodiscard]] const Place* find(const DiskBlockId& block) const;
  [[nodiscard]] bool pinned(const Place& place) const { return segments_.at(place.segment).pin != 0; }
  // The segment is known.
  void put(const DiskBlockId& block, const Place& place);
  // Unless it has got another place since.
  void drop(const DiskBlockId& block, const Place& place);

  [[nodiscard]] std::size_t blocks() const { return blocks_.size(); }
  [[nodiscard]] ByteCount file_bytes() const { return file_bytes_; }  // of all segments
  [[nodiscard]] ByteCount pinned_bytes() const;                       // of the segments of pinned files

 private:
  struct Segment {
    PinId pin = 0;
    ByteCount file_bytes = 0;
    ByteCount live_bytes = 0;  // of blocks whose place is here
    std::uint64_t used = 0;
    std::vector<DiskBlockId> blocks;  // whose place is, or was, here
  };

  void leave(const Place& place);

  std::unordered_map<DiskBlockId, Place> blocks_;
  std::map<SegmentId, Segment> segments_;
  ByteCount file_bytes_ = 0;
  std::uint64_t uses_ = 0;
};

}  // namespace tusk::client
