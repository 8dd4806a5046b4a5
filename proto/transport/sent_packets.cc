#include "proto/transport/sent_packets.h"

#include <algorithm>
#include <utility>

#include "proto/transport/ack_tracker.h"

namespace tusk::transport {
namespace {

// The peer's acknowledgement delay is bounded by AckTracker::kDelayMax on its side.
constexpr Duration kPeerAckDelayMax = AckTracker::kDelayMax;

// No more than the peer may wait, and no more than leaves the path as long as it was ever seen (RFC 9002
// §5.3): else a peer could have us believe in any round trip. Who sends little gets late acknowledgements
// only; where the path is shorter than is known, these are no queue.
Duration believed_delay(const wire::AckFrame& ack, Duration raw, const RttEstimator& rtt) {
  const Duration claimed = std::chrono::microseconds(std::min<std::uint64_t>(ack.delay_us, 1'000'000));
  const Duration delay = std::min<Duration>(claimed, kPeerAckDelayMax);
  const Duration at_least = std::min(raw, rtt.minimum());
  return rtt.has_sample() ? std::min(delay, raw - at_least) : Duration(0);
}

constexpr std::uint64_t kReceiverClockMaxUs = 3'155'760'000'000'000;  // a hundred years

// Of a clock that a peer may have made up.
Duration from_microseconds(std::uint64_t us) {
  return std::chrono::microseconds(std::min(us, kReceiverClockMaxUs));
}

// Differences of the receiver's clock beyond this are no measurement; they would overflow a Duration.
constexpr std::uint64_t kReceiverElapsedMaxUs = 3'600'000'000;

void append_frames(const SentPacket& packet, std::vector<SentFrame>& out) {
  out.push_back(packet.frame);
  out.insert(out.end(), packet.more.begin(), packet.more.end());
}

}  // namespace

void SentPackets::record(TimePoint now, std::uint32_t size, std::vector<SentFrame>& frames,
                         bool app_limited) {
  while (!packets_.empty() && packets_.front().state == State::kUntracked) pop_oldest();
  SentPacket& packet = packets_.emplace_back();
  packet.sent_at = now;
  packet.size = size;
  if (frames.empty()) return void(++bare_);
  if (in_flight_ == 0) {
    first_sent_at_ = now;
    delivered_at_ = now;
    delivered_received_us_ = 0;  // the receiver's clock tells nothing across an idle time
  }
  packet.state = State::kOutstanding;
  packet.app_limited = app_limited;
  packet.delivered = delivered_;
  packet.delivered_at = delivered_at_;
  packet.first_sent_at = first_sent_at_;
  packet.delivered_received_us = delivered_received_us_;
  packet.frame = frames.front();
  if (frames.size() > 1) packet.more.assign(frames.begin() + 1, frames.end());
  packet.mtu_probe = frames.size() == 1 && frames.front().kind == SentFrame::Kind::kMtuProbe;
  in_flight_ += size;
  packet.flight = in_flight_;
  ++outstanding_;
  // A search for the MTU must not keep putting off the probe for data that may be lost.
  if (!packet.mtu_probe || outstanding_ == 1) last_eliciting_sent_at_ = now;
}

bool SentPackets::handle_ack(TimePoint now, const wire::AckFrame& ack, RttEstimator& rtt, Outcome& outcome) {
  const std::uint64_t largest = ack.ranges.front().last.value();
  if (largest >= next_number().value()) return false;
  outcome.event.now = now;
  outcome.event.prior_in_flight = in_flight_;
  outcome.event.datagram_size = watched_size_;
  const std::uint64_t old_next = ack_next_;

  std::optional<std::uint64_t> newest;  // highest number acknowledged just now
  for (const wire::AckRange& range : ack.ranges) {
    const std::uint64_t first = std::max(range.first.value(), base_);
    const std::uint64_t end = range.last.value() + 1;
    if (first >= end) continue;
    for (const Interval& fresh : acked_.gaps(first, end)) {
      for (std::uint64_t n = fresh.begin; n < fresh.end; ++n) {
        if (at(n).state == State::kSkipped) return false;
        if (at(n).state == State::kUntracked) continue;
        if (!newest || n > *newest) newest = n;
        acknowledge(now, n, rtt, outcome);
      }
      acked_.add(fresh.begin, fresh.end);
    }
  }
  ack_next_ = std::max(ack_next_, largest + 1);

  if (newest) {
    const SentPacket& packet = at(*newest);
    outcome.event.flight = packet.flight;
    outcome.event.app_limited = packet.app_limited;
    if (*newest == largest) {
      const Duration raw = now - packet.sent_at;
      outcome.event.rtt = raw - believed_delay(ack, raw, rtt);
      rtt.add(now, outcome.event.rtt);
      outcome.arrival = {packet.sent_at, from_microseconds(ack.received_at_us)};
      outcome.event.train =
          train_.handle_ack(wire::PacketNumber(*newest), packet.sent_at, packet.size, ack.received_at_us);
      // On a slow line none of its packets may be missing: what a full buffer dropped took no time there.
      // Those below `base_` are forgotten: they arrived, or were lost so long ago that the train is over.
      if (outcome.event.train && outcome.event.train->one_by_one &&
          !acked_.covers(std::max(train_.first().value(), base_), *newest + 1))
        outcome.event.train.reset();
    }
    sample_rate(now, packet, ack, rtt.minimum(), outcome);
    probe_count_ = 0;
    outcome.any_acked = true;
    if (packet.delivered >= round_end_delivered_) {
      round_end_delivered_ = delivered_;
      outcome.event.round_ended = true;
      end_round();
    }
  }
  if (ack.congestion_marks > congestion_marks_) {
    outcome.event.marks = ack.congestion_marks - congestion_marks_;
    congestion_marks_ = ack.congestion_marks;
  }
  note_gaps(old_next, ack_next_);
  detect_losses(now, rtt, outcome);
  forget_settled(now, rtt);
  outcome.event.in_flight = in_flight_;
  outcome.event.delivered_total = delivered_;
  return true;
}

void SentPackets::acknowledge(TimePoint now, std::uint64_t number, const RttEstimator& rtt,
                              Outcome& outcome) {
  SentPacket& packet = at(number);
  if (packet.state == State::kLost) {
    // Late, not lost: wait longer for others before giving them up.
    ++spurious_total_;
    late_in_round_ = true;
    reordering_extra_ = std::max(reordering_extra_, (now - packet.sent_at - rtt.smoothed()) * 5 / 4);
  } else {
    in_flight_ -= packet.size;
    --outstanding_;
  }
  packet.state = State::kAcked;
  newest_confirmed_ = std::max(newest_confirmed_.value_or(packet.sent_at), packet.sent_at);
  delivered_ += packet.size;
  delivered_at_ = now;
  outcome.event.acked_bytes += packet.size;
  ++outcome.event.acked_packets;
  if (packet.size >= watched_size_) {
    outcome.full_size_acked = true;
    watched_acked_next_ = std::max(watched_acked_next_, number + 1);
  }
  append_frames(packet, outcome.acked);
}

void SentPackets::end_round() {
  if (late_in_round_) {
    in_order_rounds_ = 0;
  } else if (lost_in_round_ && ++in_order_rounds_ == kInOrderRounds) {
    in_order_rounds_ = 0;
    reordering_extra_ /= 2;
  }
  late_in_round_ = lost_in_round_ = false;
}

void SentPackets::sample_rate(TimePoint now, const SentPacket& newest, const wire::AckFrame& ack,
                              Duration rtt_min, Outcome& outcome) {
  const ByteCount bytes = delivered_ - newest.delivered;
  const Duration send_elapsed = newest.sent_at - newest.first_sent_at;
  Duration ack_elapsed = now - newest.delivered_at;
  // By the receiver's clock the spacing is that of the arrivals, whatever the return path does to
  // acknowledgements.
  if (newest.delivered_received_us != 0 && ack.received_at_us > newest.delivered_received_us)
    ack_elapsed = std::chrono::microseconds(
        std::min(ack.received_at_us - newest.delivered_received_us, kReceiverElapsedMaxUs));
  delivered_received_us_ = ack.received_at_us;
  first_sent_at_ = newest.sent_at;
  const Duration interval = std::max(send_elapsed, ack_elapsed);
  // Shorter than a round trip: compressed by something, not a measurement.
  if (interval < rtt_min * 3 / 4 || interval <= Duration(0)) return;
  outcome.event.rate = static_cast<double>(bytes) / to_seconds(interval);
}

void SentPackets::note_gaps(std::uint64_t old_next, std::uint64_t next) {
  for (std::uint64_t n = std::max(old_next, base_); n < next; ++n)
    if (at(n).state == State::kOutstanding) gaps_.push_back(n);
}

Duration SentPackets::reordering_window(const RttEstimator& rtt) const {
  // At most a round trip (RFC 8985 §6.2), as long as that is now: it may have been learnt behind a queue.
  return std::max({rtt.smoothed() / 16, std::min(reordering_extra_, rtt.smoothed()), Duration(50us)});
}

Duration SentPackets::loss_delay(const RttEstimator& rtt) const {
  return std::max(rtt.latest(), rtt.smoothed()) + reordering_window(rtt);
}

void SentPackets::detect_losses(TimePoint now, const RttEstimator& rtt, Outcome& outcome) {
  const Duration delay = loss_delay(rtt);
  loss_due_at_ = kNever;
  while (!gaps_.empty()) {
    const std::uint64_t number = gaps_.front();
    if (number >= base_ && at(number).state == State::kOutstanding) {
      SentPacket& packet = at(number);
      if (packet.sent_at + delay > now) {
        loss_due_at_ = packet.sent_at + delay;
        return;
      }
      lose(now, number, outcome);
    }
    gaps_.pop_front();
  }
}

void SentPackets::lose(TimePoint now, std::uint64_t number, Outcome& outcome) {
  SentPacket& packet = at(number);
  packet.state = State::kLost;
  packet.lost_at = now;
  in_flight_ -= packet.size;
  --outstanding_;
  append_frames(packet, outcome.lost);
  if (packet.mtu_probe) return;
  if (packet.size >= watched_size_ && number >= std::max(watched_acked_next_, swallowed_next_)) {
    outcome.full_size_swallowed = true;
    swallowed_next_ = next_number().value();
  }
  ++lost_total_;
  lost_in_round_ = true;
  ++outcome.event.lost_packets;
  outcome.event.lost_bytes += packet.size;
  outcome.event.lost_sent_at = std::max(outcome.event.lost_sent_at, packet.sent_at);
}

void SentPackets::pop_oldest() {
  if (packets_.front().state == State::kUntracked) --bare_;
  packets_.pop_front();
  ++base_;
}

void SentPackets::forget_settled(TimePoint now, const RttEstimator& rtt) {
  const TimePoint remember_since = now - kRememberLostRtts * rtt.smoothed();
  const std::uint64_t old_base = base_;
  while (!packets_.empty()) {
    const SentPacket& oldest = packets_.front();
    if (oldest.state == State::kOutstanding) break;
    if (oldest.state == State::kLost && oldest.lost_at > remember_since) break;
    if (oldest.state == State::kSkipped && base_ >= ack_next_) break;
    pop_oldest();
  }
  // Not each time: that moves all that stay.
  if (base_ != old_base && !acked_.empty() && acked_.intervals()[acked_.intervals().size() / 2].begin < base_)
    acked_.remove(0, base_);
}

bool SentPackets::handle_timeout(TimePoint now, const RttEstimator& rtt, Outcome& outcome) {
  outcome.event.now = now;
  outcome.event.prior_in_flight = in_flight_;
  outcome.event.datagram_size = watched_size_;
  if (loss_due_at_ <= now) {
    detect_losses(now, rtt, outcome);
    outcome.event.in_flight = in_flight_;
    outcome.event.delivered_total = delivered_;
    return false;
  }
  if (outstanding_ == 0 || next_timeout(rtt) > now) return false;
  ++probe_count_;
  // Counts from now for the next one, even if the probe itself is held up.
  last_eliciting_sent_at_ = now;
  return true;
}

TimePoint SentPackets::next_timeout(const RttEstimator& rtt) const {
  if (loss_due_at_ != kNever) return loss_due_at_;
  if (outstanding_ == 0) return kNever;
  const Duration longest = std::max<Duration>(kProbeTimeoutMax, 2 * rtt.minimum());
  const Duration timeout = std::min(rtt.probe_timeout(kPeerAckDelayMax), longest);
  const Duration backed_off = timeout * (1 << std::min(probe_count_, 10));
  return last_eliciting_sent_at_ + std::min(backed_off, std::max(kProbeBackoffMax, 2 * timeout));
}

std::vector<SentFrame> SentPackets::oldest_outstanding() const {
  std::vector<SentFrame> frames;
  for (const SentPacket& packet : packets_) {
    if (packet.state != State::kOutstanding || packet.mtu_probe) continue;
    append_frames(packet, frames);
    break;
  }
  return frames;
}

}  // namespace tusk::transport
