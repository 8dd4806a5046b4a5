#include "proto/transport/bbr_controller.h"

#include <algorithm>
#include <array>

#include "proto/transport/rtt_estimator.h"

namespace tusk::transport {
namespace {

constexpr ByteCount kBbrInitialWindow = 10 * kUsualPacket;
constexpr ByteCount kBbrWindowMin = 4 * kUsualPacket;
constexpr double kHighGain = 2.885;  // 2/ln 2: the least that doubles every round when paced
constexpr double kWindowGain = 2.0;
constexpr std::array<double, 8> kCycle{1.25, 0.75, 1, 1, 1, 1, 1, 1};
constexpr std::uint64_t kBbrBandwidthRounds = 10;
constexpr double kFullGrowth = 1.25;
constexpr int kFullRounds = 3;
constexpr Duration kRttWindow = 10s;
constexpr Duration kProbeRttTime = 200ms;
constexpr double kBbrBurstSeconds = 1e-3;

}  // namespace

BbrController::BbrController(std::uint64_t seed)
    : random_(seed),
      pacing_gain_(kHighGain),
      window_gain_(kHighGain),
      window_(kBbrInitialWindow),
      pacing_rate_(kHighGain * static_cast<double>(kBbrInitialWindow) / 0.1) {}

std::string_view BbrController::state() const {
  switch (state_) {
    case State::kStartup:
      return "startup";
    case State::kDrain:
      return "drain";
    case State::kProbeBandwidth:
      return "probe bandwidth";
    case State::kProbeRtt:
      return "probe rtt";
  }
  return "?";
}

ByteCount BbrController::burst() const {
  return std::max<ByteCount>(4 * kUsualPacket, static_cast<ByteCount>(pacing_rate_ * kBbrBurstSeconds));
}

double BbrController::bdp() const { return bandwidth_ * to_seconds(rtt_min_); }

void BbrController::handle_ack(const AckEvent& event, RttEstimator&) {
  if (event.round_ended) ++round_;
  sample_bandwidth(event);
  const bool expired = rtt_min_at_ != TimePoint{} && event.now > rtt_min_at_ + kRttWindow;
  if (event.rtt > Duration::zero() && (rtt_min_at_ == TimePoint{} || event.rtt <= rtt_min_ || expired)) {
    rtt_min_ = event.rtt;
    rtt_min_at_ = event.now;
  }
  if (event.round_ended) check_full(event);
  if (expired && state_ != State::kProbeRtt) {
    state_ = State::kProbeRtt;
    probe_rtt_until_ = kNever;
  }
  advance(event);
  control();
}

void BbrController::sample_bandwidth(const AckEvent& event) {
  if (event.rate <= 0 || (event.app_limited && event.rate <= bandwidth_)) return;
  while (!samples_.empty() && samples_.back().rate <= event.rate) samples_.pop_back();
  samples_.push_back({round_, event.rate});
  while (samples_.front().round + kBbrBandwidthRounds < round_) samples_.pop_front();
  bandwidth_ = samples_.front().rate;
}

void BbrController::check_full(const AckEvent& event) {
  if (full_ || event.app_limited) return;
  if (bandwidth_ >= full_bandwidth_ * kFullGrowth) {
    full_bandwidth_ = bandwidth_;
    full_rounds_ = 0;
  } else if (++full_rounds_ >= kFullRounds) {
    full_ = true;
  }
}

void BbrController::advance(const AckEvent& event) {
  const auto in_flight = static_cast<double>(event.in_flight);
  switch (state_) {
    case State::kStartup:
      if (full_) state_ = State::kDrain;
      return;
    case State::kProbeRtt:
      // Its time begins when what was in flight has gone, and lasts a round trip at least.
      if (probe_rtt_until_ == kNever && event.in_flight <= kBbrWindowMin) {
        probe_rtt_until_ = event.now + kProbeRttTime;
        probe_rtt_round_ = round_;
      }
      if (event.now < probe_rtt_until_ || round_ == probe_rtt_round_) return;
      rtt_min_at_ = event.now;
      state_ = full_ ? State::kProbeBandwidth : State::kStartup;
      return;
    case State::kDrain:
      if (in_flight > bdp()) return;
      state_ = State::kProbeBandwidth;
      phase_ = 2 + static_cast<int>(random_.below(6));  // not in step with others
      phase_began_ = event.now;
      return;
    case State::kProbeBandwidth: {
      const double gain = kCycle[static_cast<std::size_t>(phase_)];
      bool done = event.now - phase_began_ > rtt_min_;
      if (gain > 1) done = done && (event.lost_packets > 0 || in_flight >= gain * bdp());
      if (gain < 1) done = done || in_flight <= bdp();
      if (!done) return;
      phase_ = (phase_ + 1) % static_cast<int>(kCycle.size());
      phase_began_ = event.now;
      return;
    }
  }
}

void BbrController::control() {
  pacing_gain_ = window_gain_ = kHighGain;
  if (state_ == State::kDrain) pacing_gain_ = 1 / kHighGain;
  if (state_ == State::kProbeRtt) pacing_gain_ = 1;
  if (state_ == State::kProbeBandwidth) {
    pacing_gain_ = kCycle[static_cast<std::size_t>(phase_)];
    window_gain_ = kWindowGain;
  }
  if (bandwidth_ <= 0 || rtt_min_ <= Duration::zero()) return;
  const double rate = pacing_gain_ * bandwidth_;
  if (full_ || rate > pacing_rate_) pacing_rate_ = rate;
  const auto target = static_cast<ByteCount>(window_gain_ * bdp()) + 3 * kUsualPacket;
  window_ = state_ == State::kProbeRtt ? kBbrWindowMin : std::max(kBbrInitialWindow, target);
}

void BbrController::handle_outage(TimePoint) { window_ = kBbrWindowMin; }

}  // namespace tusk::transport
