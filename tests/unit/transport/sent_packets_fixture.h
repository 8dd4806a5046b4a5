// A sender's record of what it sent, driven step by step in virtual time.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "proto/transport/sent_packets.h"
#include "tests/unit/transport/virtual_time.h"

namespace tusk::transport {

inline constexpr std::uint32_t kSentSize = 1000;

inline wire::AckFrame ack_frame(std::initializer_list<std::pair<std::uint64_t, std::uint64_t>> ranges) {
  wire::AckFrame frame;
  for (const auto& [first, last] : ranges)
    frame.ranges.push_back({wire::PacketNumber(first), wire::PacketNumber(last)});
  return frame;
}

// A sender whose packets each carry one frame of the exchange with the packet's own number, so that
// the outcome's frames tell which packets they were in.
class SentPacketsTest : public testing::Test {
 protected:
  void wait_until(Duration since_start) { now_ = at(since_start); }
  void wait(Duration duration) { now_ += duration; }

  std::uint64_t send(std::uint32_t size = kSentSize, bool app_limited = false) {
    return send_frame(SentFrame::Kind::kBody, size, app_limited);
  }
  std::uint64_t send_frame(SentFrame::Kind kind, std::uint32_t size = kSentSize, bool app_limited = false) {
    const std::uint64_t number = sent_.next_number().value();
    std::vector<SentFrame> frames{{kind, wire::ExchangeId(number), 0, size}};
    sent_.record(now_, size, frames, app_limited);
    return number;
  }
  // One that asks for no acknowledgement.
  std::uint64_t send_bare() {
    const std::uint64_t number = sent_.next_number().value();
    std::vector<SentFrame> none;
    sent_.record(now_, 40, none, false);
    return number;
  }

  bool ack(const wire::AckFrame& frame) {
    outcome_ = {};
    return sent_.handle_ack(now_, frame, rtt_, outcome_);
  }
  bool ack(std::uint64_t number) { return ack(ack_frame({{number, number}})); }
  // The outcome is that of the giving up.
  void answer_the_last_and_give_up_the_rest(std::uint64_t last) {
    wait(rtt_.smoothed());
    ASSERT_TRUE(ack(last));
    now_ = sent_.next_timeout(rtt_);
    EXPECT_FALSE(timeout());
  }
  // Of two that leave together the second is acknowledged, and the first is given up after a round trip of
  // 100 ms and `patience`; it comes `later` after all. Returns its number; the outcome is that of its coming.
  std::uint64_t give_up_one_that_comes(Duration later, Duration patience = 10ms) {
    const auto first = send();
    const auto second = send();
    wait(100ms);
    EXPECT_TRUE(ack(second));
    wait(patience);
    timeout();
    EXPECT_THAT(lost(), testing::ElementsAre(first));
    wait(later);
    EXPECT_TRUE(ack(ack_frame({{first, second}})));
    return first;
  }
  bool timeout() {
    outcome_ = {};
    return sent_.handle_timeout(now_, rtt_, outcome_);
  }

  [[nodiscard]] std::vector<std::uint64_t> acked() const { return numbers(outcome_.acked); }
  [[nodiscard]] std::vector<std::uint64_t> lost() const { return numbers(outcome_.lost); }
  [[nodiscard]] Duration next_timeout() const { return sent_.next_timeout(rtt_) - TimePoint(); }
  [[nodiscard]] bool timer_armed() const { return sent_.next_timeout(rtt_) != kNever; }

  // A round trip of `rtt` without variation is known, and nothing is in flight.
  void know_round_trip(Duration rtt) {
    for (int i = 0; i < 60; ++i) {
      const std::uint64_t number = send();
      wait(rtt);
      ASSERT_TRUE(ack(number));
    }
    ASSERT_EQ(rtt_.smoothed(), rtt);
    ASSERT_LT(rtt_.variation(), 10us);
  }

  SentPackets sent_;
  RttEstimator rtt_;
  SentPackets::Outcome outcome_;
  TimePoint now_{};

 private:
  static std::vector<std::uint64_t> numbers(const std::vector<SentFrame>& frames) {
    std::vector<std::uint64_t> result;
    for (const SentFrame& frame : frames) result.push_back(frame.exchange.value());
    return result;
  }
};

}  // namespace tusk::transport
