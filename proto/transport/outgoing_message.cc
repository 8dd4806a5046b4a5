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

std::optional<OutgoingMessage::Unprotected> OutgoingMessage::next_unprotected(ByteCount most) {
  const Segment& body = segment(Part::kBody);
  const ByteCount size = body.data.size();
  const auto first = body.acked.gaps(protected_, size, 1);
  if (first.empty()) return std::nullopt;
  // Equal parts, so that none is a few bytes that get as much parity as a whole one.
  const ByteCount begin = first.front().begin;
  const ByteCount parts = (size - begin + most - 1) / most;
  const ByteCount length = (size - begin + parts - 1) / parts;
  protected_ = std::min(begin + length, size);
  Unprotected part{begin, body.data.bytes.subspan(begin, protected_ - begin), 0, 0};
  const ByteCount acked_end = body.acked.empty() ? 0 : body.acked.back().end;
  for (const Interval& gap : body.acked.gaps(begin, protected_))
    (gap.end <= acked_end ? part.overdue : part.underway) += gap.size();
  return part;
}

void OutgoingMessage::handle_acked(Part part, ByteCount offset, ByteCount length) {
  Segment& s = segment(part);
  s.acked.add(offset, offset + length);
  s.lost.remove(offset, offset + length);
  s.losses.handle_acked(offset, offset + length);
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

RepeatedLosses::Verdict OutgoingMessage::note_loss(const RepeatedLosses::Seen& seen, Part part,
                                                   ByteCount offset, ByteCount length) {
  Segment& s = segment(part);
  auto worst = RepeatedLosses::Verdict::kChance;
  for (const Interval& gap : s.acked.gaps(offset, offset + length))
    worst = std::max(worst, s.losses.note(seen, gap));
  return worst;
}

}  // namespace tusk::transport
