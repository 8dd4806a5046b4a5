// A start: how far packet trains are believed, by what the rounds before carried and by what the path has
// carried in a connection before this one; and whether what is delivered still grows, where trains tell
// nothing.
//
// Pure state; not thread-safe.
#pragma once

#include <algorithm>
#include <utility>

#include "proto/base/strong_int.h"
#include "proto/base/time.h"
#include "proto/transport/round_tally.h"
#include "proto/transport/train_capacity.h"

namespace tusk::transport {

class Startup {
 public:
  // Anew, after an outage. `bandwidth`: bytes/s that are left of what was believed; only more than that is
  // growth.
  void begin(double bandwidth) {
    plateau_ = bandwidth;
    plateau_rounds_ = 0;
    untried_rounds_ = 0;
    sent_ = 0;
    queue_since_ = kNever;
    cap_ = 0;
  }
  // What was remembered counts for a connection's first start only.
  void end() {
    remembered_ = 0;
    ended_ = true;
  }
  // Bytes/s that the path has carried before. The peer may tell it again later.
  void remember(double rate) {
    if (!ended_) remembered_ = rate;
  }

  // A round carries no more than so many times what the one before did: this is what one brought. `least`:
  // bytes of a first train. `round_trip`: s.
  void carry(const RoundTally& tally, ByteCount least, double round_trip) {
    // A probe of the line at rest may have been a burst that a policer lets through.
    const ByteCount round = std::min(tally.told(), tally.app_limited ? kProbedMax : ~ByteCount{0});
    cap_ = std::max(cap_, kTrainGrowth * static_cast<double>(std::max(least, round)) / round_trip);
  }
  // Bytes/s, no faster than which trains are believed.
  [[nodiscard]] double cap(ByteCount least, double round_trip) const {
    return cap_ > 0 ? cap_ : kTrainGrowth * static_cast<double>(least) / round_trip;
  }

  // Bytes/s: of what trains say, and of what the path has carried before where they do not speak against it:
  // then they are believed without what is else taken off for the receiver's noise.
  [[nodiscard]] double believed(const TrainCapacity& trains) const {
    const double safe = trains.safe_rate();
    if (trains.capacity() < kRememberedAgrees * remembered_) return safe;
    return std::max(safe, std::min(kRememberedSafe * remembered_, trains.dispersion()));
  }

  // At the end of a round with the best rate so far, bytes/s, and what is sent now. True: the rate has not
  // grown for some rounds, though more was sent; or for many, so that every start ends.
  [[nodiscard]] bool reaches_plateau(double bandwidth, double pacing) {
    const bool tried = std::exchange(sent_, pacing) >= kStartupGrowth * plateau_;
    if (bandwidth < plateau_ * kStartupGrowth)
      return tried ? ++plateau_rounds_ >= kPlateauRounds : ++untried_rounds_ >= kUntriedRounds;
    plateau_ = bandwidth;
    plateau_rounds_ = 0;
    untried_rounds_ = 0;
    return false;
  }

  // With each acknowledgement, while `bandwidth` is sent, bytes/s. True: a queue stays. Where a program
  // was kept from running all that came meanwhile is as late, and is gone with what comes next.
  [[nodiscard]] bool sees_queue(TimePoint now, bool queue, double bandwidth) {
    queue_since_ = queue ? std::min(queue_since_, now) : kNever;
    const bool many = bandwidth * to_seconds(kQueueStays) > kLatePackets;
    return queue && (!many || now - queue_since_ >= kQueueStays);
  }

 private:
  static constexpr double kStartupGrowth = 1.25;
  static constexpr int kPlateauRounds = 3;
  // Where an eighth is lost neither is what trains said confirmed nor much more sent than arrives.
  static constexpr int kUntriedRounds = 8;
  // Because a policer lets a first burst pass at line rate.
  static constexpr double kTrainGrowth = 512;
  static constexpr ByteCount kProbedMax = 512 << 10;
  // Of what the path has carried before, if trains tell at least so much of it.
  static constexpr double kRememberedSafe = 0.97;
  static constexpr double kRememberedAgrees = 0.6;

  // A thread that is late is mostly so for less. On a slow line one of the flows that begin together must
  // not look on, and little comes meanwhile.
  static constexpr Duration kQueueStays = 10ms;
  static constexpr double kLatePackets = 128.0 * kUsualPacket;  // bytes

  double plateau_ = 0;  // bytes/s, the rate to beat
  double sent_ = 0;     // bytes/s, from the end of the last round on
  TimePoint queue_since_ = kNever;
  int plateau_rounds_ = 0;  // that tried more
  int untried_rounds_ = 0;
  double cap_ = 0;         // bytes/s; 0: no round has carried anything
  double remembered_ = 0;  // bytes/s; 0: nothing, or the start is over
  bool ended_ = false;     // one has, since the connection began
};

}  // namespace tusk::transport
