// The one interface of congestion control: told what was sent, acknowledged and lost, it says how fast
// and how much may be sent. docs/CONGESTION.md explains the controllers that live beside it.
//
// A controller belongs to the one thread of its connection; the times it is given never go back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "proto/base/strong_int.h"
#include "proto/base/time.h"

namespace tusk::transport {

class RttEstimator;
class Siblings;

// UDP payload of an IPv4 packet of 1500 bytes: what is counted with where nothing depends on the path's own.
constexpr ByteCount kUsualPacket = 1472;

// Packets that left together, and how far apart the first and the last of them arrived: the bottleneck's
// doing.
struct PacketTrain {
  std::uint64_t id = 0;  // the same train tells more as more of it is acknowledged
  ByteCount bytes = 0;   // that passed between the two arrivals
  Duration spread{};
  bool one_by_one = false;  // with so much between them that no receiver takes several at once
};

// One acknowledgement's worth of news.
struct AckEvent {
  TimePoint now;
  ByteCount acked_bytes = 0;
  ByteCount lost_bytes = 0;
  std::uint64_t lost_packets = 0;
  TimePoint lost_sent_at{};  // when the newest of these left
  std::uint64_t acked_packets = 0;
  ByteCount in_flight = 0;        // after this acknowledgement
  ByteCount prior_in_flight = 0;  // before it
  ByteCount delivered_total = 0;  // bytes acknowledged since the start
  // One that left after the end of the last round was acknowledged. What else is lost of it may not be known.
  bool round_ended = false;
  std::uint64_t marks = 0;  // new ECN congestion marks
  // Of the newest acknowledged packet: the delivery rate over its flight; 0: no sample.
  double rate = 0;                   // bytes/s
  ByteCount flight = 0;              // bytes in flight when it left, with it
  bool app_limited = false;          // in the flight before it there was nothing to send once: a lower bound
  Duration rtt{};                    // newest sample; 0: none
  ByteCount datagram_size = 0;       // of a full packet; 0: unknown
  std::optional<PacketTrain> train;  // news of the newest one
};

class CongestionController {
 public:
  virtual ~CongestionController() = default;

  // A controller that finds that the path got longer tells the estimator (forget_minimum()).
  virtual void handle_ack(const AckEvent& event, RttEstimator& rtt) = 0;
  // Several probe timeouts in a row went unanswered: the path was gone. (A controller may find that by
  // itself.)
  virtual void handle_outage(TimePoint now) = 0;
  // It is one of several flows that have together what one would have beside others: this part of it, 0 to 1.
  // May change at any time.
  virtual void take_part(double) {}

  // Flows to the same host that share a path with this one.
  virtual void meet(std::shared_ptr<Siblings>) {}
  // After a pause there is much to send again.
  virtual void handle_demand(TimePoint, RttEstimator&) {}

  // Bytes/s that this path has carried before: a hint, for a start that what is measured agrees with.
  virtual void remember(double) {}

  // Bytes that may be in flight.
  [[nodiscard]] virtual ByteCount window() const = 0;
  // Bytes per second to pace at; > 0.
  [[nodiscard]] virtual double pacing_rate() const = 0;
  // Bytes that may leave in one go.
  [[nodiscard]] virtual ByteCount burst() const = 0;
  // Of what a busy machine could not send in time, so much may leave at once; within the pacer's bounds.
  [[nodiscard]] virtual Duration catch_up() const { return Duration(0); }
  // What leaves together is a train, whose dispersion it wants to know.
  [[nodiscard]] virtual bool measures_trains() const { return false; }
  // Bytes of a train that would tell more of a line at rest than is known; as many as a first one has,
  // where that told nothing; 0: none would.
  [[nodiscard]] virtual ByteCount probe_train() const { return 0; }
  // What the path is believed to carry, bytes/s; 0: unknown.
  [[nodiscard]] virtual double bandwidth() const = 0;
  // What the bottleneck is believed to carry with the parts of others, bytes/s; 0: unknown, or not reckoned.
  [[nodiscard]] virtual double capacity() const { return 0; }
  // For traces: the state's name.
  [[nodiscard]] virtual std::string_view state() const = 0;
};

// Ours, for normal and for background priority, and the two that others use, for comparison.
enum class CongestionKind : std::uint8_t { kModel, kBackground, kCubic, kBbr };

[[nodiscard]] std::unique_ptr<CongestionController> make_congestion_controller(CongestionKind kind,
                                                                               std::uint64_t seed);

}  // namespace tusk::transport
