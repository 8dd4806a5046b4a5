#include "proto/transport/outgoing_message.h"

#include "proto/base/check.h"

namespace tusk::transport {

std::optional<OutgoingMessage::Position> OutgoingMessage::next_lost() const {
  for (const Part part : {Part::kHeader, Part::kBody}) {
    const Segment& s = segment(part);
    if (!s.lost.empty()) return Position{part, s.lost.front().begin, s.lost.front().size()};
  }
  return std::nullopt;
}

std::optional<OutgoingMessage::Position> OutgoingMessage::next_unsent() const {
  for (const Part part : {Part::kHeader, Part::kBody}) {
    const Segment& s = segment(part);
    if (s.next < s.data.size()) return Position{part, s.next, s.data.size() - s.next};
  }
  return std::nullopt;
}

OutgoingMessage::Piece OutgoingMessage::take(const Position& position, bool lost, ByteCount size_max) {
  Segment& s = segment(position.part);
  const ByteCount length = std::min(position.available, size_max);
  TUSK_CHECK(length > 0);
  if (lost) {
    s.lost.remove(position.offset, position.offset + length);
  } else {
    TUSK_CHECK(position.offset == s.next);
    s.next += length;
  }
  return {position.part, position.offset, s.data.bytes.subspan(position.offset, length)};
}

void OutgoingMessage::handle_acked(Part part, ByteCount offset, ByteCount length) {
  Segment& s = segment(part);
  s.acked.add(offset, offset + length);
  s.lost.remove(offset, offset + length);
}

void OutgoingMessage::handle_lost(Part part, ByteCount offset, ByteCount length) {
  Segment& s = segment(part);
  // A copy sent later may have arrived already.
  if (s.acked.empty()) {
    s.lost.add(offset, offset + length);
    return;
  }
  for (const Interval& gap : s.acked.gaps(offset, offset + length)) s.lost.add(gap.begin, gap.end);
}

}  // namespace tusk::transport
