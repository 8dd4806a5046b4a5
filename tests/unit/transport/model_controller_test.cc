// The congestion controller on a path made of three numbers: capacity, round trip and queue, advanced
// in small steps of fluid. The simulations in tests/simulation say the same of packets.
#include "proto/transport/model_controller.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "proto/base/random.h"
#include "proto/transport/rtt_estimator.h"
#include "tests/unit/transport/virtual_time.h"

namespace tusk::transport {
namespace {

constexpr double kGigabit = 125e6;  // bytes/s
constexpr double kPacketSize = 1472;

// ---------------------------------------------------------------- vocabulary

// A controller and the path it believes in.
class FluidPath {
 public:
  FluidPath(double capacity, Duration rtt) : capacity_(capacity), rtt_(rtt) {}

  void set_capacity(double bytes_per_second) { capacity_ = bytes_per_second; }
  void set_random_loss(double share) { loss_ = share; }
  // The sender has less to send than it may.
  void set_demand(double bytes_per_second) { demand_ = bytes_per_second; }

  void run(Duration time) {
    for (const TimePoint end = now_ + time; now_ < end;) step();
  }

  [[nodiscard]] ModelController& controller() { return controller_; }
  [[nodiscard]] std::string_view state() const { return controller_.state(); }
  [[nodiscard]] double bandwidth() const { return controller_.bandwidth(); }
  [[nodiscard]] Duration queue() const { return from_seconds(queue_ / capacity_); }
  // Share of the capacity that arrived since the last question.
  [[nodiscard]] double utilisation() {
    const double share = delivered_ / (capacity_ * to_seconds(now_ - asked_at_));
    delivered_ = 0;
    asked_at_ = now_;
    return share;
  }

 private:
  static constexpr int kStepsPerRound = 20;

  void step() {
    const Duration dt = rtt_ / kStepsPerRound;
    const double seconds = to_seconds(dt);
    now_ += dt;
    // What is in flight: the path's content and the queue.
    const double in_flight = std::min(last_rate_, capacity_) * to_seconds(rtt_) + queue_;
    const double room = std::max(0.0, static_cast<double>(controller_.window()) - in_flight);
    const double allowed = std::min(controller_.pacing_rate(), demand_);
    const double sent = std::min(allowed * seconds, room + std::min(last_rate_, capacity_) * seconds);
    last_rate_ = sent / seconds;
    const double carried = std::min(queue_ + sent, capacity_ * seconds);
    queue_ += sent - carried;
    arrivals_.push_back({now_ + rtt_, carried, queue_});
    while (!arrivals_.empty() && arrivals_.front().at <= now_) {
      acknowledge(arrivals_.front(), seconds, in_flight);
      arrivals_.pop_front();
    }
  }

  struct Arrival {
    TimePoint at;
    double bytes;
    double queue;
  };

  void acknowledge(const Arrival& arrival, double seconds, double in_flight) {
    delivered_ += arrival.bytes * (1 - loss_);
    AckEvent event;
    event.now = now_;
    event.acked_bytes = static_cast<ByteCount>(arrival.bytes * (1 - loss_));
    event.lost_bytes = static_cast<ByteCount>(arrival.bytes * loss_);
    event.acked_packets = static_cast<std::uint64_t>(arrival.bytes / kPacketSize) + 1;
    event.lost_packets = static_cast<std::uint64_t>(arrival.bytes * loss_ / kPacketSize);
    event.in_flight = event.prior_in_flight = static_cast<ByteCount>(in_flight);
    event.rate = arrival.bytes * (1 - loss_) / seconds;
    event.app_limited = demand_ < controller_.pacing_rate();
    event.rtt = rtt_ + from_seconds(arrival.queue / capacity_);
    event.round_ended = now_ >= round_ends_;
    if (event.round_ended) round_ends_ = now_ + event.rtt;
    estimator_.add(now_, event.rtt);
    controller_.handle_ack(event, estimator_);
  }

