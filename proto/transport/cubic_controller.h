// CUBIC (RFC 9438), paced: what TCP does by default in most of the world. Beside the model for comparison:
// it takes every loss for congestion.
#pragma once

#include "proto/transport/congestion.h"

namespace tusk::transport {

class CubicController final : public CongestionController {
 public:
  CubicController();

  void handle_ack(const AckEvent& event, RttEstimator& rtt) override;
  void handle_outage(TimePoint now) override;
  [[nodiscard]] ByteCount window() const override { return static_cast<ByteCount>(window_); }
  [[nodiscard]] double pacing_rate() const override { return pacing_rate_; }
  [[nodiscard]] ByteCount burst() const override;
  [[nodiscard]] double bandwidth() const override { return bandwidth_; }
  [[nodiscard]] std::string_view state() const override { return slow_start() ? "slow start" : "avoidance"; }

 private:
  [[nodiscard]] bool slow_start() const { return window_ < threshold_; }
  void reduce(TimePoint now);
  void grow(const AckEvent& event, const RttEstimator& rtt);

  // Bytes; doubles, as CUBIC's arithmetic is in fractions.
  double window_;
  double threshold_;
  double window_max_ = 0;   // W_max: where the last reduction began
  double window_reno_ = 0;  // W_est: what Reno would have by now
  double origin_ = 0;       // K, seconds from the epoch to W_max
  TimePoint epoch_{};       // start of the present growth; {}: none yet
  TimePoint reduced_at_{};
  bool marked_this_round_ = false;
  double bandwidth_ = 0;  // bytes/s of the newest sample
  double pacing_rate_;
};

}  // namespace tusk::transport
