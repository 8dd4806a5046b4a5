// Tusk's congestion controller: a model of the path (capacity, base round trip, random loss) and a queue
// of a known size for each flow. Loss is not congestion; queueing is. docs/CONGESTION.md explains the
// states, the constants and what was tried and rejected.
//
// The steady law is a window as FAST TCP's (Wei, Jin, Low and Hegde, IEEE/ACM ToN 2006): what the path holds
// of ours at the delivered rate x, and a queue of our own. FAST's queue is the same for every flow, so that n
// flows keep n queues; ours is C d sqrt(x/C) bytes, with which n flows with x = C/n each keep sqrt(n) d
// together. Whoever has less than the others keeps more for its rate, and gains.
#pragma once

#include <algorithm>

#include "proto/transport/base_doubt.h"
#include "proto/transport/buffer_room.h"
#include "proto/transport/capacity_check.h"
#include "proto/transport/carried_rate.h"
#include "proto/transport/congestion.h"
#include "proto/transport/contention.h"
#include "proto/transport/delivery_rate.h"
#include "proto/transport/emptying.h"
#include "proto/transport/goodput.h"
#include "proto/transport/longer_path.h"
#include "proto/transport/newest_loss.h"
#include "proto/transport/overrun.h"
#include "proto/transport/path_loss.h"
#include "proto/transport/policed_rate.h"
#include "proto/transport/round_queue.h"
#include "proto/transport/round_tally.h"
#include "proto/transport/siblings.h"
#include "proto/transport/startup.h"
#include "proto/transport/train_capacity.h"
#include "proto/transport/train_room.h"
#include "proto/transport/usual_queue.h"

namespace tusk::transport {

class ModelController final : public CongestionController {
 public:
  ModelController();
  ~ModelController() override;

  void handle_ack(const AckEvent& event, RttEstimator& rtt) override;
  void handle_outage(TimePoint now) override;
  void take_part(double part) override { part_ = part; }
  void remember(double rate) override { startup_.remember(rate); }
  void meet(std::shared_ptr<Siblings> siblings) override;
  void handle_demand(TimePoint now, RttEstimator& rtt) override;
  [[nodiscard]] ByteCount window() const override { return window_; }
  [[nodiscard]] double pacing_rate() const override { return pacing_rate_; }
  [[nodiscard]] ByteCount burst() const override;
  // As much as its queue, which has run empty meanwhile: there is room for it.
  [[nodiscard]] Duration catch_up() const override { return own_queue(); }
  [[nodiscard]] bool measures_trains() const override { return sends_trains(); }
  [[nodiscard]] ByteCount probe_train() const override;
  [[nodiscard]] double bandwidth() const override;
  [[nodiscard]] double capacity() const override { return capacity_; }
  [[nodiscard]] std::string_view state() const override;

 private:
  // Startup sends trains of packets, learns the capacity from how far apart they arrive, and goes there;
  // where trains tell nothing it grows until the queue or a plateau shows. Drain empties what that left
  // behind. Steady is the law above. Empty lets the queue run empty for a round trip, so that the base
  // round trip can be seen: by all flows at the same time, since they all see it then.
  enum class State : std::uint8_t { kStartup, kDrain, kSteady, kEmpty };

  static constexpr double kRateMin =
      10.0 * kUsualPacket;  // bytes/s: ten packets a second keep a dying path alive
  // So much more than there is, as trains tell, is worth to be taken.
  static constexpr double kWorthTaking = 1.2;

  // What was sent before a change is measured for so many rounds after it.
  static constexpr int kBlindRounds = 2;
  // Measurements that differ by more are of another line.
  static constexpr double kCapacityAgrees = 0.6;
  // No queue for so many rounds: trains look for more.
  static constexpr int kFreeRounds = 3;
  // Nearer by than that a round is soon over, and by what is lost of it a short buffer is known.
  static constexpr Duration kFarAway = 10ms;

  // What is measured, the states, and what they send: model_controller.cc.
  void sample_rate(const AckEvent& event);
  void sample_train(const AckEvent& event);
  [[nodiscard]] Duration queued_by(const AckEvent& event) const;
  void end_round(const AckEvent& event, RttEstimator& rtt);
  void learn_carried(TimePoint now);
  void learn_loss();
  void learn_buffer(TimePoint now);
  void enter(State state);
  void control(const RttEstimator& rtt);
  // Of the capacity, divided by our part: what a mount with flows like this one has.
  [[nodiscard]] double share_of(double rate) const { return rate / (part_ * capacity_); }
  [[nodiscard]] bool shared() const;
  [[nodiscard]] bool queue_short() const;  // so that loss is no full buffer
  [[nodiscard]] ByteCount packet() const { return std::max(kUsualPacket, datagram_size_); }  // of full size
  [[nodiscard]] bool sends_trains() const;
  [[nodiscard]] ByteCount train_bytes() const;
  [[nodiscard]] bool makes_room_for_train() const;
  // The shortest train that tells anything; and what may leave before anything is known.
  [[nodiscard]] ByteCount train_bytes_min() const { return TrainCapacity::bytes_min(datagram_size_); }