  double capacity_;
  const Duration rtt_;
  double loss_ = 0;
  double demand_ = 1e12;
  TimePoint now_ = at(1s);
  TimePoint asked_at_ = now_;
  double queue_ = 0;  // bytes
  double last_rate_ = 0;
  double delivered_ = 0;
  TimePoint round_ends_ = now_;
  std::deque<Arrival> arrivals_;
  RttEstimator estimator_;
  ModelController controller_;
};

// One round of a path that needs no model: so much was delivered, so long was the round trip.
class Rounds {
 public:
  // `filled`: share of the window that was in flight for it. `lost`: bytes.
  void round(double rate, Duration rtt = 100ms, bool app_limited = false, double filled = 1,
             double lost = 0) {
    now_ += rtt;
    estimator_.add(now_, rtt);
    AckEvent event;
    event.now = now_;
    event.acked_bytes = static_cast<ByteCount>(rate * to_seconds(rtt));
    event.acked_packets = event.acked_bytes / 1472 + 1;
    event.lost_bytes = static_cast<ByteCount>(lost);
    event.in_flight = event.prior_in_flight = event.acked_bytes + event.lost_bytes;
    event.rate = rate;
    event.flight = static_cast<ByteCount>(filled * static_cast<double>(controller.window()));
    event.app_limited = app_limited;
    event.rtt = rtt;
    event.round_ended = true;
    controller.handle_ack(event, estimator_);
  }

  // Known at once, in the middle of a round: nothing is in flight any more.
  void lose_all(double bytes) {
    now_ += 10ms;
    AckEvent event;
    event.now = now_;
    event.lost_bytes = event.prior_in_flight = static_cast<ByteCount>(bytes);
    controller.handle_ack(event, estimator_);
  }

  ModelController controller;

