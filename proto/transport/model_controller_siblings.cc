// What the controller does with what flows to the same host tell (siblings.h).
#include <algorithm>
#include <cmath>
#include <utility>

#include "proto/transport/model_controller.h"
#include "proto/transport/rtt_estimator.h"

namespace tusk::transport {
namespace {

// Of the way to what each of several flows to one host should have, in a round; and no more than so much of
// what it has.
constexpr double kEvenStep = 0.3;
constexpr double kEvenMost = 0.3;
constexpr double kFilled = 0.9;
// Who is behind has what it is owed within such a time, and no more than so much more than the others.
constexpr double kCatchUpSeconds = 1.5;
constexpr double kCatchUpMost = 0.2;
constexpr double kCatchUpEach = 0.1;  // second that it is behind
constexpr double kCatchUpMostMuch = 0.8;
constexpr Duration kTellEvery = 5ms;
constexpr Duration kTellEveryOfEach = 50us;  // one looks at all others
// Of what they take the line for: more than that is more lines. Of many it may be less than the line, since
// between the packets of others trains tell less, and on a busy machine, too.
constexpr double kTogetherMax = 1.5;
constexpr double kTogetherMaxEach = 1.0 / 3;
constexpr double kTogetherWeight = 0.25;
constexpr double kCrowdHas = 0.9;  // of what each told a moment ago, of which one may have left

}  // namespace

ModelController::~ModelController() {
  if (siblings_) siblings_->leave(this);
}

void ModelController::meet(std::shared_ptr<Siblings> siblings) {
  if (siblings == siblings_) return;  // whose account of it stays
  if (siblings_) siblings_->leave(this);
  siblings_ = std::move(siblings);
  others_ = {};
}

// Its part of what all that are here should have.
double ModelController::part_of_all() const {
  return part_ / (others_.flows > 0 ? std::max(1.0, others_.parts + part_) : 1);
}

void ModelController::tell_siblings(TimePoint now, Duration queue) {
  const Duration every = std::max<Duration>(kTellEvery, others_.flows * kTellEveryOfEach);
  if (!siblings_ || (now - told_at_ < every && !others_.guessed)) return;
  told_at_ = now;
  others_ = siblings_->tell(this, {.now = now,
                                   .part = part_,
                                   .rate = state_ == State::kStartup ? 0 : goodput_.mean(),
                                   .delivered = delivered_,
                                   .capacity = std::max(capacity_, trains_.capacity()),
                                   .base = rtt_min_,
                                   .queue = queue,
                                   .emptying = emptying_.announced()});
}

double ModelController::share_of_siblings() const {
  if (others_.rate_of_all <= 0) return 0;
  // Who alone takes it for more would not see that it is full.
  const bool outvoted = others_.flows >= Siblings::kCrowd && others_.capacity > 0;
  const double line = outvoted ? others_.capacity : std::max(capacity_, others_.capacity);
  const double share = (others_.rate_of_all + goodput_.mean()) / line;
  const double lines_of_their_own = std::max(kTogetherMax, kTogetherMaxEach * (others_.flows + 1));
  return share < lines_of_their_own ? share : 0;
}

bool ModelController::siblings_fill() const {
  return others_.flows > 0 && share_of_siblings() > Contention::kTogetherAll;
}

// All that share a queue empty it at the same time, or none of them sees the bare path. Strangers would take
// what all leave.
bool ModelController::siblings_empty(TimePoint now, const RttEstimator& rtt) const {
  return siblings_fill() && others_.emptying > emptying_.announced() + others_.late &&
         now - others_.emptying < rtt_min_ + rtt.queueing() + others_.late;
}

// Each hears of it within a round trip; until the last one has, and the path has been seen without their
// queue, nobody fills it again.
void ModelController::empty_with_siblings(TimePoint now, const RttEstimator& rtt) {
  const TimePoint began = siblings_empty(now, rtt) ? others_.emptying : now;
  const Duration heard = 2 * (rtt_min_ + others_.late) + rtt.queueing();
  emptying_.announce(began, siblings_fill() ? began + heard : now);
  told_at_ = {};  // at once
  tell_siblings(now, rtt.queueing());
}

// What all believe in common; and what they have together, they can have.
void ModelController::agree_with_siblings() {
  if (!siblings_fill() || others_.capacity <= 0) return;
  capacity_ += (others_.capacity - capacity_) / 2;
  const double together = others_.rate + goodput_.mean();
  if (shared() && together > capacity_) capacity_ += (together - capacity_) * kTogetherWeight;
}

double ModelController::even_rate() const {
  return part_ * (others_.rate + goodput_.mean()) / (others_.parts + part_);
}

// Of its part: who had less of the line than its siblings has more until all had the same.
double ModelController::owed() const {
  if (!siblings_fill()) return 0;
  const double seconds = -others_.ahead / even_rate();
  // Of two one may want less than its part, for which the other would have to wait.
  const double much = others_.flows >= Siblings::kCrowd ? kCatchUpEach * std::abs(seconds) : 0;
  const double most = std::clamp(much, kCatchUpMost, kCatchUpMostMuch);
  return std::clamp(seconds / kCatchUpSeconds, -most, most);
}

// What one gives the others take, so that together they are to the line what they were. Beside strangers, who
// would take it, they insist on the same part each.
void ModelController::share_evenly(Duration queue) {
  if (!siblings_fill()) return;
  if (others_.flows >= Siblings::kCrowd)
    capacity_ = std::max(capacity_, kCrowdHas * (others_.rate + goodput_.mean()));
  const double even = (1 + owed()) * even_rate();
  // Without a queue nobody waits for what it would give, and a busy machine does not send what it would take.
  if (round_queue_.queue() < own_queue() / 2 && (even < goodput_.mean() || rate_.filled() < kFilled)) return;
  const double step = kEvenStep * (even - goodput_.mean());
  model_window_ += std::clamp(step, -kEvenMost * goodput_.mean(), kEvenMost * goodput_.mean()) *
                   to_seconds(rtt_min_ + queue);
  model_window_ = std::max(model_window_, extra_window());
  // Who owes much and sees less of the queue than the others (on a busy machine it waits for a processor)
  // would have more of the line for ever with the queue that the law gives it.
  if (owed() < -kCatchUpMost) {
    const double least = std::max(even * to_seconds(rtt_min_ + queue), extra_window());
    model_window_ = std::min(model_window_, std::max(least, (1 - kEvenMost) * model_window_));
  }
}

void ModelController::handle_demand(TimePoint now, RttEstimator& rtt) {
  if (!siblings_ || state_ != State::kStartup || !rtt.has_sample()) return;
  rtt_min_ = rtt.minimum();
  tell_siblings(now, rtt.queueing());
  control(rtt);
}

}  // namespace tusk::transport
