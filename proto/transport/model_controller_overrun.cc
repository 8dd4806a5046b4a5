// What the controller does where a line has become narrow at once. Most of what is in flight for the wide one
// is lost, with a full queue: what is delivered is what it carries. Until what was sent before is gone, less
// than that is sent, in trains that tell whether the line is narrower or others are here (a BBR that starts
// overruns a line as much). If it is narrower the queue is let run empty: what is left of the round trip is
// the path, which may be longer, too.
#include <algorithm>
#include <cmath>

#include "proto/transport/model_controller.h"
#include "proto/transport/rtt_estimator.h"

namespace tusk::transport {
namespace {

// So much is lost of a round only where the line is narrower, or others send more than twice its rate.
constexpr double kOverrunLoss = 0.7;
constexpr double kOverrunPackets = 100;
// Before its end: of what was told newly, with a queue that is clearly more than ours.
constexpr double kNewestLoss = 0.8;
constexpr int kNewestQueues = 2;
// Who had so much of the line before, or has so much of what trains say of it now, has it alone.
constexpr double kOverrunAlone = 0.8;
// Of what the line carries, a round: what it sends less shows the path when the queue is gone.
constexpr double kDrainOverrun = 0.85;
constexpr std::uint64_t kDrainRounds = 16;
constexpr double kDrainedAlone = 0.65;  // of what the line carries, of which it sends 0.85
// For trains, if the first ones told nothing.
constexpr std::uint64_t kLateRounds = 2;

}  // namespace

bool ModelController::after_overrun() const {
  return overrun_.happened() && !overrun_.judged() &&
         round_ < overrun_.last_round() + kBlindRounds + kLateRounds;
}

// Before the end of a round, which is long in a queue that the narrow line takes long to pass: a window that
// is only counted would send once more all that was lost. What counts is what was told lately: the round may
// have begun on the wide line.
bool ModelController::overruns_already(const RttEstimator& rtt) const {
  if (state_ != State::kSteady && state_ != State::kEmpty) return false;
  if (overrun_.happened() && round_ <= overrun_.last_round() + kBlindRounds) return false;
  // Others that start overrun a line, too, and who pauses for that has less.
  if (share_of(rate_.best()) < kOverrunAlone) return false;
  return newest_loss_.share() > kNewestLoss && rtt.queueing() > kNewestQueues * usual_queue();
}

void ModelController::begin_overrun(TimePoint now, Duration queue, std::uint64_t until) {
  if (state_ == State::kEmpty) enter(State::kSteady);
  overrun_ = Overrun(until, delivered_, queue);
  newest_loss_ = {};
  base_.abandon_test();
  emptying_.forget_kept();
  longer_path_.forget();
  trains_.clear();
  blind_until_ = until + kBlindRounds;
  emptying_.count_from(now);
}

// Next to nothing is sent for half of what stands in the queue. What comes of it meanwhile, from one
// acknowledgement to another, is what the line carries.
void ModelController::measure_overrun(const AckEvent& event) {
  if (event.acked_bytes > 0) overrun_.acknowledge(event.now, delivered_);
  const double meanwhile = kRateMin * to_seconds(rtt_min_ + overrun_.queue()) + 2 * kUsualPacket;  // sent
  const bool nothing_left = static_cast<double>(event.in_flight) <= meanwhile;
  if (nothing_left || overrun_.heard_enough()) end_measuring_overrun(event.now);
}

// What came is believed if it is more than what was sent meanwhile, over time enough. Else the line was gone.
void ModelController::end_measuring_overrun(TimePoint now) {
  const auto rate = overrun_.carried(delivered_);
  if (rate && *rate > 2 * kRateMin) return believe_overrun(*rate);
  handle_outage(now);
}

// However its rounds end: without having measured, and without trains that told anything.
void ModelController::settle_overrun(TimePoint now) {
  if (!overrun_.happened() || round_ <= overrun_.last_round()) return;
  if (!overrun_.measured()) return end_measuring_overrun(now);
  if (round_ > overrun_.last_round() + kBlindRounds + kLateRounds) overrun_.set_judged();
}

void ModelController::believe_overrun(double rate) {
  overrun_.set_measured();
  rate_.restart(round_, rate);
  const Duration longer = std::min(overrun_.queue(), rtt_min_ / 4);  // the path may be
  model_window_ = rate * to_seconds(rtt_min_ + longer + own_queue());
}

bool ModelController::end_overrun_round(TimePoint now, RttEstimator& rtt) {
  if (overrun_.happened()) {
    if (round_ == overrun_.last_round() + 1) trains_.clear();  // of packets that were lost
    const std::uint64_t over = overrun_.last_round() + kBlindRounds;
    if (round_ < over) return true;
    if (after_overrun() && trains_.capacity() <= 0) return true;  // all lost a packet: the next ones may tell
    if (!overrun_.judged()) learn_from_overrun();
    if (overrun_.drains() && round_ <= over + kDrainRounds && drain_overrun(now, rtt)) return true;
    overrun_.end_draining();
    if (round_ <= over) return true;
  }
  if (tally_.packets(packet()) < kOverrunPackets || tally_.loss() < kOverrunLoss) return false;
  if (round_queue_.average() < usual_queue()) return false;  // a policer
  begin_overrun(now, round_queue_.queue(), round_);
  believe_overrun(std::max(rate_.newest(), tally_.goodput(now)));
  return true;
}

void ModelController::learn_from_overrun() {
  overrun_.set_judged();
  const double measured = trains_.capacity();
  trains_.clear();
  // A mount that has the line alone gets what it carries.
  if (measured <= 0 || rate_.best() / part_ < kOverrunAlone * measured) return;
  const double narrower = std::max(measured, rate_.best());
  if (narrower > kCapacityAgrees * capacity_) return;
  capacity_ = narrower;
  carried_ = {};
  check_.pass(round_);
  base_.expect_change();
  overrun_.drain();
}

// True as long as the round trip becomes shorter by it.
bool ModelController::drain_overrun(TimePoint now, RttEstimator& rtt) {
  const Duration round_trip = rtt_min_ + round_queue_.queue();
  blind_until_ = round_ + kBlindRounds;
  if (overrun_.shortens(round_trip)) {
    model_window_ = kDrainOverrun * rate_.best() * to_seconds(round_trip);
    return true;
  }
  // Others that have come meanwhile keep a queue, too.
  const bool alone = share_of(rate_.newest()) > kDrainedAlone && !siblings_fill();
  if (alone && Overrun::clearly_shorter(rtt_min_, round_trip)) {
    lengthen(now, rtt);
    base_.trust();
  }
  emptying_.count_from(now);
  model_window_ = rate_.best() * to_seconds(rtt.minimum() + own_queue());
  return false;
}

}  // namespace tusk::transport
