// What the controller does with what flows to the same host tell (siblings.h).
#include <algorithm>
#include <utility>

#include "proto/transport/model_controller.h"
#include "proto/transport/rtt_estimator.h"

namespace tusk::transport {
namespace {

// Of the way to what each of several flows to one host should have, in a round; and no more than so much of
// what it has.
constexpr double kEvenStep = 0.3;
constexpr double kEvenMost = 0.3;
constexpr Duration kTellEvery = 5ms;
constexpr double kTogetherMax = 1.5;

}  // namespace

ModelController::~ModelController() {
  if (siblings_) siblings_->leave(this);
}

void ModelController::meet(std::shared_ptr<Siblings> siblings) {
  if (siblings_) siblings_->leave(this);
  siblings_ = std::move(siblings);
  others_ = {};
}

// What it starts with of the line: its part of what all that are here should have.
double ModelController::start_part() const {
  return part_ / (others_.flows > 0 ? std::max(1.0, others_.parts + part_) : 1);
}

void ModelController::tell_siblings(TimePoint now, Duration queue) {
  if (!siblings_ || now - told_at_ < kTellEvery) return;
  told_at_ = now;
  others_ = siblings_->tell(this, {.now = now,
                                   .part = part_,
                                   .rate = state_ == State::kStartup ? 0 : goodput_,
                                   .capacity = std::max(capacity_, trains_.capacity()),
                                   .base = rtt_min_,
                                   .queue = queue,
                                   .emptying = emptying_at_});
}

double ModelController::share_of_siblings() const {
  if (others_.rate_of_all <= 0) return 0;
  const double line = others_.capacity > 0 ? std::min(capacity_, others_.capacity) : capacity_;
  const double share = (others_.rate_of_all + goodput_) / line;
  return share < kTogetherMax ? share : 0;  // they have lines of their own
}

// What one gives the others take, so that together they are to the line what they were. Beside strangers each
// fights for itself.
void ModelController::share_evenly(Duration queue) {
  if (others_.flows == 0 || share_of_siblings() < Contention::kTogetherAll) return;
  const double even = part_ * (others_.rate + goodput_) / (others_.parts + part_);
  const double step = kEvenStep * (even - goodput_);
  model_window_ +=
      std::clamp(step, -kEvenMost * goodput_, kEvenMost * goodput_) * to_seconds(rtt_min_ + queue);
  model_window_ = std::max(model_window_, extra_window());
}

void ModelController::handle_demand(TimePoint now, RttEstimator& rtt) {
  if (!siblings_ || state_ != State::kStartup || !rtt.has_sample()) return;
  rtt_min_ = rtt.minimum();
  tell_siblings(now, rtt.queueing());
  control(rtt);
}

}  // namespace tusk::transport
