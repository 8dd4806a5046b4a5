#include "proto/transport/model_controller.h"

#include <algorithm>
#include <cmath>
#include <utility>

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
// Of packets that leave together a full buffer takes the first one only: who sends them by fours beside BBR
// loses more than it does.
constexpr ByteCount kBurstBytesMin = kUsualPacket;
constexpr double kBurstSeconds = 250e-6;
// Where all are ours nothing is lost by it, and many programs that each wake up for every packet have no time
// for anything else.
constexpr ByteCount kBurstBytesAmongOurs = 4 * kUsualPacket;

constexpr int kStartupRoundsMin = 3;  // before a queue ends it
constexpr double kTrainSeconds = 2e-3;
constexpr double kTrainSecondsMax = 5e-3;
constexpr ByteCount kTrainPacketsLeast = 20;
constexpr Duration kStartupQueueMin = 1ms;
constexpr Duration kStartupQueueMax = 20ms;
constexpr double kDrainGain = 0.9;
constexpr int kDrainRoundsMax = 3;

// The queue of a flow that is alone: an eighth of the round trip. Where the path itself holds next to nothing
// the queue is all that lasts while a program is kept from running: more there.
constexpr Duration kOwnQueueMin = 5ms;
constexpr Duration kOwnQueueHere = 12ms;
constexpr Duration kOwnQueueNear = 8ms;
constexpr Duration kOwnQueueMax = 10ms;
// Of the way to the window that the law wants, in a round.
constexpr double kStep = 0.75;
// The window is what is delivered in a round trip: rate a little above it lets the window decide.
constexpr double kPacingGain = 1.05;
// But a train is as long as the pacer lets it be, not as what one acknowledgement makes room for: short ones
// tell less than half of a fast line from the receiver's noise.
constexpr double kPacingGainClimbing = 0.97;

// No queue for so many rounds: trains look for more.
constexpr int kFreeRounds = 3;
constexpr double kFreeGrowth = 1.08;
constexpr double kTakenAtOnceMax = 2;
// What one of many takes of it beyond what the others have.
constexpr double kAheadMost = 1.25;

// Less than so much of the capacity, and a queue: others are here.
constexpr double kSharedBelow = 0.9;
constexpr double kTrainsAmongOthers = 16;
// Flows of ours that share a line all empty the queue in so long.
constexpr Duration kShortRememberedMin = 1s;
constexpr int kShortRememberedRtts = 24;
constexpr double kCapacityWeight = 1.0 / 4;
constexpr std::uint64_t kVerifiedRounds = 50;

// Nearer by than that a round is soon over, and by what is lost of it a short buffer is known.
constexpr Duration kFarAway = 10ms;

// Of what is delivered, as long as most of what is in flight is lost and not known to be.
constexpr double kOverrunPacing = 0.75;

// More loss beyond the path's own may be a full buffer, which stays as long whatever we do.
constexpr double kQuietLoss = 0.01;

}  // namespace

std::string_view ModelController::state() const {
  switch (state_) {
    case State::kStartup:
      return "startup";
    case State::kDrain:
      return "drain";
    case State::kSteady:
      return contention_.insists() ? "insist" : "steady";
    case State::kEmpty:
      return "empty";
  }
  return "?";
}

// What a few small packets reached says nothing of what the path would carry. Of what trains say a part:
// those of a mount's other flows have said it, too.
double ModelController::bandwidth() const {
  return std::max(pressed_ ? rate_.best() : 0.0, state_ == State::kStartup ? start_rate() : 0.0);
}

double ModelController::extra_window() const {
  const double seconds = std::lerp(kExtraSeconds, kExtraSecondsBesideOthers, contention_.suspicion());
  const double extra = std::clamp(seconds * capacity_, kExtraWindowMin, kExtraWindowMax);
  if (!buffer_.limited()) return part_ * extra;
  // On a short path it alone would overrun a short buffer.
  return part_ * std::min(extra, std::max(kExtraWindowMin, capacity_ * to_seconds(rtt_min_ + own_queue())));
}

ByteCount ModelController::burst() const {
  if (passes_overrun() && !overrun_.measured()) return kBurstBytesMin;  // none, as far as may be
  if (sends_trains()) return train_bytes();
  const ByteCount least = siblings_fill() && others_.flows >= Siblings::kCrowd && !contention_.insists()
                              ? kBurstBytesAmongOurs
                              : kBurstBytesMin;
  return std::max(least, static_cast<ByteCount>(pacing_rate_ * kBurstSeconds));
}