  // model_controller_start.cc
  [[nodiscard]] double start_rate() const;
  [[nodiscard]] bool start_overran() const;
  [[nodiscard]] bool start_policed() const;
  void end_startup_round();
  void control_startup(double round_trip);

  // model_controller_law.cc
  void end_steady_round(TimePoint now, RttEstimator& rtt);
  [[nodiscard]] double shown_rate() const;
  void grow_into_free_capacity();
  void insist_if_starved(TimePoint now, Duration queue);
  // Of a flow of ours that is alone.
  [[nodiscard]] Duration usual_queue() const { return usual_queue_of(rtt_min_); }
  [[nodiscard]] Duration own_queue() const;   // that, where the buffer has room for it
  [[nodiscard]] double extra_window() const;  // bytes

  // model_controller_emptying.cc
  void lengthen(TimePoint now, RttEstimator& rtt);
  void await_test();
  void resume_after_test();
  void verify_capacity();
  void lower_capacity(double rate);
  // The queue may be none.
  [[nodiscard]] bool puzzled();
  [[nodiscard]] bool empty_due(TimePoint now, const RttEstimator& rtt) const;
  [[nodiscard]] Emptying::Path emptying_path(double round_trip) const;

  // model_controller_siblings.cc
  [[nodiscard]] double part_of_all() const;
  void tell_siblings(TimePoint now, Duration queue);
  [[nodiscard]] double share_of_siblings() const;
  [[nodiscard]] bool siblings_fill() const;  // the line, together with this flow
  [[nodiscard]] bool siblings_empty(TimePoint now, const RttEstimator& rtt) const;
  void empty_with_siblings(TimePoint now, const RttEstimator& rtt);
  void agree_with_siblings();
  [[nodiscard]] double even_rate() const;  // bytes/s, with siblings
  [[nodiscard]] double owed() const;
  void share_evenly(Duration queue);

  // model_controller_overrun.cc
  [[nodiscard]] bool overruns_already(const RttEstimator& rtt) const;
  void begin_overrun(TimePoint now, Duration queue, std::uint64_t until);
  void measure_overrun(const AckEvent& event);
  void end_measuring_overrun(TimePoint now);
  void settle_overrun(TimePoint now);
  void believe_overrun(double rate);
  [[nodiscard]] bool passes_overrun() const { return overrun_.passes(round_); }
  [[nodiscard]] bool after_overrun() const;
  // True while nothing but what was lost is to be learnt.
  [[nodiscard]] bool end_overrun_round(TimePoint now, RttEstimator& rtt);
  void learn_from_overrun();
  [[nodiscard]] bool drain_overrun(TimePoint now, RttEstimator& rtt);

  // ---- The state.
  State state_ = State::kStartup;
  std::uint64_t round_ = 0;
  std::int64_t rounds_in_state_ = 0;  // a mount that only asks for names may be in one for years
  std::uint64_t blind_until_ = 0;     // round to whose end the measurements are those of what was before

  // ---- What is measured.
  RoundTally tally_;  // of this round
  DeliveryRate rate_;
  Goodput goodput_;
  CarriedRate carried_;  // near by
  NewestLoss newest_loss_;
  RoundQueue round_queue_;
  TrainCapacity trains_;
  Duration rtt_min_{};
  ByteCount delivered_ = 0;      // ever
  ByteCount datagram_size_ = 0;  // of a full packet; 0: unknown
  bool pressed_ = false;         // the path was ever given as much as it may carry

  // ---- What is believed of the path.
  double capacity_ = 0;  // of the bottleneck, with the parts of others; bytes/s
  CapacityCheck check_;  // whether trains said that
  BaseDoubt base_;       // whether the round trip is without queues
  LongerPath longer_path_;
  PathLoss loss_;
  PolicedRate policed_;
  BufferRoom buffer_;
  Overrun overrun_;

  // ---- Others.
  double part_ = 1;  // of what one flow would have, for k flows that have as much together: 1/k
  std::shared_ptr<Siblings> siblings_;  // nullptr: none are known of
  Siblings::Others others_;             // of them, by the newest round
  TimePoint told_at_{};
  Contention contention_;

  // ---- What is done.
  Startup startup_;
  Emptying emptying_;
  double model_window_ = 0;  // bytes delivered and queued; losses come on top
  int free_rounds_ = 0;      // in a row in which there was no queue
  TrainRoom train_room_;
  bool climbing_ = false;  // in these trains said that there is much more
  ByteCount window_;
  double pacing_rate_;
};

}  // namespace tusk::transport
