// The law of the controller's window in its steady state, and what may take the window further: a line that
// is free, and flows that fill every buffer.
#include <algorithm>
#include <cmath>

#include "proto/transport/model_controller.h"
#include "proto/transport/rtt_estimator.h"

namespace tusk::transport {
namespace {

// On top of the model, the same for all that share a line: it makes shares equal. On a slow line it would be
// a queue that never empties, and that of sixteen flows would be taken for strangers'. Beside those it keeps
// us from being pressed to nothing before we insist.
constexpr double kExtraSeconds = 0.5e-3;
constexpr double kExtraSecondsBesideOthers = 2e-3;
constexpr double kExtraWindowMin = 4.0 * kUsualPacket;
constexpr double kExtraWindowMax = 16.0 * kUsualPacket;
// Of the way to the window that the law wants, in a round.
constexpr double kStep = 0.75;
constexpr double kFreeGrowth = 1.08;
constexpr double kTakenAtOnceMax = 2;
// What one of many takes of it beyond what the others have.
constexpr double kAheadMost = 1.25;

// Flows of ours that share a line all empty the queue in so long.
constexpr Duration kShortRememberedMin = 1s;
constexpr int kShortRememberedRtts = 24;
// More loss beyond the path's own may be a full buffer, which stays as long whatever we do.
constexpr double kQuietLoss = 0.01;

}  // namespace

double ModelController::extra_window() const {
  const double seconds = std::lerp(kExtraSeconds, kExtraSecondsBesideOthers, contention_.suspicion());
  const double extra = std::clamp(seconds * capacity_, kExtraWindowMin, kExtraWindowMax);
  if (!buffer_.limited()) return part_ * extra;
  // On a short path it alone would overrun a short buffer.
  return part_ * std::min(extra, std::max(kExtraWindowMin, capacity_ * to_seconds(rtt_min_ + own_queue())));
}

Duration ModelController::own_queue() const { return std::min(usual_queue(), buffer_.room()); }

void ModelController::end_steady_round(TimePoint now, RttEstimator& rtt) {
  if (check_.due() && rounds_in_state_ >= kBlindRounds && !passes_overrun()) verify_capacity();
  if (end_overrun_round(now, rtt)) return;
  // Siblings that empty their queue all together see the bare path then.
  if (siblings_fill()) longer_path_.forget();
  if (!contention_.insists() && !siblings_fill() &&
      longer_path_.end_round({.flight = rate_.flight(),
                              .rate = rate_.newest() / part_,
                              .capacity = capacity_,
                              .queue = round_queue_.queue(),
                              .wander = round_queue_.average() - round_queue_.queue(),
                              .lossless = tally_.loss() - loss_.own() < kQuietLoss})) {
    lengthen(now, rtt);
    blind_until_ = round_ + kBlindRounds;
  }
  if (round_ <= blind_until_) return;
  const bool content = loss_.content();
  if (content) loss_.end_content_round();
  const double part = part_ * (1 + owed());
  const auto lawful = [&](double rate) {
    const double held = rate * to_seconds(rtt_min_ + round_queue_.wander());
    double queued = capacity_ * to_seconds(own_queue()) * std::sqrt(part * std::min(1.0, rate / capacity_));
    if (buffer_.limited()) queued -= std::min(queued, extra_window());  // which needs room, too
    if (content) queued = 0;
    return model_window_ + kStep * (held + queued - model_window_);
  };
  if (!loss_.policed()) policed_.forget();
  // What was not sent has not been delivered: a window that a busy machine did not fill is not too large.
  const double kept = content ? 0 : std::min(model_window_, lawful(rate_.newest_full()));
  const double wanted = std::max(lawful(content ? goodput_.mean() : shown_rate()), kept);
  model_window_ = policed_.end_round({.window = model_window_,
                                      .lawful = wanted,
                                      .delivered = goodput_.mean(),
                                      .round_trip = to_seconds(rtt_min_ + round_queue_.wander()),
                                      .lost = tally_.loss() - loss_.own(),
                                      .queue = round_queue_.queue() >= own_queue() / 8,
                                      .content = content});
  grow_into_free_capacity();
  share_evenly(rtt.queueing());
  insist_if_starved(now, rtt.queueing());
  const bool due = empty_due(now, rtt);
  if (due) empty_with_siblings(now, rtt);  // what one wants to know for itself is no reason for them
  if ((loss_.suspects() && !contention_.insists()) || contention_.doubts_capacity() || puzzled() || due)
    enter(State::kEmpty);
}

// What a full window would have brought, where no queue speaks against it: as far as the line is known. Else
// a busy machine at the end of a far path, whose law adds a few hundredths of the window for the queue, would
// leave as much free as it does not fill.
double ModelController::shown_rate() const {
  const bool policer = loss_.policed() || tally_.loss() - loss_.own() > kQuietLoss;
  if (policer || round_queue_.queue() >= own_queue() / 8) return rate_.newest();
  return std::max(rate_.newest(), std::min(rate_.newest_full(), part_ * capacity_));
}

// The law adds a queue's worth in a round. Where there is much more, trains tell how much.
void ModelController::grow_into_free_capacity() {
  train_room_.end_round(sends_trains(), tally_.loss() - loss_.own());
  const bool free = round_queue_.queue() < own_queue() / 8 && !siblings_fill();
  free_rounds_ = free && !loss_.content() ? free_rounds_ + 1 : 0;
  climbing_ = climbing_ && free_rounds_ > 0;
  if (free_rounds_ == 0) return trains_.clear();
  if (loss_.policed() || free_rounds_ < kFreeRounds) return;
  // Where the others do not come along it is no line that is free, but a machine that is busy.
  if (others_.flows >= Siblings::kCrowd && goodput_.mean() > kAheadMost * even_rate()) return;
  model_window_ = std::max(model_window_, kFreeGrowth * rate_.newest() * to_seconds(rtt_min_));
  if (!trains_.several() || trains_.safe_rate() < kWorthTaking * rate_.newest()) return;
  if (trains_.capacity() > kWorthTaking * capacity_) train_room_.reset();
  // Others may see it at the same time: up to a half at once, then twice as much.
  capacity_ = std::max(capacity_, trains_.capacity());
  const double taken = std::min(std::max(kTakenAtOnceMax * rate_.newest(), part_of_all() * capacity_ / 2),
                                trains_.safe_rate());
  model_window_ = std::max(model_window_, taken * to_seconds(rtt_min_));
  free_rounds_ = kFreeRounds - 1;
  climbing_ = trains_.safe_rate() > kTakenAtOnceMax * rate_.newest();
  blind_until_ = round_ + kBlindRounds;
  trains_.clear();
}

// Siblings are one beside strangers: what counts is what all of them have, and each insists on its part of
// it.
void ModelController::insist_if_starved(TimePoint now, Duration queue) {
  const double part = part_of_all();
  const double got =
      others_.flows > 0 ? (others_.rate + rate_.newest()) / capacity_ : share_of(rate_.newest());
  const Duration extra = from_seconds(extra_window() / (part_ * capacity_));  // of all flows of a mount
  const bool is_short = round_queue_.queue() < own_queue() * 3 / 2 + extra;
  const Duration remembered = std::max<Duration>(kShortRememberedMin, kShortRememberedRtts * rtt_min_);
  const auto share = contention_.end_round({.now = now,
                                            .got = std::min(1.0, got),
                                            .flows = part_ / part,
                                            .queue = queue,
                                            .usual_queue = usual_queue(),
                                            .extra_queue = extra,
                                            .round_trip = rtt_min_,
                                            .is_short = is_short,
                                            .empties_in = remembered,
                                            .loss = tally_.loss() - loss_.own(),
                                            .overflow = loss_.pressed_out(tally_.loss()),
                                            .capacity_known = check_.passed_lately(round_),
                                            .together = share_of_siblings()});
  if (contention_.insisted_in_vain())
    lower_capacity(std::min(capacity_, std::max(rate_.newest() / part, others_.rate + rate_.newest())));
  if (share)
    model_window_ = std::max(model_window_, *share * part * capacity_ * to_seconds(rtt_min_ + queue));
}

}  // namespace tusk::transport