// Longer trains tell more of a fast line than the first one. First ones of a crowd, as far as one has heard
// of it, meet one another, and would again.
ByteCount ModelController::probe_train() const {
  if (state_ != State::kStartup) return 0;
  const bool crowd = siblings_ && siblings_->glance().around > Siblings::kCrowd;
  if (trains_.safe_rate() <= 0) return crowd ? 0 : train_bytes_min();
  return train_bytes() > train_bytes_min() ? train_bytes() : 0;
}

bool ModelController::sends_trains() const {
  const bool after_emptying =
      state_ == State::kSteady && rounds_in_state_ < kBlindRounds && !contention_.insists();
  return state_ == State::kStartup || state_ == State::kEmpty || after_emptying || free_rounds_ > 0 ||
         after_overrun();
}

// On a slow line a whole train would be a queue that others feel.
ByteCount ModelController::train_bytes() const {
  const auto of_time = [this](double seconds) { return static_cast<ByteCount>(pacing_rate_ * seconds); };
  const ByteCount least =
      state_ == State::kStartup || after_overrun()
          ? train_bytes_min()
          : std::clamp(of_time(kTrainSecondsMax), kTrainPacketsLeast * packet(), train_bytes_min());
  return std::max(least, of_time(kTrainSeconds));
}

Duration ModelController::usual_queue() const {
  const Duration least = std::max({kOwnQueueMin, kOwnQueueNear - rtt_min_ / 16, kOwnQueueHere - rtt_min_});
  return std::clamp(rtt_min_ / 8, least, std::max(least, kOwnQueueMax));
}

Duration ModelController::own_queue() const { return std::min(usual_queue(), buffer_.room()); }

bool ModelController::queue_short() const {
  return round_queue_.average() - round_queue_.wander() < usual_queue() / 8;
}

// Where rounds are short one of them is slow for many reasons.
bool ModelController::shared() const {
  const double rate = rtt_min_ < kFarAway ? std::max(rate_.newest(), carried_.rate()) : rate_.newest();
  return share_of(rate) < kSharedBelow && round_queue_.queue() > usual_queue() / 2 + round_queue_.wander();
}

// ---------------------------------------------------------------- measuring

void ModelController::handle_ack(const AckEvent& event, RttEstimator& rtt) {
  tally_.acked += event.acked_bytes;
  delivered_ += event.acked_bytes;
  tally_.lost += event.lost_bytes;
  rtt_min_ = rtt.minimum();
  if (event.datagram_size > 0) datagram_size_ = event.datagram_size;
  sample_rate(event);
  // A train that lost packets seems to have arrived faster than it did.
  if (after_overrun() && event.lost_bytes > event.acked_bytes / 16) trains_.clear();
  sample_train(event);
  round_queue_.add({.rtt = event.rtt, .own_queue = queued_by(event), .after_pause = event.app_limited});
  newest_loss_.add({.acked = event.acked_bytes,
                    .lost = event.lost_bytes,
                    .bandwidth = rate_.best(),
                    .round_trip = to_seconds(rtt_min_)});
  if (overruns_already(rtt)) begin_overrun(event.now, rtt.queueing(), round_ + 1);
  if (passes_overrun() && !overrun_.measured()) measure_overrun(event);
  if (event.round_ended) end_round(event, rtt);
  const Duration queue = std::max(Duration(0), rtt.queueing() - rtt.variation());
  const Duration queue_max = std::clamp(rtt_min_ / 8, kStartupQueueMin, kStartupQueueMax);
  const bool drained =
      queue < queue_max / 4 || static_cast<double>(event.in_flight) < rate_.best() * to_seconds(rtt_min_);
  // A late packet on an idle line is no queue of ours.
  const bool overrun = pressed_ && queue > queue_max && rounds_in_state_ >= kStartupRoundsMin;
  if (state_ == State::kStartup && overrun)
    enter(State::kDrain);
  else if (state_ == State::kDrain && drained)
    enter(State::kSteady);
  control(rtt);
}

void ModelController::sample_rate(const AckEvent& event) {
  if (event.rate <= 0) return;
  if (!event.app_limited) {
    tally_.app_limited = false;
    pressed_ |= event.prior_in_flight >= window_ / 2;
  }
  if (event.app_limited && event.rate <= rate_.best()) return;
  if (passes_overrun()) return;  // samples are of before and after it
  const bool part = event.flight > 0 && event.flight < window_;
  const double filled = part ? static_cast<double>(event.flight) / static_cast<double>(window_) : 1;
  tally_.best_rate = std::max(tally_.best_rate, event.rate);
  rate_.add(round_, {.rate = event.rate, .filled = filled, .flight = event.flight});
}

