#include "proto/transport/path_loss.h"

#include <algorithm>
#include <cmath>

namespace tusk::transport {
namespace {

// What is believed of a path is sent on top: paths that lose 5 % are used, and what loses more is a full
// buffer or a policer nearly always.
constexpr double kOwnMax = 0.08;
constexpr double kBelievedAtOnce = 0.02;   // twice what a usual bad path loses
constexpr int kRoundsMax = 8;              // the mean is of about so many
constexpr double kQuietWeight = 1.0 / 16;  // what fills a buffer for some seconds is not of the path
constexpr double kPacketsMin = 100;        // that a round must have: one of them is the excess
// An excess is more than chance would have it (three deviations of a binomial), and in two rounds running
// unless it is enormous.
constexpr double kExcess = 0.01;
constexpr double kDeviations = 3;
constexpr double kOwnLeast = 1e-4;  // a path that never lost anything may still
constexpr int kExcessRounds = 2;
// A policer is tried again after 8, 16, ... rounds: each time a round trip loses what it drops.
constexpr int kContentRoundsMax = 64;

}  // namespace

void PathLoss::end_round(const Round& round) {
  if (round.packets < kPacketsMin) {
    if (round.test) forget_suspicion();  // the test told nothing
    if (round.lost <= 0 && round.harmless) end_harmless_round();
    return;
  }
  const double lost = std::min(round.lost, kOwnMax);
  if (round.test) {
    quiet_ = tested_ ? std::min(lost, quiet_ + kQuietWeight * (lost - quiet_)) : lost;
    tested_ = true;
    if (suspects())
      judge(lost);
    else
      own_ = std::min(own_, lost);
    return;
  }
  const double chance = kDeviations * std::sqrt(std::max(own_, kOwnLeast) / round.packets);
  const bool excess = round.judged && round.queue_short && lost - own_ > std::max(kExcess, chance);
  excess_rounds_ = excess ? excess_rounds_ + 1 : 0;
  if (excess_rounds_ >= kExcessRounds || (excess && lost >= kOwnMax)) suspect_ = lost;
  if (excess) return;
  // The first rounds count as much as each other: a far path has few. But not where so much is lost that it
  // may be a policer's or our own doing, of which all would be believed at once, and none suspected any more.
  rounds_ = std::min(rounds_ + 1, kRoundsMax);
  own_ += (lost - own_) / (lost < kBelievedAtOnce ? rounds_ : kRoundsMax);
  if (round.harmless) end_harmless_round();
}

void PathLoss::end_harmless_round() {
  if (!content() && ++harmless_rounds_ > kContentRounds) content_next_ = kContentRounds;
}

void PathLoss::judge(double lost) {
  const bool ours = suspect_ - lost > kExcess;
  content_rounds_ = ours ? content_next_ : 0;
  content_next_ = ours ? std::min(2 * content_next_, kContentRoundsMax) : kContentRounds;
  harmless_rounds_ = 0;
  own_ = lost;
  suspect_ = 0;
}

}  // namespace tusk::transport
