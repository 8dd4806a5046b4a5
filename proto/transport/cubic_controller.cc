#include "proto/transport/cubic_controller.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "proto/transport/rtt_estimator.h"

namespace tusk::transport {
namespace {

constexpr double kSegment = kUsualPacket;
constexpr double kInitialSegments = 10;  // RFC 6928
constexpr double kSegmentsMin = 2;
constexpr double kBeta = 0.7;  // RFC 9438 §4.6
constexpr double kC = 0.4;     // RFC 9438 §5: segments per second cubed
constexpr double kAlphaReno = 3.0 * (1 - kBeta) / (1 + kBeta);
// Linux' pacing: twice the window per round trip in slow start, 1.2 times after it.
constexpr double kPacingSlowStart = 2.0;
constexpr double kPacingAvoidance = 1.2;
constexpr double kCubicBurstSeconds = 1e-3;

}  // namespace

CubicController::CubicController()
    : window_(kInitialSegments * kSegment),
      threshold_(std::numeric_limits<double>::infinity()),
      pacing_rate_(window_ / 0.1) {}

ByteCount CubicController::burst() const {
  return std::max<ByteCount>(4 * static_cast<ByteCount>(kSegment),
                             static_cast<ByteCount>(pacing_rate_ * kCubicBurstSeconds));
}

void CubicController::handle_ack(const AckEvent& event, RttEstimator& rtt) {
  if (event.round_ended) marked_this_round_ = false;
  if (event.rate > 0) bandwidth_ = event.rate;
  // One reduction for all that is lost of a window (RFC 9438 §4.7, RFC 6582 §3.2): what was sent before it
  // says nothing of what it left.
  if (event.lost_packets > 0 && event.lost_sent_at > reduced_at_) reduce(event.now);
  if (event.marks > 0 && !std::exchange(marked_this_round_, true)) reduce(event.now);
  // A window that was not used says nothing about what the path would take (RFC 9438 §5.8).
  const bool used = static_cast<double>(event.prior_in_flight) >= 0.5 * window_;
  if (event.acked_bytes > 0 && used) grow(event, rtt);
  const double gain = slow_start() ? kPacingSlowStart : kPacingAvoidance;
  if (rtt.has_sample()) pacing_rate_ = gain * window_ / to_seconds(std::max<Duration>(rtt.smoothed(), 50us));
}

void CubicController::reduce(TimePoint now) {
  reduced_at_ = now;
  // Fast convergence (§4.7): who loses before reaching its last maximum makes room.
  window_max_ = window_ < window_max_ ? window_ * (1 + kBeta) / 2 : window_;
  window_ = std::max(kSegmentsMin * kSegment, window_ * kBeta);
  threshold_ = window_;
  epoch_ = {};
}

void CubicController::grow(const AckEvent& event, const RttEstimator& rtt) {
  const auto acked = static_cast<double>(event.acked_bytes);
  if (slow_start()) {
    window_ = std::min(window_ + acked, std::max(threshold_, window_ + kSegment));
    return;
  }
  if (epoch_ == TimePoint{}) {
    epoch_ = event.now;
    window_max_ = std::max(window_max_, window_);
    origin_ = std::cbrt((window_max_ - window_) / kSegment / kC);
    window_reno_ = window_;
  }
  const double round_trip = to_seconds(rtt.smoothed());
  const double time = to_seconds(event.now - epoch_) + round_trip - origin_;
  const double target = std::clamp(kC * time * time * time * kSegment + window_max_, window_, 1.5 * window_);
  window_reno_ += kAlphaReno * kSegment * acked / window_;
  window_ = std::max(window_ + (target - window_) * acked / window_, window_reno_);
}

void CubicController::handle_outage(TimePoint) {
  threshold_ = std::max(kSegmentsMin * kSegment, window_ * kBeta);
  window_max_ = window_;
  window_ = kSegmentsMin * kSegment;
  epoch_ = {};
}

}  // namespace tusk::transport
