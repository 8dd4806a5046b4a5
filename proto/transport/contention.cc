#include "proto/transport/contention.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tusk::transport {
namespace {

// Of the time between two rounds: emptying the queue with others takes as long. The rest is a pause.
constexpr int kRoundLongest = 8;  // round trips

// Who has about a half has nothing to complain of.
constexpr double kShareMax = 0.5;
constexpr double kShareFew = 0.45;

// n flows of ours keep a queue of sqrt(n) times the usual one (model_controller.h), and what each adds: so
// much is more than three of them. Of how many more it may be, our share tells: crowd_of_ours().
constexpr double kCrowdedQueues = 2.2;
// A queue that goes when flows of ours empty it, all at once, is theirs. A long one then comes from flows
// that joined and took a part of it for the path.
constexpr double kCrowdedQueuesShort = 3;
constexpr double kCrowdMax = 1.5;  // a flow that starts makes a long queue for some round trips
constexpr double kCrowdWeight = 1.0 / 6;
// A buffer may be too short to hold the queue by which many flows of ours are told from others. But none of
// ours keep one overflowing for so long: they lose packets when they start, and learn how long it is.
constexpr double kOverflow = 0.015;
constexpr double kOverflowWeight = 1.0 / 16;
constexpr Duration kOverflowLong = 5s;
constexpr double kOverflowQueues = 2;
// Nor do they keep one from ever running empty: a queue that was not short for so much longer than they take
// to empty it, while the buffer overflows now and then, is not theirs, however little we have.
constexpr int kStaysTimes = 3;
constexpr Duration kStaysLongMax = 6s;  // BBR itself empties it every 10 s
constexpr double kStaysOverflow = 0.0005;
constexpr Duration kStaysAtAll = 12s;
// The queue of flows of ours that start, one after the other, is as long as that of one that fills buffers,
// but goes. Who takes it for that insists, and then all do, against each other. So for a while after a queue
// jumped up more is needed to notice: whoever fills buffers is still there then.
constexpr int kJoiningRounds = 16;
constexpr Duration kJoiningLong = 2500ms;  // at least
constexpr double kCrowdWeightJoining = 1.0 / 16;
constexpr double kStrangersQueues = 3;  // as multiples of what ours would keep: more is no start of ours
constexpr int kJumpQueues = 3;          // usual ones, by which a queue became longer within two rounds
// Who has next to nothing must not take any queue for that of a hundred flows of ours; also one of several
// connections may have little because others of its mount have much. So these are sixteen at most, or as many
// as are known of.
constexpr double kFlowsMax = 1 / 0.06;
// Shares of what makes us insist, between which the suspicion grows from nothing to all.
constexpr double kSuspicionFrom = 0.7;
constexpr double kSuspicionFull = 0.8;
// For a while after the others paused (CUBIC after a loss, BBR while it drains) less is needed to notice: no
// more than flows of ours would keep.
constexpr double kCrowdedQueuesWary = 1.5;
constexpr double kCrowdWeightWary = 1.0 / 3;
constexpr Duration kWary = 30s;
constexpr int kCalmRounds = 3;
// Then it is tried whether the others are still there: flows of ours would hold each other to it for ever.
constexpr int kInsistRoundsMax = 200;

// So much is what BBR does to small buffers. Who has more of the line bears less: many flows that all insist
// become equal.
constexpr double kLossTolerated = 0.12;
constexpr double kLossToleratedLess = 0.1;  // for all of the line
constexpr double kLossless = 0.01;          // less than that is none
// BBR forgets its best rate after ten rounds, and has shrunk two later.
constexpr int kEpochRounds = 12;
// In vain: no loss, of the share not even so much, and hardly more than an epoch before. Twice, since the
// first epoch may be the one in which BBR still holds on to its rate.
constexpr double kEffect = 0.7;
constexpr double kProgress = 1.1;
constexpr int kVainEpochs = 2;
// Half of what is insisted on at most. Below that the share grows by a tenth a round where less than a
// quarter of what it bears is lost (from a twentieth to a half in 24 rounds, two epochs), else slowly: many
// may insist.
constexpr double kFairEnough = 0.25;
constexpr double kGrowth = 1.1;
constexpr double kGrowthOfMany = 1.03;
constexpr double kGrowthLeast = 0.001;  // from nothing
constexpr double kShrink = 0.9;

// Flows of ours that there would be if all had as much.
double flows_of_ours(const Contention::Round& round) {
  return std::min(round.flows / round.got, std::max(kFlowsMax, round.flows));
}

// The queues that they would keep: with many, who has more than the others expects less than there is.
double crowd_of_ours(double flows) {
  constexpr double kMany = 1 / 0.12;
  return (flows < kMany ? 1.25 : 1.5) * std::sqrt(flows);
}

// What they add besides.
double crowd_of_extras(double flows, const Contention::Round& round) {
  return 1.25 * flows * to_seconds(round.extra_queue) / to_seconds(round.usual_queue);
}

}  // namespace

std::optional<double> Contention::end_round(const Round& round) {
  in_vain_ = false;
  pass_time(round);
  notice_joins(round);
  overflow_ += kOverflowWeight * (round.overflow - overflow_);
  if (overflow_ < kOverflow) kept_at_ = now_;
  if (insisting_)
    insist(round);
  else
    notice(round);
  return insisting_ ? std::optional(share_) : std::nullopt;
}

