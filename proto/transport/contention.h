// Beside flows that fill every buffer (CUBIC, BBR) a flow that keeps its own queue small is left with
// nothing. This notices them, and says on which share of the line to insist meanwhile: at most a half.
//
// A switch between two ways as in Copa (NSDI 2018, §2.2); what is done in the second is our own. Insisting is
// sending at that share of the capacity whatever the queue is. CUBIC then has the losses that tell it where
// its own half ends, and BBR measures no more than the rest.
//
// Pure state; not thread-safe.
#pragma once

#include <optional>

#include "proto/base/time.h"

namespace tusk::transport {

class Contention {
 public:
  // Flows to one host that have so much of the line together have it all: nobody else is there.
  static constexpr double kTogetherAll = 0.85;

  struct Round {
    TimePoint now;
    double got = 0;               // share of the capacity that was delivered for us, 0..1
    double flows = 1;             // that "us" are, all alike: one and its siblings
    Duration queue{};             // that did not go away in this round
    Duration usual_queue{};       // that one flow of ours keeps
    Duration extra_queue{};       // that each of them adds, whatever its share
    Duration round_trip{};        // without a queue
    bool is_short = false;        // the queue was hardly longer than one flow's
    Duration empties_in{};        // flows of ours that share a line all empty the queue in so long
    double loss = 0;              // share of packets lost, beyond what the path loses on its own
    double overflow = 0;          // likewise, beyond what is lost of a round that does not press the path
    bool capacity_known = false;  // lately measured
    double together = 0;          // share of the capacity of all flows to this host, if there are others
  };

  // At the end of each round trip in which there was something to send. The share of the capacity to insist
  // on; nullopt: there is no need.
  [[nodiscard]] std::optional<double> end_round(const Round& round);

  [[nodiscard]] bool insists() const { return insisting_; }
  // How much speaks for others, 0..1: all before we insist, and while we do.
  [[nodiscard]] double suspicion() const;
  // In the round before it insisted to no effect: it is not others who have the rest.
  [[nodiscard]] bool insisted_in_vain() const { return in_vain_; }
  // It looks as if there were a need, but a line that became slower looks the same.
  [[nodiscard]] bool doubts_capacity() const { return doubts_capacity_; }

 private:
  void pass_time(const Round& round);
  void notice(const Round& round);
  void stop_insisting();
  void notice_joins(const Round& round);
  void notice_long_queue(const Round& round);
  [[nodiscard]] bool stays(const Round& round) const;
  void insist(const Round& round);
  void judge_effect(const Round& round);
  void adapt_share(const Round& round);

  // The time of the rounds that it was told of: how long something has been so says nothing of pauses.
  TimePoint now_{};
  TimePoint round_ended_at_{};  // by the clock
  bool insisting_ = false;
  bool doubts_capacity_ = false;
  int rounds_ = 0;                       // since then
  int calm_rounds_ = 0;                  // in a row in which there was no queue but ours
  TimePoint kept_at_{};                  // when the buffer last held what was sent
  double overflow_ = 0;                  // of the last rounds
  std::optional<TimePoint> short_at_;    // when the queue last was
  std::optional<TimePoint> long_since_;  // since when it has not been, and nobody joined
  double long_overflow_ = 0;             // of the rounds since then, together
  int long_rounds_ = 0;                  // how many there were
  double crowd_ = 0;              // queues in the last rounds, as multiples of what flows of ours would keep
  int joining_rounds_ = 0;        // left, in which some flow is taken to have just started
  TimePoint joining_until_{};     // likewise
  Duration queue_before_{};       // of the round before; at first there is none, so that our own start counts
  Duration queue_before_that_{};  // of the one before it
  TimePoint wary_until_{};
  double share_ = 0;
  int epoch_rounds_ = 0;
  double epoch_loss_ = 0;  // of its last rounds
  double epoch_got_ = 0;   // at its beginning
  int vain_epochs_ = 0;
  bool in_vain_ = false;
};

}  // namespace tusk::transport
