#include "proto/transport/model_controller.h"

#include <algorithm>
#include <cmath>

#include "proto/transport/rtt_estimator.h"
#include "proto/transport/train_estimator.h"

namespace tusk::transport {
namespace {

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
// That would be a queue that others feel on a slow line, where a few tell as much (train_estimator.h).
constexpr ByteCount kTrainPacketsSlow = 5;
constexpr double kTrainSecondsSlow = 20e-3;
constexpr Duration kStartupQueueMin = 1ms;
constexpr Duration kStartupQueueMax = 20ms;
constexpr double kDrainGain = 0.9;
constexpr int kDrainRoundsMax = 3;

// The window is what is delivered in a round trip: rate a little above it lets the window decide.
constexpr double kPacingGain = 1.05;
// But a train is as long as the pacer lets it be, not as what one acknowledgement makes room for: short ones
// tell less than half of a fast line from the receiver's noise.
constexpr double kPacingGainClimbing = 0.97;
// In a window of fewer none is whole beside what else is in flight.
constexpr ByteCount kFewTrains = 8;

// Less than so much of the capacity, and a queue: others are here.
constexpr double kSharedBelow = 0.9;
constexpr double kTrainsAmongOthers = 16;

// Of what is delivered, as long as most of what is in flight is lost and not known to be.
constexpr double kOverrunPacing = 0.75;

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
  const auto least = [&] {
    if (state_ == State::kStartup) return train_bytes_min();
    const ByteCount few = std::max(of_time(kTrainSecondsSlow), kTrainPacketsSlow * packet());
    if (after_overrun()) return std::min(few, train_bytes_min());
    const ByteCount usual =
        std::clamp(of_time(kTrainSecondsMax), kTrainPacketsLeast * packet(), train_bytes_min());
    return state_ == State::kEmpty || !train_room_.open() ? std::min(few, usual) : usual;
  };
  return std::max(least(), of_time(kTrainSeconds));
}

bool ModelController::makes_room_for_train() const {
  const bool small = model_window_ < static_cast<double>(kFewTrains * train_bytes());
  return state_ == State::kSteady && rtt_min_ >= kFarAway && free_rounds_ >= kFreeRounds && small &&
         train_room_.open();
}

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
  if (state_ == State::kStartup && startup_.sees_queue(event.now, overrun, bandwidth()))
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
  if (!event.train || !sends_trains()) return;
  const bool slow = state_ != State::kStartup && event.train->one_by_one &&
                    TrainEstimator::one_by_one(pacing_rate_, packet());
  if (slow || event.train->bytes >= std::min(train_bytes(), train_bytes_min()) / 2) trains_.add(*event.train);
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
  loss_.end_round(
      {.lost = tally_.loss(),
       .packets = tally_.packets(packet()),
       .test = rounds_in_state_ == 1,
       .judged = rounds_in_state_ > kBlindRounds,
       .queue_short = queue_short(),
       .harmless = policed_.speaks_against(rate_.newest(), round_queue_.queue() >= own_queue() / 2)});
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
  check_.expect(state == State::kSteady);
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
  policed_.forget();
  enter(State::kStartup);
  // At once: what is sent until something is acknowledged goes by it, too.
  window_ = std::max(train_bytes_min(), static_cast<ByteCount>(guess * to_seconds(rtt_min_)));
  pacing_rate_ = std::max(kRateMin, guess);
}

// ---------------------------------------------------------------- acting

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
  const bool makes_room = makes_room_for_train();
  if (makes_room) window_ += train_bytes();
  const double gain = climbing_ || makes_room ? kPacingGainClimbing : kPacingGain;
  pacing_rate_ = std::max(kRateMin, gain * window / (round_trip + to_seconds(rtt.queueing())));
}

}  // namespace tusk::transport
