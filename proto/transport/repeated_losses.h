// How often the bytes of a message that are still missing were lost, and how likely that is by chance. A peer
// that acknowledges all but one packet of each answer has us keep them whole, at the cost of one repair in a
// round trip: chance does not take the same bytes again and again while it spares nearly all others.
//
// Each stretch that was lost is watched by its first byte. Pure state.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>

#include "proto/base/interval_set.h"
#include "proto/base/strong_int.h"
#include "proto/base/time.h"

namespace tusk::transport {

class RepeatedLosses {
 public:
  // A loss that acknowledgements of later packets have shown, and what they say of the path.
  struct Seen {
    TimePoint now;
    Duration round_trip;
    Duration patience;
    std::uint64_t acked;  // packets, so far
    std::uint64_t lost;
  };

  enum class Verdict : std::uint8_t {
    kChance,
    // Hardly. But it may always come when a queue is full that fills in step with us: try another moment of
    // the round trip.
    kUnlikely,
    kTooLong,  // longer than our patience, and by no chance
  };

  // These bytes, of which none is acknowledged, were lost.
  [[nodiscard]] Verdict note(const Seen& seen, const Interval& missing) {
    auto watched = watched_.lower_bound(missing.begin);
    if (watched == watched_.end() || watched->first >= missing.end) {
      watched_.emplace_hint(watched, missing.begin, Losses{seen.now, seen.now, seen.acked, seen.lost});
      return Verdict::kChance;
    }
    Verdict worst = Verdict::kChance;
    for (; watched != watched_.end() && watched->first < missing.end; ++watched)
      worst = std::max(worst, note(seen, watched->second));
    return worst;
  }
  void handle_acked(ByteCount begin, ByteCount end) {
    if (!watched_.empty()) watched_.erase(watched_.lower_bound(begin), watched_.lower_bound(end));
  }

 private:
  // Once in 10^11, in nats: that are 16 losses after the first where every fifth packet gets lost, and 37
  // where every second does. A line that has become a hundredth of what it was loses nearly all for a while,
  // what is sent again as well, and that proves nothing.
  static constexpr double kNoChance = 25;
  static constexpr double kHardlyChance = kNoChance / 2;
  // At least, where next to nothing else is lost: two or three make it unlikely, so that five or six come at
  // moments that we have chosen.
  static constexpr int kCountMin = 8;

  struct Losses {
    TimePoint first;
    TimePoint last;
    std::uint64_t acked;  // as seen with the last
    std::uint64_t lost;
    int count = 1;
    double improbable = 0;  // nats

    [[nodiscard]] Verdict verdict(const Seen& seen) const {
      if (improbable < kHardlyChance) return Verdict::kChance;
      const bool too_long =
          count >= kCountMin && improbable >= kNoChance && seen.now >= first + seen.patience;
      return too_long ? Verdict::kTooLong : Verdict::kUnlikely;
    }
  };

  // What is lost again within a round trip was on its way together: copies, or what was sent into an outage.
  static Verdict note(const Seen& seen, Losses& losses) {
    if (seen.now < losses.last + seen.round_trip) return losses.verdict(seen);
    const auto lost = static_cast<double>(seen.lost - losses.lost);
    const auto settled = lost + static_cast<double>(seen.acked - losses.acked);
    if (lost > 0) losses.improbable += std::log(settled / lost);
    losses.last = seen.now;
    losses.acked = seen.acked;
    losses.lost = seen.lost;
    ++losses.count;
    return losses.verdict(seen);
  }

  std::map<ByteCount, Losses> watched_;  // by their place in the message
};

}  // namespace tusk::transport