 private:
  TimePoint now_ = at(1s);
  RttEstimator estimator_;
};

// ---------------------------------------------------------------- start

TEST(ModelStart, SendsSomethingBeforeAnythingIsKnown) {
  const ModelController controller;
  EXPECT_EQ(controller.state(), "startup");
  EXPECT_GE(controller.window(), 10 * 1472u);
  EXPECT_GT(controller.pacing_rate(), 1e5);
  EXPECT_EQ(controller.bandwidth(), 0.0);
  EXPECT_GT(controller.burst(), 0u);
}

TEST(ModelStart, AtLeastDoublesEveryRoundWhileThePathFollows) {
  Rounds rounds;
  double rate = 1e6;
  for (int i = 0; i < 8; ++i) {
    rounds.round(rate);
    ASSERT_EQ(rounds.controller.state(), "startup") << i;
    ASSERT_GE(rounds.controller.pacing_rate(), 2 * rate) << i;
    ASSERT_GE(static_cast<double>(rounds.controller.window()), 2 * rate * 0.1) << i;
    rate = 2 * rate;
  }
}

TEST(ModelStart, EndsWhenThreeRoundsBringNoMore) {
  Rounds rounds;
  for (const double rate : {1e6, 2e6, 4e6, 4e6, 4.1e6}) {
    rounds.round(rate);
    ASSERT_EQ(rounds.controller.state(), "startup");
  }
  rounds.round(4.2e6);
  EXPECT_NE(rounds.controller.state(), "startup");
}

TEST(ModelStart, EndsWhenTheQueueGrows) {
  Rounds rounds;
  for (const double rate : {1e6, 2e6, 4e6}) rounds.round(rate);
  ASSERT_EQ(rounds.controller.state(), "startup");
  rounds.round(8e6, 160ms);
  EXPECT_EQ(rounds.controller.state(), "drain");
}

TEST(ModelStart, DrainsItsQueueAndIsSteadyThen) {
  Rounds rounds;
  for (const double rate : {1e6, 2e6, 4e6}) rounds.round(rate);
  rounds.round(8e6, 160ms);
  ASSERT_EQ(rounds.controller.state(), "drain");
  EXPECT_LT(rounds.controller.pacing_rate(), 0.8 * rounds.controller.bandwidth());
  rounds.round(8e6, 100ms);
  EXPECT_EQ(rounds.controller.state(), "steady");
}

TEST(ModelStart, FillsPathsOfEveryKindWithinSomeRoundTrips) {
  for (const double capacity : {0.1 * kGigabit, kGigabit, 10 * kGigabit}) {
    for (const Duration rtt : {Duration(200us), Duration(10ms), Duration(100ms), Duration(300ms)}) {
      FluidPath path(capacity, rtt);
      path.run(25 * rtt);
      (void)path.utilisation();
      path.run(50 * rtt);
      EXPECT_GT(path.utilisation(), 0.9) << capacity << " bytes/s, " << to_seconds(rtt) << " s";
    }
  }
}

// ---------------------------------------------------------------- steady state

TEST(ModelSteady, KeepsTheQueueNearItsTarget) {
  FluidPath path(kGigabit, 100ms);
  path.run(10s);
  for (int i = 0; i < 100; ++i) {
    path.run(100ms);
    EXPECT_LT(path.queue(), 25ms) << i;
  }
  EXPECT_NEAR(path.bandwidth(), kGigabit, 0.05 * kGigabit);
}

// As the law says: sqrt(part) of a queue.
TEST(ModelSteady, OneOfFourKeepsHalfAQueue) {
  const auto queue_of = [](double part) {
    FluidPath path(kGigabit, 100ms);
    path.controller().take_part(part);
    path.run(10s);
    Duration sum{};
    constexpr int kSamples = 200;
    for (int i = 0; i < kSamples; ++i) {
      path.run(20ms);
      sum += path.queue();
    }
    EXPECT_GT(path.utilisation(), 0.9) << part;
    return to_seconds(sum / kSamples);
  };
  EXPECT_NEAR(queue_of(0.25) / queue_of(1), 0.5, 0.15);
}

TEST(ModelSteady, EmptiesTheQueueEveryFewSecondsToSeeTheBareRoundTrip) {
  FluidPath path(kGigabit, 50ms);
  path.run(3s);
  int times = 0;
  bool empty = false;
  for (int i = 0; i < 4000; ++i) {
    path.run(5ms);
    if (path.state() == "empty" && !empty) ++times;
    empty = path.state() == "empty";
  }
  EXPECT_GE(times, 3);
  EXPECT_LE(times, 8);
}

TEST(ModelSteady, RandomLossIsNotCongestion) {
  for (const double loss : {0.001, 0.01, 0.05}) {
    FluidPath path(kGigabit, 100ms);
    path.set_random_loss(loss);
    path.run(5s);
    (void)path.utilisation();
    path.run(20s);
    EXPECT_GT(path.utilisation(), 0.93 * (1 - loss)) << loss;
  }
}

// A machine that was busy sends less for a while; a path that became slower delivers less of a full window.
TEST(ModelSteady, AWindowThatWasNotFilledIsKept) {
  for (const bool busy : {true, false}) {
    Rounds rounds;
    for (const double rate : {1e6, 2e6, 4e6, 4e6, 4e6, 4e6, 4e6, 4e6, 4e6}) rounds.round(rate);
    ASSERT_EQ(rounds.controller.state(), "steady");
    const auto before = static_cast<double>(rounds.controller.window());
    for (int i = 0; i < 4; ++i) rounds.round(3e6, 100ms, false, busy ? 0.75 : 1);
    if (busy)
      EXPECT_GE(static_cast<double>(rounds.controller.window()), 0.97 * before);
    else
      EXPECT_LE(static_cast<double>(rounds.controller.window()), 0.9 * before);
  }
}

TEST(ModelSteady, SilenceProvesNothing) {
  FluidPath path(kGigabit, 100ms);
  path.run(5s);
  const double before = path.bandwidth();
  path.set_demand(0.01 * kGigabit);
  path.run(60s);
  EXPECT_GE(path.bandwidth(), 0.9 * before);
}

// ---------------------------------------------------------------- changes

TEST(ModelChange, FollowsACollapseOfTheCapacity) {
  FluidPath path(kGigabit, 50ms);
  path.run(5s);
  path.set_capacity(kGigabit / 10);
  path.run(3s);
  EXPECT_LT(path.bandwidth(), 1.3 * kGigabit / 10);
  path.run(5s);
  EXPECT_LT(path.queue(), 100ms) << "and the queue it left is gone";
  (void)path.utilisation();
  path.run(5s);
  EXPECT_GT(path.utilisation(), 0.85);
}

TEST(ModelChange, FindsMoreCapacity) {
  FluidPath path(kGigabit / 10, 50ms);
  path.run(5s);
  path.set_capacity(kGigabit);
  path.run(5s);
  (void)path.utilisation();
  path.run(3s);
  EXPECT_GT(path.utilisation(), 0.85);
}

TEST(ModelChange, AfterAnOutageStartsFromAQuarter) {
  FluidPath path(kGigabit, 50ms);
  path.run(5s);
  const double before = path.bandwidth();
  path.controller().handle_outage(at(100s));
  EXPECT_EQ(path.state(), "startup");
  EXPECT_NEAR(path.bandwidth(), before / 4, before / 100);
  // Also what is sent before anything is acknowledged.
  EXPECT_LE(path.controller().pacing_rate(), before / 4 * 1.01);
  EXPECT_LE(path.controller().window(), before / 4 * 0.051);
  path.run(2s);
  EXPECT_GT(path.bandwidth(), 0.9 * before);
}

// What of the window exceeds a rate is lost, and known a round later.
class Policed {
 public:
  void round() {
    const double window = static_cast<double>(rounds.controller.window());
    const double passes = std::min(in_flight_, kRate * 0.1);
    rounds.round(passes / 0.1, 100ms, false, 1, in_flight_ - passes);
    in_flight_ = window;
  }

