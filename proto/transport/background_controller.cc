#include "proto/transport/background_controller.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tusk::transport {
namespace {

constexpr double kDatagram = kUsualPacket;
constexpr double kFirstWindow = 32 * kDatagram;
constexpr double kFirstRate = kFirstWindow / 0.1;  // bytes/s before the first round trip is known
constexpr double kLeastRate = 10 * kDatagram;      // ten packets a second keep a dying path alive
constexpr ByteCount kTrainBytesMin = 16 * 1200;
constexpr ByteCount kShortBurst = 4 * kUsualPacket;
constexpr double kShortBurstSeconds = 250e-6;
constexpr double kGrowGain = 1.1;  // of pacing: the window decides
constexpr double kGain = 1.03;

// Flows of normal priority keep a queue of an eighth of the round trip, within these (model_controller.cc: 5
// to 12 ms at least, but less where a buffer has no room for that). Ours is much shorter; three quarters of
// theirs are a sign of them, less than six tenths are not.
constexpr Duration kNormalQueueMin = 3ms;
constexpr Duration kNormalQueueMax = 10ms;
constexpr Duration kShortQueueMin = 1500us;
constexpr Duration kShortQueueMax = 2500us;
constexpr double kYieldAbove = 0.75;
constexpr double kQuietBelow = 0.6;
// On slow lines a few packets are a queue.
constexpr double kGrainPackets = 4;

constexpr double kTrickle = 0.02;
constexpr double kTrickleLeast = 2 * kDatagram;
// More of them when others were still there the last time.
constexpr int kQuietRounds = 8;
constexpr int kQuietRoundsMax = 16;
constexpr int kRoundsInPeace = 50;
constexpr double kTrainsTrue = 0.95;
constexpr double kDoubling = 2;
constexpr double kQuadrupling = 4;   // to a rate that is known
constexpr double kSureShare = 0.75;  // of what was got before others came: up to there at once
constexpr double kGrowing = 1.25;
constexpr int kPlateau = 6;
constexpr double kStepShare = 0.75;
constexpr int kBlind = 2;
constexpr double kUnseen = 1.25;
constexpr double kPaceAboveFull = 1.01;  // times the capacity, where it was reached before
constexpr double kPaceAbove = 1.1;
constexpr double kNear = 0.9;  // to the capacity
constexpr int kFreeRounds = 12;
constexpr int kJitterForgotten = 64;
constexpr Duration kEmptyInterval = 4s;
constexpr double kEmptying = 0.9;

Duration normal_queue(Duration rtt_min) { return std::clamp(rtt_min / 8, kNormalQueueMin, kNormalQueueMax); }
Duration short_queue(Duration rtt_min) { return std::clamp(rtt_min / 32, kShortQueueMin, kShortQueueMax); }

}  // namespace

BackgroundController::BackgroundController()
    : model_window_(kFirstWindow),
      quiet_needed_(kQuietRounds),
      window_(static_cast<ByteCount>(kFirstWindow)),
      pacing_rate_(kFirstRate) {}

std::string_view BackgroundController::state() const {
  switch (state_) {
    case State::kGrow:
      return "grow";
    case State::kSteady:
      return "steady";
    case State::kYield:
      return "yield";
    case State::kEmpty:
      return "empty";
  }
  return "?";
}

ByteCount BackgroundController::burst() const {
  // The first window leaves as a train, which tells the capacity.
  if (state_ == State::kGrow && sure_ <= 0) return static_cast<ByteCount>(kFirstWindow);
  return std::max(kShortBurst, static_cast<ByteCount>(pacing_rate_ * kShortBurstSeconds));
}

double BackgroundController::trickle() const {
  return std::max(kTrickle * capacity_ * to_seconds(rtt_min_), kTrickleLeast);
}

Duration BackgroundController::grain() const {
  return capacity_ > 0 ? from_seconds((2 * kGrainPackets * kDatagram + batch_) / capacity_) : Duration(0);
}
Duration BackgroundController::quiet_below() const {
  return std::chrono::duration_cast<Duration>(kQuietBelow * normal_queue(rtt_min_)) +
         (capacity_ > 0 ? from_seconds(2 * kGrainPackets * kDatagram / capacity_) : Duration(0));
}
Duration BackgroundController::yield_above() const {
  return std::chrono::duration_cast<Duration>(kYieldAbove * normal_queue(rtt_min_)) + grain() +
         round_queue_.wander();
}

// ---------------------------------------------------------------- measuring

