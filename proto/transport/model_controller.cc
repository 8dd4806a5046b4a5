#include "proto/transport/model_controller.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "proto/transport/rtt_estimator.h"

namespace tusk::transport {
namespace {

constexpr ByteCount kPacket = 1472;
constexpr ByteCount kInitialWindow = 64 * kPacket;
constexpr ByteCount kWindowMin = 16 * kPacket;
constexpr double kInitialRate = 64.0 * kPacket / 0.010;  // bytes/s before the first round trip is known
constexpr ByteCount kBurstBytesMin = 4 * kPacket;
constexpr double kBurstSeconds = 250e-6;
constexpr double kRateMin = 10.0 * kPacket;  // ten packets a second keep a dying path alive

// Startup: enough to double every round trip (2/ln 2 = 2.885 is the least that doubles with pacing; a
// little less overshoots less and still grows 2.7x in practice).
constexpr double kStartupGain = 2.77;
constexpr double kStartupGrowth = 1.25;
constexpr int kPlateauRounds = 3;
// Startup by trains: long enough to tell the capacity from a receiver's timing noise. A single train is
// believed to 80 %, several to 95 %; and no round carries more than so many times the one before, because a
// policer lets a first burst pass at line rate.
constexpr ByteCount kTrainBytesMin = 64 * kPacket;
constexpr double kTrainSeconds = 2e-3;
constexpr std::size_t kTrainsMax = 32;
constexpr std::size_t kTrainsSeveral = 4;
constexpr Duration kTimingNoise = 200us;
constexpr double kFirstTrainShare = 0.8;
constexpr double kTrainsShare = 0.95;
constexpr double kTrainsConfirmed = 0.9;
constexpr double kTrainGrowth = 512;
constexpr double kDrainGain = 0.5;
constexpr double kUpGain = 1.0625;
constexpr double kDownGain = 0.9375;
constexpr double kPushGain = 1.25;
constexpr double kProbeSuccess = 1.03;
constexpr double kPushSuccess = 1.10;
constexpr int kDownRoundsMax = 3;
constexpr int kCruiseRoundsMin = 2;
constexpr int kCruiseRoundsSpread = 3;

// The maximum of so many rounds is the bandwidth: two cycles.
constexpr std::uint64_t kBandwidthRounds = 12;

constexpr Duration kQueueTargetMin = 1ms;
constexpr Duration kQueueTargetMax = 20ms;
// Scheduling, batching and thinned acknowledgements hold packets this long at the two ends.
constexpr Duration kHostDelay = 2ms;

// Random loss beyond this is not compensated by sending faster.
constexpr double kRandomLossMax = 0.08;
constexpr double kLossWeight = 1.0 / 8;

}  // namespace

ModelController::ModelController(std::uint64_t seed)
    : random_(seed), window_(kInitialWindow), pacing_rate_(kInitialRate) {}

std::string_view ModelController::state() const {
  switch (state_) {
    case State::kStartup:
      return "startup";
    case State::kDrain:
      return "drain";
    case State::kUp:
      return "up";
    case State::kDown:
      return "down";
    case State::kCruise:
      return "cruise";
    case State::kPush:
      return "push";
  }
  return "?";
}

// What a few small packets reached says nothing of what the path would carry.
double ModelController::bandwidth() const {
  return std::max(pressed_ ? bandwidth_ : 0.0, state_ == State::kStartup ? train_estimate() : 0.0);
}

void ModelController::handle_ack(const AckEvent& event, const RttEstimator& rtt) {
  round_acked_ += event.acked_bytes;
  round_lost_ += event.lost_bytes;
  rtt_min_ = rtt.minimum();
  queue_target_ = std::clamp(rtt_min_ / 8, kQueueTargetMin, kQueueTargetMax);
  sample_bandwidth(event);
  sample_train(event);
  if (event.round_ended) end_round(event, rtt);
  if (state_ == State::kStartup && rtt.has_sample() && bandwidth_ > 0 && rtt.queueing() > queue_target_ &&
      round_ > 2)
    enter(State::kDrain);
  if (state_ == State::kDrain && (rtt.queueing() < queue_target_ / 4 ||
                                  static_cast<double>(event.in_flight) < bandwidth_ * to_seconds(rtt_min_)))
    enter(State::kCruise);
  control(rtt);
}

void ModelController::sample_bandwidth(const AckEvent& event) {
  if (event.rate <= 0) return;
  if (!event.app_limited) {
    round_app_limited_ = false;
    pressed_ |= event.prior_in_flight >= window_ / 2;
  }
  if (event.app_limited && event.rate <= bandwidth_) return;
  round_rate_ = std::max(round_rate_, event.rate);
  while (!samples_.empty() && samples_.back().rate <= event.rate) samples_.pop_back();
  samples_.push_back({round_, event.rate});
  bandwidth_ = samples_.front().rate;
}

void ModelController::sample_train(const AckEvent& event) {
  if (state_ != State::kStartup || !event.train) return;
  if (!trains_.empty() && trains_.back().id == event.train->id) trains_.pop_back();
  trains_.push_back(*event.train);
  if (trains_.size() > kTrainsMax) trains_.pop_front();
}

double ModelController::train_estimate() const {
  if (trains_.empty()) return 0;
  ByteCount bytes = 0;
  Duration spread{};
  for (const PacketTrain& train : trains_) {
    bytes += train.bytes;
    spread += train.spread;
  }
  // The receiver's times are those at which its program saw the packets. The noise of several trains
  // averages out.
  const double noise = to_seconds(kTimingNoise) * std::sqrt(static_cast<double>(trains_.size()));
  const double share = trains_.size() < kTrainsSeveral ? kFirstTrainShare : kTrainsShare;
  return share * static_cast<double>(bytes) / (to_seconds(spread) + noise);
}

ByteCount ModelController::burst() const {
  if (state_ == State::kStartup)
    return std::max(kTrainBytesMin, static_cast<ByteCount>(pacing_rate_ * kTrainSeconds));
  return std::max(kBurstBytesMin, static_cast<ByteCount>(pacing_rate_ * kBurstSeconds));
}

void ModelController::end_round(const AckEvent& event, const RttEstimator& rtt) {
  ++round_;
  ++rounds_in_state_;
  const Duration queue = rtt.queueing();
  // Old samples only make way for measurements: silence proves nothing.
  if (!round_app_limited_) {
    while (samples_.size() > 1 && samples_.front().round + kBandwidthRounds < round_) samples_.pop_front();
    if (!samples_.empty()) bandwidth_ = samples_.front().rate;
    follow_collapse(queue);
    learn_loss();
    if (state_ == State::kStartup)
      end_startup_round();
    else
      advance_cycle(event, queue);
  }
  round_rate_ = 0;
  round_app_limited_ = true;
  round_acked_ = round_lost_ = 0;
}

void ModelController::end_startup_round() {
  startup_cap_ =
      std::max(static_cast<double>(kTrainBytesMin), static_cast<double>(round_acked_ + round_lost_)) *
      kTrainGrowth / to_seconds(std::max(rtt_min_, Duration(50us)));
  // The path carries what trains said it would: the rest is found by pushing.
  if (trains_.size() >= kTrainsSeveral && round_rate_ > kTrainsConfirmed * pacing_rate_)
    return enter(State::kUp);
  if (bandwidth_ >= plateau_ * kStartupGrowth) {
    plateau_ = bandwidth_;
    plateau_rounds_ = 0;
  } else if (++plateau_rounds_ >= kPlateauRounds) {
    enter(State::kDrain);
  }
}

void ModelController::learn_loss() {
  // Only rounds that did not press on the queue tell the path's own loss.
  const ByteCount sent = round_acked_ + round_lost_;
  if (sent < 20 * kPacket || (state_ != State::kCruise && state_ != State::kDown)) return;
  const double loss = static_cast<double>(round_lost_) / static_cast<double>(sent);
  random_loss_ += (std::min(loss, kRandomLossMax) - random_loss_) * kLossWeight;
}

void ModelController::follow_collapse(Duration queue) {
  // A queue that stays although we probe no more, and less comes through than we believe: the path
  // shrank. Believe what came through.
  if (state_ == State::kStartup || state_ == State::kUp || state_ == State::kPush) return;
  if (queue < 2 * queue_target_ || round_rate_ <= 0 || round_rate_ > 0.9 * bandwidth_) return;
  samples_.clear();
  samples_.push_back({round_, round_rate_});
  bandwidth_ = round_rate_;
}

void ModelController::advance_cycle(const AckEvent&, Duration queue) {
  switch (state_) {
    case State::kStartup:
      return;
    case State::kDrain:
      if (rounds_in_state_ >= kDownRoundsMax) enter(State::kCruise);
      return;
    case State::kCruise:
      if (rounds_in_state_ >= cruise_rounds_) enter(State::kUp);
      return;
    case State::kUp:
    case State::kPush:
      enter(State::kDown);
      return;
    case State::kDown: {
      // The probe's packets have been answered now.
      const bool found_more = bandwidth_ > bandwidth_before_probe_ * kProbeSuccess && queue < queue_target_;
      if (found_more) {
        enter(bandwidth_ > bandwidth_before_probe_ * kPushSuccess ? State::kStartup : State::kPush);
      } else if (queue < queue_target_ / 4 || rounds_in_state_ >= kDownRoundsMax) {
        enter(State::kCruise);
      }
      return;
    }
  }
}

void ModelController::enter(State state) {
  state_ = state;
  rounds_in_state_ = 0;
  if (state == State::kUp || state == State::kPush) bandwidth_before_probe_ = bandwidth_;
  if (state == State::kCruise)
    cruise_rounds_ = kCruiseRoundsMin + static_cast<int>(random_.below(kCruiseRoundsSpread));
  if (state == State::kStartup) {
    plateau_ = bandwidth_;
    plateau_rounds_ = 0;
    trains_.clear();
    startup_cap_ = 0;
  }
}

double ModelController::gain(Duration queue) const {
  switch (state_) {
    case State::kStartup:
      return kStartupGain;
    case State::kDrain:
      return kDrainGain;
    case State::kUp:
      return kUpGain;
    case State::kDown:
      return kDownGain;
    case State::kPush:
      return kPushGain;
    case State::kCruise:
      return queue > queue_target_ ? 0.9 : queue > queue_target_ / 2 ? 0.98 : 1.0;
  }
  return 1.0;
}

void ModelController::control(const RttEstimator& rtt) {
  const double round_trip = to_seconds(std::max(rtt_min_, Duration(50us)));
  if (state_ == State::kStartup) return control_startup(round_trip);
  // What the path loses on its own must be sent on top, or every round would believe a little less.
  const double carried = bandwidth_ / (1 - random_loss_);
  pacing_rate_ = std::max(kRateMin, gain(rtt.queueing()) * carried);
  const double hold = state_ == State::kPush ? kPushGain : 1.0;
  const double window = carried * (hold * round_trip + to_seconds(queue_target_ + kHostDelay)) +
                        static_cast<double>(kWindowMin);
  window_ = std::max(kWindowMin, static_cast<ByteCount>(window));
}

void ModelController::control_startup(double round_trip) {
  const double estimate = train_estimate();
  if (estimate <= 0 && bandwidth_ <= 0) {
    pacing_rate_ = std::max(kInitialRate, kStartupGain * static_cast<double>(kInitialWindow) / round_trip);
    return;
  }
  const double cap =
      startup_cap_ > 0 ? startup_cap_ : kTrainGrowth * static_cast<double>(kInitialWindow) / round_trip;
  // On short paths the initial window alone is many times the capacity: only until trains know better.
  const double first = kStartupGain * static_cast<double>(kInitialWindow) / round_trip;
  const double rate = estimate > 0 ? std::min(std::max(estimate, bandwidth_), cap)
                                   : std::max(kStartupGain * bandwidth_, first);
  pacing_rate_ = std::max(kRateMin, rate);
  const double window = pacing_rate_ * (round_trip + to_seconds(queue_target_ + kHostDelay));
  window_ = kInitialWindow + static_cast<ByteCount>(window);
}

void ModelController::handle_outage(TimePoint) {
  // What the path is now nobody knows; start from a quarter of what it was.
  const double guess = bandwidth_ / 4;
  samples_.clear();
  bandwidth_ = guess;
  if (guess > 0) samples_.push_back({round_, guess});
  enter(State::kStartup);
}

}  // namespace tusk::transport
