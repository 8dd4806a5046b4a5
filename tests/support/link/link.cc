#include "tests/support/link/link.h"

#include <algorithm>
#include <numeric>

#include "proto/base/check.h"

namespace tusk::support {
namespace {

constexpr std::uint64_t kNanosecondsPerSecond = 1'000'000'000;
constexpr std::uint64_t kBitsPerByte = 8;
constexpr ByteCount kPacketSizeMax = 65'535;  // IP; keeps the arithmetic of transmit() in 64 bits

// A jitter line lasts at least twice the jitter, so it never falls faster than time passes and the
// order of packets holds.
constexpr Duration kJitterLineMin = 10ms;
constexpr int kJitterSteepness = 2;
// A pause after which what lost a burst of packets is over.
constexpr Duration kBurstPause = 1s;

// Distinct seeds for the streams of one link (splitmix64's increment).
constexpr std::uint64_t kSeedStep = 0x9e3779b97f4a7c15;

Duration scaled(Duration duration, double factor) {
  return Duration(static_cast<Duration::rep>(static_cast<double>(duration.count()) * factor));
}

}  // namespace

Retiming::Retiming(TimePoint now, std::uint64_t old_rate, std::uint64_t new_rate) : now_(now) {
  if (old_rate == new_rate || old_rate == 0) return;
  factor_ = new_rate == 0 ? 0.0 : static_cast<double>(old_rate) / static_cast<double>(new_rate);
}

Duration Retiming::shift(TimePoint departs_at) const {
  if (departs_at <= now_) return Duration(0);
  return scaled(departs_at - now_, factor_ - 1.0);
}

std::uint64_t LinkStatistics::dropped() const {
  return std::accumulate(drops.begin(), drops.end(), std::uint64_t{0});
}

Duration LinkStatistics::queue_mean() const {
  return queue_packets == 0 ? Duration(0) : queue_total / static_cast<Duration::rep>(queue_packets);
}

Link::Link(const LinkParameters& parameters, std::uint64_t seed)
    : parameters_(parameters),
      loss_chance_(seed),
      burst_chance_(seed + kSeedStep),
      damage_chance_(seed + 2 * kSeedStep),
      delay_chance_(seed + 3 * kSeedStep),
      policer_tokens_(static_cast<double>(parameters.policer_burst * kBitsPerByte)) {}

Verdict Link::enqueue(TimePoint now, ByteCount size) {
  TUSK_CHECK(size <= kPacketSizeMax);
  ++statistics_.packets_in;
  statistics_.bytes_in += size;

  Verdict verdict;
  verdict.drop = admit(now, size);
  if (verdict.drop == DropCause::kNone) {
    verdict.queued = backlog(now);
    verdict.departs_at = transmit(now, size);
    statistics_.queue_max = std::max(statistics_.queue_max, verdict.queued);
    statistics_.queue_total += verdict.queued;
    ++statistics_.queue_packets;
    // Both are asked for every packet, so the one's losses do not shift the other's pattern.
    const bool lost = parameters_.loss > 0 && loss_chance_.chance(parameters_.loss);
    const bool burst = in_loss_burst(now);
    if (lost) verdict.drop = DropCause::kLoss;
    if (burst) verdict.drop = DropCause::kBurstLoss;
  }
  if (verdict.drop != DropCause::kNone) {
    ++statistics_.drops[static_cast<std::size_t>(verdict.drop)];
    return verdict;
  }

  verdict.congestion_marked = parameters_.ecn_threshold > 0ns && verdict.queued > parameters_.ecn_threshold;
  verdict.corrupted = parameters_.corrupt > 0 && damage_chance_.chance(parameters_.corrupt);
  const bool duplicated = parameters_.duplicate > 0 && damage_chance_.chance(parameters_.duplicate);
  verdict.copies = duplicated ? 2 : 1;
  verdict.deliver_at.fill(verdict.departs_at + parameters_.delay + jitter_at(verdict.departs_at));
  if (parameters_.reorder > 0 && delay_chance_.chance(parameters_.reorder)) {
    verdict.held_back = true;
    verdict.deliver_at[0] +=
        parameters_.reorder_min +
        scaled(parameters_.reorder_max - parameters_.reorder_min, delay_chance_.uniform());
  }

  statistics_.packets_out += verdict.copies;
  statistics_.bytes_out += verdict.copies * size;
  statistics_.duplicated += duplicated;
  statistics_.corrupted += verdict.corrupted;
  statistics_.reordered += verdict.held_back;
  statistics_.marked += verdict.congestion_marked;
  return verdict;
}

Retiming Link::change(TimePoint now, const LinkParameters& parameters) {
  const Retiming retiming(now, parameters_.rate, parameters.rate);
  free_ += retiming.shift(free_);
  if (parameters.rate != parameters_.rate) free_remainder_ = 0;
  if (parameters.policer_rate != parameters_.policer_rate ||
      parameters.policer_burst != parameters_.policer_burst) {
    policer_tokens_ = static_cast<double>(parameters.policer_burst * kBitsPerByte);
    policer_filled_ = now;
  }
  parameters_ = parameters;
  return retiming;
}

Duration Link::backlog(TimePoint now) const { return std::max(free_ - now, Duration(0)); }

ByteCount Link::backlog_bytes(TimePoint now) const {
  return static_cast<ByteCount>(to_seconds(backlog(now)) * static_cast<double>(parameters_.rate) /
                                kBitsPerByte);
}

DropCause Link::admit(TimePoint now, ByteCount size) {
  if (parameters_.outage) return DropCause::kOutage;
  if (!policer_passes(now, size)) return DropCause::kPolicer;
  const Duration wait = backlog(now);
  if (wait == 0ns) return DropCause::kNone;  // an idle link takes any packet
  if (parameters_.queue_time > 0ns && wait > parameters_.queue_time) return DropCause::kQueue;
  if (parameters_.queue_bytes > 0 && backlog_bytes(now) + size > parameters_.queue_bytes) {
    return DropCause::kQueue;
  }
  return DropCause::kNone;
}

bool Link::policer_passes(TimePoint now, ByteCount size) {
  if (parameters_.policer_rate == 0) return true;
  const double full = static_cast<double>(parameters_.policer_burst * kBitsPerByte);
  const double earned = to_seconds(now - policer_filled_) * static_cast<double>(parameters_.policer_rate);
  policer_tokens_ = std::min(full, policer_tokens_ + earned);
  policer_filled_ = now;
  const double price = static_cast<double>(size * kBitsPerByte);
  if (policer_tokens_ < price) return false;
  policer_tokens_ -= price;
  return true;
}

// Gilbert's two states. The chain moves once a packet; with the chance 1/length to leave a burst, runs
// have that mean length, and the chance to enter follows from the share of time wanted in bursts. What loses
// them on a real path passes with time, too: who only probes, for two packets every two seconds, would be
// silenced for minutes by a burst that ends with packets alone.
bool Link::in_loss_burst(TimePoint now) {
  if (now - burst_asked_at_ >= kBurstPause) bursting_ = false;
  burst_asked_at_ = now;
  if (parameters_.burst_loss <= 0) return bursting_ = false;
  if (parameters_.burst_loss >= 1) return bursting_ = true;
  const double leave = 1.0 / parameters_.burst_length;
  const double enter = leave * parameters_.burst_loss / (1.0 - parameters_.burst_loss);
  bursting_ = bursting_ ? !burst_chance_.chance(leave) : burst_chance_.chance(enter);
  return bursting_;
}

// Whole nanoseconds would lose up to a nanosecond a packet (0.1 % at 10 Gbit/s and MTU 1500), so the
// remainder is carried while the link stays busy.
TimePoint Link::transmit(TimePoint now, ByteCount size) {
  if (free_ <= now) {
    free_ = now;
    free_remainder_ = 0;
  }
  if (parameters_.rate > 0) {
    const std::uint64_t work = size * kBitsPerByte * kNanosecondsPerSecond + free_remainder_;
    free_ += Duration(static_cast<Duration::rep>(work / parameters_.rate));
    free_remainder_ = work % parameters_.rate;
  }
  return free_;
}

Duration Link::jitter_at(TimePoint when) {
  if (parameters_.jitter == 0ns) return Duration(0);
  const Duration line = std::max(kJitterLineMin, parameters_.jitter * kJitterSteepness);
  const bool idle = !jitter_started_ || when - jitter_from_ >= 2 * line;
  if (idle) {
    jitter_started_ = true;
    jitter_from_ = when;
    jitter_from_height_ = delay_chance_.uniform();
    jitter_to_height_ = delay_chance_.uniform();
  } else if (when - jitter_from_ >= line) {
    jitter_from_ += line;
    jitter_from_height_ = jitter_to_height_;
    jitter_to_height_ = delay_chance_.uniform();
  }
  // Retimed links can ask about a moment before the line's start.
  const double along = std::clamp(to_seconds(when - jitter_from_) / to_seconds(line), 0.0, 1.0);
  return scaled(parameters_.jitter, jitter_from_height_ + along * (jitter_to_height_ - jitter_from_height_));
}

}  // namespace tusk::support
