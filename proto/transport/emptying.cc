#include "proto/transport/emptying.h"

#include <algorithm>

namespace tusk::transport {
namespace {

// Alone: so much of a round trip is left free, and no more than so long beyond the path's jitter.
constexpr double kEmptyAlone = 0.05;
constexpr double kEmptyAloneSeconds = 4e-3;
constexpr double kEmptyShared = 0.5;
constexpr double kEmptyDoubtful = 0.75;  // shows a quarter of a round trip that was taken for the path
constexpr double kEmptySiblings = 0.8;
constexpr ByteCount kTrainRoom = 24;      // packets
constexpr ByteCount kShortTrainRoom = 6;  // packets: stays, for trains of a slow line
constexpr Duration kEmptyEvery = 4s;
constexpr Duration kEmptyEverySharedMin = 600ms;
constexpr int kEmptyEverySharedRtts = 16;

}  // namespace

double Emptying::window(const Path& path) const {
  // Who has little leaves room for a train: it would never learn again that the line is wider.
  const auto packet = static_cast<double>(path.packet);
  const double train = static_cast<double>(kTrainRoom) * packet;
  if ((path.shared && !before_.together) || path.tests_base)
    return std::min(
        kEmptyShared * path.rate * path.round_trip,
        std::max(static_cast<double>(kShortTrainRoom) * packet, path.rate * path.round_trip - train));
  if (path.base_doubtful) return kEmptyDoubtful * path.rate * path.round_trip;
  // Of a part of the line the best sample is mostly luck, and what all add is a queue by itself.
  if (before_.together) return std::max(0.0, kEmptySiblings * before_.goodput * path.round_trip - path.extra);
  // The newest sample of a far path may be of a busy machine, which would leave more of the line free.
  const double left = std::min(kEmptyAlone * path.round_trip, kEmptyAloneSeconds + path.noise);
  // A policer's bursts are no measure.
  return (path.tests_loss ? path.rate : path.best_rate) * (path.round_trip - left);
}

Duration Emptying::every(bool often, Duration round_trip) {
  return often ? std::max<Duration>(kEmptyEverySharedMin, kEmptyEverySharedRtts * round_trip) : kEmptyEvery;
}

}  // namespace tusk::transport