void ModelController::sample_train(const AckEvent& event) {
  if (!event.train || event.train->bytes < std::min(train_bytes(), train_bytes_min()) / 2) return;
  if (sends_trains()) trains_.add(*event.train);
}

// How much of the newest round trip is a queue of what was in flight beyond what the path holds: of a flow
// that has the line alone, else the queue is that of others, too.
Duration ModelController::queued_by(const AckEvent& event) const {
  if (capacity_ <= 0 || share_of(rate_.newest()) < kSharedBelow) return Duration(0);
  const Duration load = from_seconds(static_cast<double>(event.flight) / capacity_);
  return std::max(Duration(0), std::min(load, event.rtt) - rtt_min_);
}

// What a line carried is its least capacity.
void ModelController::learn_carried(TimePoint now) {
  if (state_ == State::kStartup || rtt_min_ >= kFarAway) {
    capacity_ = std::max(capacity_, tally_.best_rate);
    carried_ = {};
  } else if (carried_.end_round(now, tally_.acked)) {
    capacity_ = std::max(capacity_, carried_.rate());
  }
}

void ModelController::learn_loss() {
  if (contention_.insists() || state_ != State::kSteady) return;
  loss_.end_round({.lost = tally_.loss(),
                   .packets = tally_.packets(packet()),
                   .test = rounds_in_state_ == 1,
                   .judged = rounds_in_state_ > kBlindRounds,
                   .queue_short = queue_short()});
}

void ModelController::learn_buffer(TimePoint now) {
  if (contention_.insists() || shared() || state_ != State::kSteady || rounds_in_state_ <= kBlindRounds)
    return buffer_.interrupt();
  buffer_.end_round({.now = now,
                     .acked = static_cast<double>(tally_.acked) / static_cast<double>(packet()),
                     .lost = static_cast<double>(tally_.lost) / static_cast<double>(packet()),
                     .own = loss_.own(),
                     .queue = round_queue_.average(),
                     .longest = round_queue_.longest(),
                     .kept = own_queue()});
}

// ---------------------------------------------------------------- rounds

void ModelController::end_round(const AckEvent& event, RttEstimator& rtt) {
  ++round_;
  ++rounds_in_state_;
  round_queue_.end_round(rtt_min_, rtt.standing());
  settle_overrun(event.now);
  if (state_ == State::kSteady && rounds_in_state_ == 1 && base_.judge(round_queue_.queue(), rtt_min_))
    lengthen(event.now, rtt);
  if (state_ == State::kStartup)
    startup_.carry(tally_, train_bytes_min(), to_seconds(std::max(rtt_min_, Duration(50us))));
  // Old samples only make way for measurements: silence proves nothing.
  if (!tally_.app_limited) {
    rate_.end_round(round_);
    learn_carried(event.now);
    goodput_.end_round(tally_.goodput(event.now));
    learn_buffer(event.now);  // by what the path lost before
    learn_loss();
    tell_siblings(event.now, rtt.queueing());
    if (state_ == State::kStartup)
      end_startup_round();
    else if (state_ == State::kSteady)
      end_steady_round(event.now, rtt);
  }
  // A program that stopped sending has put nothing to the test.
  if (tally_.app_limited && state_ == State::kSteady && rounds_in_state_ == 1) loss_.forget_suspicion();
  if (state_ == State::kDrain && rounds_in_state_ >= kDrainRoundsMax) enter(State::kSteady);
  if (state_ == State::kSteady && rounds_in_state_ == 1) resume_after_test();
  if (state_ == State::kEmpty && rounds_in_state_ >= 1 && emptying_.may_end(event.now)) {
    if (loss_.suspects() && !contention_.insists()) await_test();
    enter(State::kSteady);
    emptying_.count_from(event.now);
  }
  tally_ = {.began = event.now};
}