void BackgroundController::handle_ack(const AckEvent& event, RttEstimator& rtt) {
  round_acked_ += event.acked_bytes;
  round_lost_ += event.lost_bytes;
  rtt_min_ = rtt.minimum();
  sample(event);
  if (event.round_ended) end_round(event, rtt);
  // Not at the end of a round only: others have the line sooner.
  const Duration queue = recent_.empty() ? Duration(0) : recent_.min() - rtt_min_;
  if (state_ == State::kYield) {
    if (event.in_flight > window_ && event.rate > 0) drain_rate_ = event.rate;
  } else if (queue > yield_above()) {
    enter(State::kYield);
  }
  control(rtt);
}

void BackgroundController::sample(const AckEvent& event) {
  if (event.rtt > Duration(0)) {
    round_queue_.add({.rtt = event.rtt});
    recent_.add(event.now, event.rtt, std::max(rtt_min_ / 4, RttEstimator::kStandingWindowMin / 4));
  }
  if (event.train && event.train->bytes >= kTrainBytesMin) {
    trains_.add(*event.train);
    sure_ = std::max(sure_, trains_.safe_rate());
    capacity_ = std::max(capacity_, kTrainsTrue * trains_.capacity());
  }
  ++round_acks_;
  if (event.rate > 0 && !event.app_limited) round_app_limited_ = false;
}

void BackgroundController::measure_round(TimePoint now) {
  const double seconds = to_seconds(std::max(now - round_started_, Duration(50us)));
  const double rate = static_cast<double>(round_acked_) / seconds;
  if (round_app_limited_ && rate < rate_) return;
  rate_ = rate;
  if (state_ == State::kYield) return;
  batch_ = static_cast<double>(round_acked_) / std::max(1, round_acks_);
  capacity_ = std::max(capacity_, rate_);
}

// What is lost of an emptying is known in the round after it.
void BackgroundController::learn_loss() {
  const auto sent = static_cast<double>(round_acked_ + round_lost_);
  if (sent <= 0 || state_ != State::kSteady) return;
  const bool test = std::exchange(tests_, false);
  const bool suspected = loss_.suspects();
  lost_ = static_cast<double>(round_lost_) / sent;
  loss_.end_round({.lost = lost_,
                   .packets = sent / kDatagram,
                   .test = test,
                   .judged = rounds_in_state_ > kBlind,
                   .queue_short = true,
                   .harmless = policed_.speaks_against(rate_, false)});
  if (test && suspected && loss_.content()) policed_.learn(before_test_);
  if (!loss_.policed()) policed_.forget();
}

// ---------------------------------------------------------------- rounds

void BackgroundController::end_round(const AckEvent& event, const RttEstimator& rtt) {
  ++rounds_in_state_;
  ++rounds_in_peace_;
  measure_round(event.now);
  round_queue_.end_round(rtt_min_, rtt.standing());
  if (state_ == State::kYield) {
    end_yield_round();
  } else if (round_app_limited_) {
    // No more than twice what was used: others may have the rest by the time it is wanted (RFC 7661).
    model_window_ = std::clamp(2.0 * static_cast<double>(round_acked_), kFirstWindow,
                               std::max(kFirstWindow, model_window_));
    if (state_ != State::kGrow) enter(State::kGrow);
  } else {
    learn_loss();
    if (state_ == State::kGrow)
      end_grow_round();
    else if (state_ == State::kSteady)
      end_steady_round(event.now, rtt);
    else
      enter(State::kSteady);
  }
  if (state_ != State::kEmpty) loss_.end_content_round();
  round_app_limited_ = true;
  round_started_ = event.now;
  round_acked_ = round_lost_ = 0;
  round_acks_ = 0;
}

void BackgroundController::end_grow_round() {
  const bool growing = rate_ > kGrowing * rate_before_round_;
  plateau_rounds_ = growing ? 0 : plateau_rounds_ + 1;
  rate_before_round_ = std::max(rate_before_round_, rate_);
  model_window_ *= sure_ > 0 ? kQuadrupling : kDoubling;
  const double known = sure_ * to_seconds(rtt_min_);
  if (known > 0) model_window_ = std::min(model_window_, std::max(known, kFirstWindow));
  if (plateau_rounds_ >= kPlateau || (known > 0 && model_window_ >= known)) enter(State::kSteady);
}

