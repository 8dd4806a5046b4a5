#include "proto/transport/incoming_parity.h"

#include <algorithm>

#include "proto/base/erasure.h"

namespace tusk::transport {

IncomingParity::~IncomingParity() {
  for (const Part& part : parts_) budget_.left += part.bytes();
}

bool IncomingParity::add(const wire::ParityFrame& frame, const Allocate& allocate) {
  std::size_t rows = 0;
  for (const Part& part : parts_) rows += part.rows.size();
  if (frame.data.size() + kRowOverhead > budget_.left || rows >= kRowsMax) return false;
  auto part = std::ranges::find_if(parts_, [&](const Part& p) {
    return p.offset == frame.offset && p.length == frame.length && p.row_size == frame.data.size();
  });
  if (part == parts_.end()) {
    if (parts_.size() >= kPartsMax) return false;
    part = parts_.insert(part, Part{frame.offset, frame.length, frame.data.size(), {}, 0});
  }
  if (std::ranges::find(part->rows, frame.index, &Row::index) != part->rows.end()) return false;
  budget_.left -= frame.data.size() + kRowOverhead;
  part->rows.push_back({frame.index, allocate(frame.data.size())});
  std::ranges::copy(frame.data, part->rows.back().bytes.bytes.begin());
  return true;
}

void IncomingParity::restore(std::span<std::byte> body, IntervalSet& received) {
  std::erase_if(parts_, [&](Part& part) {
    if (!restore(part, body, received) && ++part.looks < kLooksMax) return false;
    budget_.left += part.bytes();
    return true;
  });
}

// True: all of the part is there.
bool IncomingParity::restore(const Part& part, std::span<std::byte> body, IntervalSet& received) {
  std::vector<Interval> missing =
      received.gaps(part.offset, part.end(), erasure::runs_max(part.rows.size()) + 1);
  for (Interval& run : missing) {
    run.begin -= part.offset;
    run.end -= part.offset;
  }
  std::vector<erasure::ParityRow> rows;
  for (const Row& row : part.rows) rows.push_back({row.index, row.bytes.bytes});
  if (!erasure::restore(body.subspan(part.offset, part.length), missing, part.row_size, rows)) return false;
  received.add(part.offset, part.end());
  return true;
}

ByteCount IncomingParity::end() const {
  ByteCount end = 0;
  for (const Part& part : parts_) end = std::max(end, part.end());
  return end;
}

}  // namespace tusk::transport