void Contention::pass_time(const Round& round) {
  const Duration passed = round_ended_at_ == TimePoint{} ? Duration(0) : round.now - round_ended_at_;
  now_ += std::min<Duration>(passed, kRoundLongest * (round.round_trip + round.queue));
  round_ended_at_ = round.now;
  if (round.is_short) short_at_ = now_;
}

double Contention::suspicion() const {
  if (insisting_) return 1;
  return std::clamp((crowd_ - kSuspicionFrom) / (kSuspicionFull - kSuspicionFrom), 0.0, 1.0);
}

void Contention::notice_joins(const Round& round) {
  if (joining_rounds_ > 0) --joining_rounds_;
  const Duration before = std::min(queue_before_, queue_before_that_);
  queue_before_that_ = std::exchange(queue_before_, round.queue);
  if (round.queue - before > kJumpQueues * round.usual_queue) {
    long_since_.reset();
    joining_rounds_ = kJoiningRounds;
    joining_until_ = now_ + kJoiningLong;
  }
}

void Contention::notice_long_queue(const Round& round) {
  if (round.is_short || !long_since_) {
    long_since_ = now_;
    long_overflow_ = long_rounds_ = 0;
  }
  long_overflow_ += round.overflow;
  ++long_rounds_;
}

bool Contention::stays(const Round& round) const {
  const Duration since = now_ - *long_since_;
  if (since > kStaysAtAll) return true;
  return since > std::min<Duration>(kStaysTimes * round.empties_in, kStaysLongMax) &&
         long_overflow_ > kStaysOverflow * long_rounds_;
}

void Contention::notice(const Round& round) {
  notice_long_queue(round);
  const bool wary = now_ < wary_until_;
  const double queues = to_seconds(round.queue) / to_seconds(round.usual_queue);
  const double flows = flows_of_ours(round);
  const double ours =
      wary ? std::max(kCrowdedQueuesWary, std::sqrt(flows))
      : short_at_ && now_ - *short_at_ < round.empties_in
          ? std::max(kCrowdedQueuesShort, crowd_of_ours(flows) + crowd_of_extras(flows, round))
          : std::max(kCrowdedQueues, crowd_of_ours(flows));
  const bool joining = joining_rounds_ > 0 || now_ < joining_until_;
  const double unwary = joining && queues < kStrangersQueues * ours ? kCrowdWeightJoining : kCrowdWeight;
  const bool overflown = (stays(round) || now_ - kept_at_ > kOverflowLong) && queues > kOverflowQueues;
  const double crowd = round.together > kTogetherAll ? 0
                       : overflown                   ? kCrowdMax
                                                     : std::min(queues / ours, kCrowdMax);
  crowd_ += (crowd - crowd_) * (wary ? kCrowdWeightWary : unwary);
  const bool starved = round.got < kShareFew && crowd_ > 1;
  doubts_capacity_ = starved && !round.capacity_known;
  if (!starved || doubts_capacity_) return;
  insisting_ = true;
  if (!wary) share_ = round.got;
  rounds_ = calm_rounds_ = epoch_rounds_ = 0;
  epoch_loss_ = crowd_ = 0;
  vain_epochs_ = 0;
  epoch_got_ = round.got;
}

void Contention::insist(const Round& round) {
  adapt_share(round);
  ++rounds_;
  const Duration kept = from_seconds(std::sqrt(round.flows) * to_seconds(round.usual_queue));
  calm_rounds_ = round.queue < kept ? calm_rounds_ + 1 : 0;
  const bool calm = calm_rounds_ >= kCalmRounds || round.together > kTogetherAll;
  if (!calm && rounds_ <= kInsistRoundsMax) return;
  stop_insisting();
  wary_until_ = calm ? now_ + kWary : now_;
}

// What was so while it was insisted on is not held against the others.
void Contention::stop_insisting() {
  insisting_ = false;
  long_since_.reset();
}

// Whoever else is on the line yields in the end to who insists; a slower line does not. Where that loses
// packets the share follows what is got anyway.
void Contention::judge_effect(const Round& round) {
  const bool lossless = epoch_loss_ < kLossless;
  const bool vain = lossless && round.got < kEffect * share_ && round.got < kProgress * epoch_got_;
  vain_epochs_ = vain ? vain_epochs_ + 1 : 0;
  epoch_got_ = round.got;
  if (vain_epochs_ < kVainEpochs) return;
  in_vain_ = true;
  stop_insisting();
}

// Losses count at the end of an epoch: BBR knows of the share that we take only when its best rate has
// expired, and all that while the line is overbooked.
void Contention::adapt_share(const Round& round) {
  const double tolerated = kLossTolerated - kLossToleratedLess * round.got;
  epoch_loss_ += (round.loss - epoch_loss_) / 4;
  const bool hurry = round.got > kFairEnough || round.loss < tolerated / 4;
  if (round.loss < tolerated)
    share_ = std::min(kShareMax, (hurry ? kGrowth : kGrowthOfMany) * share_ + kGrowthLeast);
  if (++epoch_rounds_ < kEpochRounds) return;
  epoch_rounds_ = 0;
  judge_effect(round);
  if (epoch_loss_ > tolerated) share_ = std::min(share_, kShrink * round.got);
}

}  // namespace tusk::transport
