// Congestion control of a flow that takes only what others leave: the `background` priority. A scavenger as
// LEDBAT (RFC 6817, LEDBAT++ in draft-irtf-iccrg-ledbat-plus-plus): others show as a queue, and it is gone
// before they notice. docs/CONGESTION.md, "Background", explains the states, docs/CONSTANTS.md the constants.
#pragma once

#include "proto/transport/congestion.h"
#include "proto/transport/path_loss.h"
#include "proto/transport/policed_rate.h"
#include "proto/transport/round_queue.h"
#include "proto/transport/rtt_estimator.h"
#include "proto/transport/train_capacity.h"

namespace tusk::transport {

class BackgroundController final : public CongestionController {
 public:
  BackgroundController();

  void handle_ack(const AckEvent& event, RttEstimator& rtt) override;
  void handle_outage(TimePoint now) override;
  [[nodiscard]] ByteCount window() const override { return window_; }
  [[nodiscard]] double pacing_rate() const override { return pacing_rate_; }
  [[nodiscard]] ByteCount burst() const override;
  [[nodiscard]] double bandwidth() const override { return rate_; }
  [[nodiscard]] std::string_view state() const override;

 private:
  // Grow doubles every round trip up to most of what is known to be there. Steady keeps a queue so short
  // that flows of normal priority do not mind, and fills what is free. Yield sends next to nothing while
  // there is a queue of others. Empty lets its own run empty for a round trip, to see the bare path.
  enum class State : std::uint8_t { kGrow, kSteady, kYield, kEmpty };

  void sample(const AckEvent& event);
  void measure_round(TimePoint now);
  void end_round(const AckEvent& event, const RttEstimator& rtt);
  void end_grow_round();
  void end_steady_round(TimePoint now, const RttEstimator& rtt);
  void end_yield_round();
  void learn_loss();
  void enter(State state);
  void control(const RttEstimator& rtt);
  [[nodiscard]] double trickle() const;
  [[nodiscard]] Duration grain() const;
  [[nodiscard]] Duration quiet_below() const;
  [[nodiscard]] Duration yield_above() const;

  State state_ = State::kGrow;
  std::int64_t rounds_in_state_ = 0;
  double rate_ = 0;      // delivered in the last round, bytes/s
  double capacity_ = 0;  // the most that ever was
  double sure_ = 0;      // bytes/s that growing may reach without care; 0: unknown
  double batch_ = 0;     // bytes that one acknowledgement covers
  TrainCapacity trains_;
  bool full_ = false;    // there was a queue of our own
  int free_rounds_ = 0;  // in a row in which there was no queue
  double model_window_;  // bytes; what the path loses comes on top

  Duration jitter_{std::chrono::seconds(1)};  // the least that round trips wander without a queue

  WindowedMin recent_;                // round trips of the last quarter of one
  double drain_rate_ = 0;             // delivered since then while the queue drained
  int quiet_rounds_ = 0;              // in a row
  int quiet_needed_;                  // to try again
  std::int64_t rounds_in_peace_ = 0;  // since
  TimePoint emptied_at_{};

  bool round_app_limited_ = true;
  double rate_before_round_ = 0;
  int plateau_rounds_ = 0;
  TimePoint round_started_{};
  int round_acks_ = 0;
  ByteCount round_acked_ = 0;
  ByteCount round_lost_ = 0;
  PathLoss loss_;
  double lost_ = 0;         // share of the last round
  double before_test_ = 0;  // bytes/s delivered before the last emptying
  bool tests_ = false;      // what became of an emptying is not known yet
  PolicedRate policed_;
  RoundQueue round_queue_;
  Duration rtt_min_{};
  ByteCount window_;
  double pacing_rate_;
};

}  // namespace tusk::transport