void BackgroundController::end_steady_round(TimePoint now, const RttEstimator& rtt) {
  if (rounds_in_state_ <= kBlind) return;
  const double base = to_seconds(rtt_min_);
  const double share = std::min(1.0, rate_ / capacity_);
  const double queued =
      loss_.content() ? 0 : capacity_ * to_seconds(short_queue(rtt_min_)) * std::sqrt(share);
  // Acknowledgements come in batches; what they hold back is not on the path.
  const double held = rate_ * (base + to_seconds(round_queue_.wander())) + batch_;
  // A queue shows two rounds later than what made it: short steps where one was the last time.
  // What round trips wander without one is the path's jitter.
  const Duration wander = round_queue_.wander();
  jitter_ = std::min(wander, jitter_ + wander / kJitterForgotten);
  const Duration queue = round_queue_.queue() + wander - jitter_;
  full_ = queue > short_queue(rtt_min_) ? true : full_ && free_rounds_ < kFreeRounds;
  free_rounds_ = queue < short_queue(rtt_min_) / 4 ? free_rounds_ + 1 : 0;
  const bool near = full_ && rate_ > kNear * capacity_;
  const Duration step_max = near ? short_queue(rtt_min_) / 2 : normal_queue(rtt_min_) / 2;
  const Duration step = std::min(rtt_min_ / 12, step_max);
  const double free = loss_.content() || loss_.policed()
                          ? 0
                          : std::max(0.0, 1 - to_seconds(queue) / to_seconds(short_queue(rtt_min_)));
  // What was given last may not have arrived yet.
  const double given = std::min(model_window_, kUnseen * rate_ * base + batch_);
  const double wanted = free > 0 ? std::max(held + queued, given) : held + queued;
  const double lawful =
      model_window_ + kStepShare * (wanted - model_window_) + free * capacity_ * to_seconds(step);
  model_window_ = policed_.end_round({.window = model_window_,
                                      .lawful = lawful,
                                      .delivered = rate_,
                                      .round_trip = base + to_seconds(wander),
                                      .lost = lost_ - loss_.own(),
                                      .queue = round_queue_.queue() >= short_queue(rtt_min_) / 4,
                                      .content = loss_.content()});
  const bool due = now - std::max(emptied_at_, rtt.minimum_at()) > kEmptyInterval;
  if (!due && !loss_.suspects()) return;
  emptied_at_ = now;
  enter(State::kEmpty);
}

// What was in flight is on its way out in the first round.
void BackgroundController::end_yield_round() {
  const Duration queue = round_queue_.queue();
  quiet_rounds_ = queue < quiet_below() ? quiet_rounds_ + 1 : 0;
  if (quiet_rounds_ >= quiet_needed_) {
    // Others may have had the rest, or the line is slower now.
    if (full_ && drain_rate_ > 0) capacity_ = std::max(drain_rate_, capacity_ / 2);
    full_ = false;
    enter(State::kGrow);
  }
}

void BackgroundController::enter(State state) {
  if (state == State::kYield) {
    trains_.clear();
    if (state_ == State::kSteady) sure_ = kSureShare * rate_;
    drain_rate_ = 0;
    model_window_ = trickle();
    quiet_rounds_ = 0;
    const bool at_once = state_ == State::kGrow || rounds_in_peace_ < kRoundsInPeace;
    quiet_needed_ = at_once ? std::min(2 * quiet_needed_, kQuietRoundsMax) : kQuietRounds;
    rounds_in_peace_ = 0;
  }
  if (state_ == State::kYield || state == State::kYield) loss_.forget_suspicion();
  if (state == State::kEmpty) before_test_ = rate_;
  tests_ = state_ == State::kEmpty && state == State::kSteady;
  rate_before_round_ = 0;
  plateau_rounds_ = free_rounds_ = 0;
  state_ = state;
  rounds_in_state_ = 0;
}

void BackgroundController::handle_outage(TimePoint) {
  rate_ = capacity_ = sure_ = 0;
  trains_.clear();
  model_window_ = kFirstWindow;
  loss_.forget_suspicion();
  policed_.forget();
  enter(State::kGrow);
  // At once: what is sent until something is acknowledged goes by it, too.
  window_ = static_cast<ByteCount>(kFirstWindow);
  pacing_rate_ = kFirstRate;
}

// ---------------------------------------------------------------- acting

void BackgroundController::control(const RttEstimator& rtt) {
  const double round_trip = to_seconds(std::max(rtt_min_, Duration(50us)));
  double window = model_window_;
  // What was sent before it is known would be lost, too.
  const bool waits = tests_ && loss_.suspects();
  if (state_ == State::kEmpty || waits) window = kEmptying * before_test_ * round_trip;
  if (state_ == State::kSteady) window = window / (1 - loss_.own()) + kGrainPackets * kDatagram;
  window_ = static_cast<ByteCount>(std::max(window, kTrickleLeast));
  const double gain = state_ == State::kGrow ? kGrowGain : kGain;
  const double rate = gain * static_cast<double>(window_) / (round_trip + to_seconds(rtt.queueing()));
  const double most = (full_ ? kPaceAboveFull : kPaceAbove) * capacity_ / (1 - loss_.own());
  pacing_rate_ = std::max(kLeastRate, state_ == State::kSteady ? std::min(rate, most) : rate);
}

}  // namespace tusk::transport
