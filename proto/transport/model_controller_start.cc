// How the controller starts: by what packet trains tell, or by growing until the queue or a plateau shows.
#include <algorithm>

#include "proto/transport/model_controller.h"

namespace tusk::transport {
namespace {

constexpr double kInitialRate = 64.0 * kUsualPacket / 0.010;  // bytes/s before the first round trip is known

// Enough to double every round trip (2/ln 2 = 2.885 is the least that doubles with pacing; a
// little less overshoots less and still grows 2.7x in practice).
constexpr double kStartupGain = 2.77;
constexpr double kFirstFlights = 4;  // initial windows, as long as nothing tells what the path holds

// By trains.
constexpr double kTrainsConfirmed = 0.9;
constexpr double kStartupLossMax = 0.15;
constexpr double kOverflowDelivers = 0.8;  // of what trains say
// So many packets of a round tell that a policer is there, and more of them how much it loses.
constexpr double kPolicedPackets = 100;
constexpr double kStartupLossPackets = 1000;

// Scheduling, batching and thinned acknowledgements hold packets this long at the two ends.
constexpr Duration kHostDelay = 2ms;

}  // namespace

ModelController::ModelController() : window_(train_bytes_min()), pacing_rate_(kInitialRate) {}

double ModelController::start_rate() const { return part_of_all() * startup_.believed(trains_); }

// More is lost than any path loses by itself: the trains said too much.
bool ModelController::start_overran() const { return trains_.several() && tally_.loss() > kStartupLossMax; }

// And not by a queue, which others may have filled. A busy machine's round trips look like one, but a buffer
// that overflows delivers what the line carries.
bool ModelController::start_policed() const {
  if (!start_overran() || !queue_short() || siblings_fill()) return false;
  return round_queue_.average() <= usual_queue() / 2 ||
         (tally_.best_rate > 0 && tally_.best_rate < kOverflowDelivers * trains_.capacity());
}

void ModelController::end_startup_round() {
  capacity_ = std::max(capacity_, trains_.capacity());
  if (start_overran()) {
    if (start_policed() && tally_.packets(packet()) > kPolicedPackets) loss_.expect_policer();
    return enter(State::kDrain);
  }
  // The path carries what trains said it would, and they say no more.
  const bool more = part_of_all() * trains_.safe_rate() > kWorthTaking * tally_.best_rate;
  if (trains_.several() && !more && tally_.best_rate > kTrainsConfirmed * pacing_rate_) {
    // Less was sent than the line carries: what was lost of that, it loses by itself.
    loss_.end_round({.lost = tally_.loss(), .packets = tally_.packets(packet()), .judged = false});
    enter(State::kSteady);
    model_window_ = std::max(model_window_, part_of_all() * trains_.capacity() * to_seconds(rtt_min_));
    // The round that begins is of what was sent before; the next one tells what the line made of this.
    blind_until_ = round_ + 1;
    return;
  }
  if (startup_.reaches_plateau(rate_.best(), pacing_rate_)) enter(State::kDrain);
}

void ModelController::control_startup(double round_trip) {
  const double estimate = start_rate();
  const auto initial = static_cast<double>(train_bytes_min());
  if (estimate <= 0 && rate_.best() <= 0) {
    pacing_rate_ = std::max(kInitialRate, kStartupGain * initial / round_trip);
    window_ = train_bytes_min();
    return;
  }
  const double cap = startup_.cap(train_bytes_min(), round_trip);
  // On short paths the initial window alone is many times the capacity: only until trains know better.
  const double first = kStartupGain * initial / round_trip;
  double rate = estimate > 0 ? std::min(std::max(estimate, rate_.best()), cap)
                             : std::max(kStartupGain * rate_.best(), first);
  // What a fast line loses until the round ends is megabytes.
  if (start_policed() && tally_.packets(packet()) > kStartupLossPackets) rate *= 1 - tally_.loss();
  pacing_rate_ = std::max(kRateMin, rate);
  const double held = round_trip + to_seconds(own_queue() + kHostDelay);
  double more = pacing_rate_ * held;
  // On a short path the first rate is that of trains, not of the line, which would be a queue of 10 MB.
  if (estimate <= 0)
    more = std::max(kStartupGain * rate_.best() * held, std::min(more, kFirstFlights * initial));
  window_ = train_bytes_min() + static_cast<ByteCount>(more);
}

}  // namespace tusk::transport
