// One direction of a network path as a pure function of time: what happens to a packet, and when.
//
// The model behind both the WAN emulator (tests/system/wan) and the simulator (tests/simulation). It
// holds no packets, reads no clock and draws all chance from its seed; whoever owns the packets asks
// enqueue() about each and acts on the verdict.
//
// A packet meets, in this order: an outage, a policer, the bottleneck with its drop-tail queue, loss
// (after the bottleneck: a lost packet has used the link), damage and duplication, then the delay with
// jitter and reordering. Sizes are bytes of whole IP packets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/base/random.h"
#include "proto/base/strong_int.h"
#include "proto/base/time.h"

namespace tusk::support {

// Everything that can be changed while a link is in use. The defaults are a perfect wire.
// Probabilities are fractions in [0, 1] of the packets that get that far.
struct LinkParameters {
  std::uint64_t rate = 0;     // of the bottleneck, bit/s; 0: unlimited, then there is no queue either
  Duration queue_time{0};     // a packet that would wait longer is dropped; 0: no limit by time
  ByteCount queue_bytes = 0;  // a packet that would not fit is dropped; 0: no limit by size
  Duration ecn_threshold{0};  // packets that wait longer are marked; 0: never

  std::uint64_t policer_rate = 0;       // bit/s; 0: no policer
  ByteCount policer_burst = 64 * 1024;  // bytes the policer's full bucket lets pass at once

  double loss = 0;          // each packet on its own
  double burst_loss = 0;    // in bursts (Gilbert): this share of all packets ...
  double burst_length = 8;  // ... in runs of this mean length, at least 1, that a pause of a second ends

  Duration delay{0};   // one way, after the bottleneck
  Duration jitter{0};  // on top of delay, wandering slowly in [0, jitter]; keeps the order
  double reorder = 0;  // held back by a further time in [reorder_min, reorder_max)
  Duration reorder_min = 2ms;
  Duration reorder_max = 10ms;

  double duplicate = 0;
  double corrupt = 0;
  bool outage = false;  // all that enters is lost; what is under way still arrives

  bool operator==(const LinkParameters&) const = default;
};

enum class DropCause : std::uint8_t { kNone, kOutage, kPolicer, kQueue, kLoss, kBurstLoss };
inline constexpr std::size_t kDropCauses = 6;

struct Verdict {
  DropCause drop = DropCause::kNone;
  std::uint8_t copies = 0;                // 0 when dropped, 2 when duplicated
  std::array<TimePoint, 2> deliver_at{};  // one time for each copy; not sorted
  TimePoint departs_at{};                 // when the last bit leaves the bottleneck
  Duration queued{0};                     // waiting time in front of the bottleneck
  bool corrupted = false;                 // damage a byte of every copy
  bool congestion_marked = false;         // set ECN CE if the packet is ECN-capable
  bool held_back = false;                 // the first copy was reordered
};

// What a changed rate does to packets that still stand in the queue: they leave at another time than
// their verdicts said. Shift each of them by shift(its departs_at); the order is kept.
class Retiming {
 public:
  Retiming() = default;
  Retiming(TimePoint now, std::uint64_t old_rate, std::uint64_t new_rate);

  [[nodiscard]] bool changes_nothing() const { return factor_ == 1.0; }
  [[nodiscard]] Duration shift(TimePoint departs_at) const;

 private:
  TimePoint now_{};
  double factor_ = 1.0;  // of the time left until departure
};

struct LinkStatistics {
  std::uint64_t packets_in = 0;
  ByteCount bytes_in = 0;
  std::uint64_t packets_out = 0;  // copies count
  ByteCount bytes_out = 0;
  std::array<std::uint64_t, kDropCauses> drops{};  // by DropCause
  std::uint64_t duplicated = 0;
  std::uint64_t corrupted = 0;
  std::uint64_t reordered = 0;
  std::uint64_t marked = 0;
  Duration queue_max{0};            // longest wait of an accepted packet
  Duration queue_total{0};          // sum of the waits of accepted packets ...
  std::uint64_t queue_packets = 0;  // ... and their number

  [[nodiscard]] std::uint64_t dropped() const;
  [[nodiscard]] Duration queue_mean() const;
};

// Not thread-safe. Times never go backwards between calls.
class Link {
 public:
  Link(const LinkParameters& parameters, std::uint64_t seed);

  // A packet of `size` bytes reaches the link.
  [[nodiscard]] Verdict enqueue(TimePoint now, ByteCount size);

  // New parameters from now on; they are the caller's to validate (probabilities in [0, 1],
  // burst_length >= 1, reorder_min <= reorder_max). A packet already past the bottleneck keeps its
  // time; those in the queue move by the Retiming. A shorter delay lets later packets overtake.
  [[nodiscard]] Retiming change(TimePoint now, const LinkParameters& parameters);

  [[nodiscard]] const LinkParameters& parameters() const { return parameters_; }
  [[nodiscard]] const LinkStatistics& statistics() const { return statistics_; }

  // How long a packet arriving now would wait, and the bytes in front of it.
  [[nodiscard]] Duration backlog(TimePoint now) const;
  [[nodiscard]] ByteCount backlog_bytes(TimePoint now) const;

 private:
  [[nodiscard]] DropCause admit(TimePoint now, ByteCount size);
  [[nodiscard]] bool policer_passes(TimePoint now, ByteCount size);
  [[nodiscard]] bool in_loss_burst(TimePoint now);
  [[nodiscard]] TimePoint transmit(TimePoint now, ByteCount size);
  [[nodiscard]] Duration jitter_at(TimePoint when);

  LinkParameters parameters_;
  LinkStatistics statistics_;

  // A stream for each kind of chance, so that switching one on leaves the others' pattern as it was.
  Random loss_chance_;
  Random burst_chance_;
  Random damage_chance_;
  Random delay_chance_;

  TimePoint free_{};                  // when the bottleneck has sent all it has
  std::uint64_t free_remainder_ = 0;  // the part of a nanosecond beyond free_, in 1/rate ns

  double policer_tokens_;  // bits
  TimePoint policer_filled_{};

  bool bursting_ = false;
  TimePoint burst_asked_at_{};  // when a packet last was, or was not, lost in a burst

  // Jitter runs in straight lines between random heights; these are the ends of the current line.
  TimePoint jitter_from_{};
  double jitter_from_height_ = 0;  // fractions of parameters_.jitter
  double jitter_to_height_ = 0;
  bool jitter_started_ = false;
};

}  // namespace tusk::support
