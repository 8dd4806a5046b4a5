// One message on its way out: header and body, cut into pieces, sent again where lost.
//
// Holds references to the bytes, never copies. Pure state: no sockets, clock or threads.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "proto/base/interval_set.h"
#include "proto/base/shared_bytes.h"
#include "proto/transport/repeated_losses.h"
#include "proto/wire/types.h"

namespace tusk::transport {

// The two parts of a message, in the order they are sent.
enum class Part : std::uint8_t { kHeader = 0, kBody = 1 };

class OutgoingMessage {
 public:
  struct Piece {
    Part part;
    ByteCount offset;
    std::span<const std::byte> data;
  };

  OutgoingMessage() = default;
  OutgoingMessage(SharedBytes header, SharedBytes body, wire::Priority priority, ByteCount reply_capacity)
      : priority_(priority), reply_capacity_(reply_capacity) {
    segment(Part::kHeader).data = std::move(header);
    segment(Part::kBody).data = std::move(body);
  }

  [[nodiscard]] wire::Priority priority() const { return priority_; }
  [[nodiscard]] ByteCount reply_capacity() const { return reply_capacity_; }
  [[nodiscard]] ByteCount header_size() const { return segment(Part::kHeader).data.size(); }
  [[nodiscard]] ByteCount body_size() const { return segment(Part::kBody).data.size(); }
  [[nodiscard]] ByteCount size() const { return header_size() + body_size(); }

  [[nodiscard]] bool has_lost() const {
    return !segment(Part::kHeader).lost.empty() || !segment(Part::kBody).lost.empty();
  }
  [[nodiscard]] bool has_unsent() const { return unsent() > 0; }
  [[nodiscard]] ByteCount unsent() const {
    return size() - segment(Part::kHeader).next - segment(Part::kBody).next;
  }
  [[nodiscard]] bool fully_acked() const {
    return segment(Part::kHeader).fully_acked() && segment(Part::kBody).fully_acked();
  }

  // Where the next piece begins: what was lost first, then what was never sent.
  struct Position {
    Part part;
    ByteCount offset;
    ByteCount available;
  };
  [[nodiscard]] std::optional<Position> next_lost() const;
  [[nodiscard]] std::optional<Position> next_unsent() const;
  // Takes up to `size_max` bytes from a position just returned.
  Piece take(const Position& position, bool lost, ByteCount size_max);

  // The first part of the body of which parity was never asked for and some is not acknowledged: about `most`
  // bytes or less, and asked for with this. All of the body must have been sent.
  struct Unprotected {
    ByteCount offset;
    std::span<const std::byte> data;
    ByteCount overdue;   // bytes not acknowledged though later ones are
    ByteCount underway;  // bytes not acknowledged, after all that are
  };
  [[nodiscard]] std::optional<Unprotected> next_unprotected(ByteCount most);
  [[nodiscard]] std::span<const std::byte> header() const { return segment(Part::kHeader).data.bytes; }
  [[nodiscard]] bool header_acked() const { return segment(Part::kHeader).fully_acked(); }

  void handle_acked(Part part, ByteCount offset, ByteCount length);
  void handle_lost(Part part, ByteCount offset, ByteCount length);
  // Acknowledgements have shown that these bytes were lost: how often now? Queues nothing.
  [[nodiscard]] RepeatedLosses::Verdict note_loss(const RepeatedLosses::Seen& seen, Part part,
                                                  ByteCount offset, ByteCount length);

 private:
  struct Segment {
    SharedBytes data;
    ByteCount next = 0;  // below: sent at least once
    IntervalSet acked;
    IntervalSet lost;       // sent, lost, not sent again yet; disjoint from acked
    RepeatedLosses losses;  // of what is not acknowledged
    [[nodiscard]] bool fully_acked() const { return acked.covers(0, data.size()); }
  };
  Segment& segment(Part part) { return segments_[static_cast<std::size_t>(part)]; }
  [[nodiscard]] const Segment& segment(Part part) const { return segments_[static_cast<std::size_t>(part)]; }

  std::array<Segment, 2> segments_;
  wire::Priority priority_ = wire::Priority::kInteractive;
  ByteCount reply_capacity_ = 0;
  ByteCount protected_ = 0;  // of the body, below: parity was asked for
};

}  // namespace tusk::transport
