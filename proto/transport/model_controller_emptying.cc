// Emptyings of the queue: when one is due, how much it leaves out, and what it has told of the path's loss,
// of the capacity and of the base round trip.
#include <algorithm>

#include "proto/transport/model_controller.h"
#include "proto/transport/rtt_estimator.h"

namespace tusk::transport {
namespace {

// Of the way to what trains say, after each one.
constexpr double kCapacityWeight = 1.0 / 4;

}  // namespace

void ModelController::lengthen(TimePoint now, RttEstimator& rtt) {
  rtt.forget_minimum(now);
  buffer_ = {};
  longer_path_.forget();
  base_.lengthen(rtt.minimum());
  emptying_.count_from(now);
  model_window_ = std::max(model_window_, rate_.best() * to_seconds(rtt.minimum()));
}

// What is lost of the test is known a round later, and if it was ours that counts two rounds after that:
// until then no more is sent than was delivered before. It would be lost, and that would ask for the next
// test.
void ModelController::await_test() {
  if (rtt_min_ < kFarAway) return;
  emptying_.keep(model_window_);
  model_window_ =
      std::min(model_window_, emptying_.before().delivered * to_seconds(rtt_min_ + round_queue_.wander()));
}

void ModelController::resume_after_test() {
  const double before = emptying_.take_kept();
  if (before <= 0) return;
  if (!loss_.content()) {
    model_window_ = std::max(model_window_, before);
    return;
  }
  goodput_.raise(emptying_.before().delivered);  // without what emptying left free
  // A round that lost much for another reason is no measure.
  model_window_ = std::max(model_window_, goodput_.mean() * to_seconds(rtt_min_));
  policed_.learn(goodput_.mean());
}

// What trains say that left while the queue was short.
void ModelController::verify_capacity() {
  check_.pass(round_);
  agree_with_siblings();
  if (!trains_.several()) return;
  const double measured = std::max(trains_.best(), rate_.newest());
  const double mean = std::max(trains_.capacity(), rate_.newest());
  trains_.clear();
  // Between the packets of siblings that fill the line trains tell less.
  const bool filled =
      others_.flows > 0 && others_.rate + goodput_.mean() > Contention::kTogetherAll * capacity_;
  if (measured < kCapacityAgrees * capacity_) {
    if (!filled) lower_capacity(measured);
    return;
  }
  // Each flow's queue goes by what it takes for the capacity: those that share a line must come to agree.
  if (loss_.policed()) return;
  capacity_ += (mean - capacity_) * kCapacityWeight;
}

void ModelController::lower_capacity(double rate) {
  capacity_ = rate;
  carried_ = {};
  base_.expect_change();
  rate_.restart(round_, rate_.newest());
}

bool ModelController::puzzled() {
  return base_.end_round({.queue = round_queue_.queue(),
                          .usual_queue = usual_queue(),
                          .share = share_of(rate_.newest()),
                          .explained = siblings_fill()});
}

bool ModelController::empty_due(TimePoint now, const RttEstimator& rtt) const {
  if (free_rounds_ > 0 && !base_.doubtful()) return false;  // it is empty
  if (contention_.insists()) return false;                  // who fills the queue would take what we leave
  if (siblings_empty(now, rtt)) return true;
  const Duration since = now - (base_.doubtful() ? emptying_.counted_from()
                                                 : std::max(emptying_.counted_from(), rtt.minimum_at()));
  // Those that hear late of each other are told when.
  if (siblings_fill() && !base_.doubtful())
    return since > (others_.late > Duration(0) ? 2 : 1) * Siblings::empty_every(rtt_min_);
  return since > Emptying::every(shared() || base_.doubtful(), rtt_min_);
}

Emptying::Path ModelController::emptying_path(double round_trip) const {
  return {.round_trip = round_trip,
          .rate = rate_.newest(),
          .best_rate = rate_.best(),
          .extra = extra_window(),
          .noise = to_seconds(round_queue_.wander()) + extra_window() / std::max(rate_.best(), kRateMin),
          .packet = packet(),
          .shared = shared(),
          .tests_base = base_.tests(),
          .base_doubtful = base_.doubtful(),
          .tests_loss = loss_.suspects()};
}

}  // namespace tusk::transport
