// BBR version 1 (Cardwell et al., ACM Queue 2016; draft-cardwell-iccrg-bbr-congestion-control-00): the
// bandwidth as the maximum over ten rounds, the round trip as the minimum over ten seconds, and twice their
// product in flight. Beside the model for comparison.
#pragma once

#include <deque>

#include "proto/base/random.h"
#include "proto/transport/congestion.h"

namespace tusk::transport {

class BbrController final : public CongestionController {
 public:
  explicit BbrController(std::uint64_t seed);

  void handle_ack(const AckEvent& event, RttEstimator& rtt) override;
  void handle_outage(TimePoint now) override;
  [[nodiscard]] ByteCount window() const override { return window_; }
  [[nodiscard]] double pacing_rate() const override { return pacing_rate_; }
  [[nodiscard]] ByteCount burst() const override;
  [[nodiscard]] double bandwidth() const override { return bandwidth_; }
  [[nodiscard]] std::string_view state() const override;

 private:
  enum class State : std::uint8_t { kStartup, kDrain, kProbeBandwidth, kProbeRtt };

  struct RoundSample {
    std::uint64_t round;
    double rate;
  };

  void sample_bandwidth(const AckEvent& event);
  void check_full(const AckEvent& event);
  void advance(const AckEvent& event);
  void control();
  [[nodiscard]] double bdp() const;

  Random random_;
  State state_ = State::kStartup;
  std::uint64_t round_ = 0;
  std::deque<RoundSample> samples_;  // monotone queue: the maximum is in front
  double bandwidth_ = 0;             // bytes/s
  double full_bandwidth_ = 0;
  int full_rounds_ = 0;
  bool full_ = false;
  int phase_ = 0;  // of the gain cycle
  TimePoint phase_began_{};
  Duration rtt_min_{};
  TimePoint rtt_min_at_{};
  TimePoint probe_rtt_until_{};
  std::uint64_t probe_rtt_round_ = 0;  // in which its time began
  double pacing_gain_;
  double window_gain_;
  ByteCount window_;
  double pacing_rate_;
};

}  // namespace tusk::transport