  static constexpr double kRate = kGigabit / 2;
  Rounds rounds;

 private:
  double in_flight_ = 0;
};

// The window that was put aside while a test ran was that of the path before.
TEST(ModelChange, AnOutageDuringATestForgetsTheWindowBeforeIt) {
  Policed path;
  for (int i = 0; i < 200 && path.rounds.controller.state() != "empty"; ++i) path.round();
  path.rounds.round(Policed::kRate);
  ASSERT_EQ(path.rounds.controller.state(), "steady");
  path.rounds.controller.handle_outage(at(100s));
  for (int i = 0; i < 20; ++i) {
    path.rounds.round(kGigabit / 100);
    if (path.rounds.controller.state() == "steady") {
      EXPECT_LT(path.rounds.controller.window(), kGigabit / 100 * 0.2);
    }
  }
  EXPECT_EQ(path.rounds.controller.state(), "steady");
}

// Kept from running for some milliseconds, it hears at once of what came meanwhile.
TEST(ModelChange, NearByTheBestSampleOfABusyMachineIsNoWiderLine) {
  Rounds rounds;
  for (int i = 0; i < 20; ++i) rounds.round(kGigabit, 2ms);
  ASSERT_NE(rounds.controller.state(), "startup");
  for (int i = 0; i < 100; ++i) {
    rounds.round(0.64 * kGigabit, 12ms);
    rounds.round(1.36 * kGigabit, 12ms);
  }
  EXPECT_LE(rounds.controller.capacity(), 1.1 * kGigabit);
  EXPECT_GE(rounds.controller.capacity(), 0.9 * kGigabit);
}

// How often a line near by was emptied in 8 s, one round in `every` of which had `slow` of it, the others
// all.
int emptyings(int every, double slow) {
  Rounds rounds;
  for (int i = 0; i < 20; ++i) rounds.round(kGigabit, 2ms);
  int times = 0;
  for (int i = 0; i < 600; ++i) {
    const bool empty = rounds.controller.state() == "empty";
    rounds.round((i % every == 0 ? slow : 1) * kGigabit, empty ? 2ms : 14ms);
    if (!empty && rounds.controller.state() == "empty") ++times;
  }
  return times;
}

// Nor is a slow one that of a line that others share, which would be emptied for them each 0.6 s.
TEST(ModelChange, NearByASlowRoundNowAndThenIsNobodyElse) { EXPECT_LE(emptyings(8, 0.7), 3); }

TEST(ModelChange, NearByALineThatIsSharedIsEmptiedOften) { EXPECT_GE(emptyings(1, 0.5), 8); }

// A line that became narrow is measured by what still comes. Where nothing does, waiting for it lasted until
// a packet at the least rate there is was due: seconds.
TEST(ModelChange, AFlightThatIsLostToTheLastPacketIsAnOutage) {
  Rounds rounds;
  for (int i = 0; i < 30; ++i) rounds.round(kGigabit);
  for (int i = 0; i < 3; ++i) rounds.round(kGigabit / 10, 200ms);
  ASSERT_EQ(rounds.controller.state(), "steady");
  rounds.lose_all(kGigabit / 10);
  EXPECT_EQ(rounds.controller.state(), "startup");
  EXPECT_GT(rounds.controller.pacing_rate(), kGigabit / 50);
}

TEST(ModelStart, ALatePacketOnAnIdleLineEndsNothing) {
  Rounds rounds;
  for (int i = 0; i < 10; ++i) rounds.round(1e4, 100ms, true);
  rounds.round(1e4, 160ms, true);
  EXPECT_EQ(rounds.controller.state(), "startup");
}

TEST(ModelChange, AnOutageBeforeTheFirstAnswerIsSurvived) {
  ModelController controller;
  controller.handle_outage(at(1s));
  EXPECT_GT(controller.pacing_rate(), 0.0);
  EXPECT_GT(controller.window(), 0u);
}

// ---------------------------------------------------------------- bounds

TEST(ModelBounds, WhateverIsReportedSomethingSaneMayBeSent) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Random random(seed);
    ModelController controller;
    RttEstimator rtt;
    TimePoint now = at(1s);
    for (int i = 0; i < 2000; ++i) {
      now += Duration(random.below(100'000'000));
      rtt.add(now, Duration(1 + random.below(random.chance(0.1) ? 5'000'000'000 : 1'000'000)));
      AckEvent event;
      event.now = now;
      event.acked_packets = random.below(100);
      event.acked_bytes = event.acked_packets * 1472;
      event.lost_packets = random.below(100);
      event.lost_bytes = event.lost_packets * 1472;
      event.in_flight = random.below(1 << 30);
      event.flight = random.chance(0.5) ? 0 : random.below(1 << 30);
      event.datagram_size = random.chance(0.5) ? 0 : random.below(65536);
      event.rate = random.chance(0.3) ? 0 : std::pow(10.0, 12 * random.uniform());
      event.app_limited = random.chance(0.3);
      event.round_ended = random.chance(0.4);
      event.rtt = rtt.latest();
      if (random.chance(0.2))
        event.train =
            PacketTrain{random.below(5), random.below(1 << 24), Duration(random.below(1'000'000'000))};
      controller.handle_ack(event, rtt);
      if (random.chance(0.01)) controller.handle_outage(now);
      ASSERT_GE(controller.window(), 4 * 1472u) << "seed " << seed;
      ASSERT_LT(controller.window(), 1ull << 50) << "seed " << seed;
      ASSERT_GT(controller.pacing_rate(), 0.0) << "seed " << seed;
      ASSERT_TRUE(std::isfinite(controller.pacing_rate())) << "seed " << seed;
      ASSERT_TRUE(std::isfinite(controller.bandwidth())) << "seed " << seed;
      ASSERT_GT(controller.burst(), 0u) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace tusk::transport
