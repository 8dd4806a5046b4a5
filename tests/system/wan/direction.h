// One direction of the emulated path: asks a Link what becomes of each packet and keeps those under way.
//
// No threads, clock or devices: the emulator calls pump() with the time and the two ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "proto/base/random.h"
#include "proto/base/time.h"
#include "tests/support/link/link.h"
#include "tests/system/wan/delivery_queue.h"
#include "tests/system/wan/packet_store.h"

namespace tusk::wan {

class PacketSource {
 public:
  virtual ~PacketSource() = default;
  // Fills `buffer` with the next packet and returns its size; 0 when none is waiting.
  [[nodiscard]] virtual std::size_t receive(std::span<std::byte> buffer) = 0;
};

class PacketSink {
 public:
  virtual ~PacketSink() = default;
  // False when the other side did not take it. It may be kept until flush(), to go with others.
  [[nodiscard]] virtual bool send(std::span<const std::byte> packet) = 0;
  // What was kept goes. Of all that send() has taken since the last flush(): what was not taken after all.
  struct Refused {
    std::size_t packets = 0;
    ByteCount bytes = 0;
  };
  [[nodiscard]] virtual Refused flush() { return {}; }
};

struct DirectionStatistics {
  support::LinkStatistics link;
  std::uint64_t delivered_packets = 0;  // handed to the sink
  ByteCount delivered_bytes = 0;
  std::uint64_t overflowed = 0;  // no memory for a packet the link let through: a fault of the set-up
  std::uint64_t refused = 0;     // by the sink
  std::uint64_t under_way = 0;   // in the queue or the delay
  TimePoint bottleneck_free{};   // the queue is empty from then on
};

using ReadClock = std::function<TimePoint()>;

// Not thread-safe.
class Direction {
 public:
  // `packet_size_max`: bytes of the largest packet; `memory`: bytes for packets under way, of which what a
  // full path holds is there at once.
  Direction(const support::LinkParameters& parameters, std::uint64_t seed, std::size_t packet_size_max,
            ByteCount memory);

  struct Pumped {
    std::size_t handled = 0;  // packets received and delivered
    bool more = false;        // stopped at the batch limit: call again at once
    TimePoint next_due{};     // of the next delivery, kNever without one
  };

  // Delivers what is due, then takes in what waits; at most kBatch packets each. Each packet came when it was
  // taken in: one time for all would be that of before, and a path's delay too short by as long as the
  // processor did something else.
  Pumped pump(const ReadClock& now, PacketSource& source, PacketSink& sink);

  void change(TimePoint now, const support::LinkParameters& parameters);

  [[nodiscard]] DirectionStatistics statistics(TimePoint now) const;

  static constexpr std::size_t kBatch = 64;

 private:
  std::size_t deliver(TimePoint now, PacketSink& sink);
  std::size_t take_in(const ReadClock& now, PacketSource& source);
  void dispatch(const support::Verdict& verdict, std::uint32_t slot);

  support::Link link_;
  Random damage_;  // which byte to change
  PacketStore store_;
  DeliveryQueue queue_;
  DirectionStatistics statistics_;  // link and the last two fields are filled in by statistics()
};

}  // namespace tusk::wan
