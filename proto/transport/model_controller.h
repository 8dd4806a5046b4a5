// Tusk's congestion controller: a model of the path (bottleneck bandwidth, base round trip, random
// loss) and a target for the queue. Loss is not congestion; queueing is. docs/CONGESTION.md explains the
// states, the constants and what was tried and rejected.
#pragma once

#include <deque>

#include "proto/base/random.h"
#include "proto/transport/congestion.h"

namespace tusk::transport {

class ModelController : public CongestionController {
 public:
  explicit ModelController(std::uint64_t seed);

  [[nodiscard]] std::string_view name() const override { return "model"; }
  void handle_ack(const AckEvent& event, const RttEstimator& rtt) override;
  void handle_outage(TimePoint now) override;
  [[nodiscard]] ByteCount window() const override { return window_; }
  [[nodiscard]] double pacing_rate() const override { return pacing_rate_; }
  [[nodiscard]] ByteCount burst() const override;
  [[nodiscard]] double bandwidth() const override;
  [[nodiscard]] std::string_view state() const override;

 private:
  // Startup sends trains of packets, learns the capacity from how far apart they arrive, and goes there;
  // where trains tell nothing it grows until the queue or a plateau shows. Drain empties what that left
  // behind. Then the cycle: Up probes for more, Down empties the probe's queue, Cruise holds. Push follows
  // a probe that found more.
  enum class State : std::uint8_t { kStartup, kDrain, kUp, kDown, kCruise, kPush };

  struct RoundSample {
    std::uint64_t round;
    double rate;
  };

  void sample_bandwidth(const AckEvent& event);
  void sample_train(const AckEvent& event);
  void end_round(const AckEvent& event, const RttEstimator& rtt);
  void end_startup_round();
  void learn_loss();
  void follow_collapse(Duration queue);
  void advance_cycle(const AckEvent& event, Duration queue);
  void enter(State state);
  void control(const RttEstimator& rtt);
  void control_startup(double round_trip);
  [[nodiscard]] double gain(Duration queue) const;
  [[nodiscard]] double train_estimate() const;

  Random random_;
  State state_ = State::kStartup;
  std::uint64_t round_ = 0;
  int rounds_in_state_ = 0;
  int cruise_rounds_ = 0;

  // Monotone queue: the maximum of the last rounds is in front.
  std::deque<RoundSample> samples_;
  double bandwidth_ = 0;   // bytes/s delivered
  bool pressed_ = false;   // and the path was ever given as much as it may carry
  double round_rate_ = 0;  // best sample of this round
  bool round_app_limited_ = true;
  double bandwidth_before_probe_ = 0;
  double plateau_ = 0;  // startup: the rate to beat
  int plateau_rounds_ = 0;

  std::deque<PacketTrain> trains_;  // the last ones; the newest still grows
  double startup_cap_ = 0;          // no faster than so much more than the round before

  ByteCount round_acked_ = 0;
  ByteCount round_lost_ = 0;
  double random_loss_ = 0;  // share of packets the path loses without being full

  Duration queue_target_{};
  Duration rtt_min_{};
  ByteCount window_;
  double pacing_rate_;
};

}  // namespace tusk::transport