void ModelController::end_steady_round(TimePoint now, RttEstimator& rtt) {
  if (unverified_ && rounds_in_state_ >= kBlindRounds && !passes_overrun()) verify_capacity();
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
  // What was not sent has not been delivered: a window that a busy machine did not fill is not too large.
  const double kept = content ? 0 : std::min(model_window_, lawful(rate_.newest_full()));
  model_window_ = std::max(lawful(content ? goodput_.mean() : shown_rate()), kept);
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
  const bool free = round_queue_.queue() < own_queue() / 8 && !siblings_fill();
  free_rounds_ = free && !loss_.content() ? free_rounds_ + 1 : 0;
  climbing_ = climbing_ && free_rounds_ > 0;
  if (free_rounds_ == 0) return trains_.clear();
  if (loss_.policed() || free_rounds_ < kFreeRounds) return;
  // Where the others do not come along it is no line that is free, but a machine that is busy.
  if (others_.flows >= Siblings::kCrowd && goodput_.mean() > kAheadMost * even_rate()) return;
  model_window_ = std::max(model_window_, kFreeGrowth * rate_.newest() * to_seconds(rtt_min_));
  if (!trains_.several() || trains_.safe_rate() < kWorthTaking * rate_.newest()) return;
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
                                            .capacity_known = round_ - verified_round_ < kVerifiedRounds,
                                            .together = share_of_siblings()});
  if (contention_.insisted_in_vain())
    lower_capacity(std::min(capacity_, std::max(rate_.newest() / part, others_.rate + rate_.newest())));
  if (share)
    model_window_ = std::max(model_window_, *share * part * capacity_ * to_seconds(rtt_min_ + queue));
}

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
}

// What trains say that left while the queue was short.
void ModelController::verify_capacity() {
  unverified_ = false;
  verified_round_ = round_;
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

void ModelController::enter(State state) {
  if (state == State::kSteady && state_ != State::kEmpty) {
    // A busy machine did not send what trains showed to be free; a full window would have had that.
    const double started =
        std::min(rate_.newest_full(), std::max(tally_.best_rate, part_of_all() * trains_.safe_rate()));
    const double rate = state_ == State::kStartup ? std::max(rate_.newest(), started) : rate_.newest();
    model_window_ = rate * to_seconds(rtt_min_);
    loss_.forget_suspicion();
    emptying_.forget_kept();
    newest_loss_ = {};
    longer_path_.forget();
    free_rounds_ = 0;
    climbing_ = false;
  }
  if (state_ == State::kStartup && state != State::kStartup) {
    startup_.end();
    // What trains told stays true where the queue ended the start before its round was over.
    capacity_ = std::max(capacity_, trains_.capacity());
    // Trains between the packets of others tell less.
    if (capacity_ > others_.capacity / kTrainsAmongOthers) capacity_ = std::max(capacity_, others_.capacity);
  }
  if (state == State::kEmpty) {
    trains_.clear();
    emptying_.begin({.together = siblings_fill(),
                     .goodput = goodput_.mean(),
                     .delivered = std::min(rate_.newest(), goodput_.newest())});
  }
  if (state == State::kStartup) {
    startup_.begin(rate_.best());
    trains_.clear();
  }
  unverified_ = state == State::kSteady;
  state_ = state;
  rounds_in_state_ = 0;
  blind_until_ = round_ + kBlindRounds;
}

void ModelController::handle_outage(TimePoint) {
  // What the path is now nobody knows; start from a quarter of what it was.
  const double guess = rate_.best() / 4;
  rate_.restart(round_, guess);
  capacity_ = guess;
  contention_ = {};
  overrun_ = {};
  newest_loss_ = {};
  tally_.best_rate = 0;
  climbing_ = false;
  buffer_ = {};
  base_.trust();
  loss_.forget_suspicion();
  enter(State::kStartup);
}

// ---------------------------------------------------------------- acting

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

void ModelController::control(const RttEstimator& rtt) {
  const double round_trip = to_seconds(std::max(rtt_min_, Duration(50us)));
  if (state_ == State::kStartup) return control_startup(round_trip);
  double model = model_window_;
  if (state_ == State::kDrain) model = kDrainGain * rate_.best() * round_trip;
  if (state_ == State::kEmpty) model = emptying_.window(emptying_path(round_trip));
  // What the path loses on its own must be sent on top, or every round would believe a little less. But the
  // round that shows that loss must not be pressed by a wrong belief in it.
  const bool exact = state_ == State::kEmpty;
  const double compensated = exact ? model : model / (1 - loss_.own());
  const double window = compensated + extra_window();
  // Most of what is in flight is lost and not known to be: the window would stop the sender.
  if (passes_overrun()) {
    pacing_rate_ = overrun_.measured() ? std::max(kRateMin, kOverrunPacing * rate_.best()) : kRateMin;
    return;
  }
  window_ = static_cast<ByteCount>(window);
  const double gain = climbing_ ? kPacingGainClimbing : kPacingGain;
  pacing_rate_ = std::max(kRateMin, gain * window / (round_trip + to_seconds(rtt.queueing())));
}

}  // namespace tusk::transport
