#include "proto/transport/ack_tracker.h"

#include <algorithm>
#include <utility>

namespace tusk::transport {
namespace {

std::uint64_t to_us(Duration d) {
  return static_cast<std::uint64_t>(
      std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::microseconds>(d).count()));
}

}  // namespace

bool AckTracker::is_new(wire::PacketNumber number) const {
  return number.value() >= floor_ && !received_.contains(number.value());
}

void AckTracker::record(TimePoint now, wire::PacketNumber number, bool ack_eliciting, bool congestion_mark) {
  oldest_untold_ = std::min(oldest_untold_, number.value());
  received_.add(number.value(), number.value() + 1);
  // Some at once: to forget one moves all others.
  if (received_.intervals().size() > kRangesMax)
    raise_floor(wire::PacketNumber(received_.intervals()[kRangesMax / kForgottenPart].begin));
  if (number.value() >= next_) {
    next_ = number.value() + 1;
    largest_at_ = now;
  }
  if (congestion_mark) ++congestion_marks_;
  if (!ack_eliciting) return;
  ++eliciting_total_;
  const int threshold = eliciting_total_ <= kYoungPackets ? kPacketsPerAckYoung : kPacketsPerAck;
  if (++unacknowledged_ >= threshold) {
    due_at_ = now;
  } else {
    due_at_ = std::min(due_at_, now + delay_);
  }
}

void AckTracker::raise_floor(wire::PacketNumber floor) {
  if (floor.value() <= floor_) return;
  floor_ = std::min(floor.value(), next_);
  // What is above it has still not been told.
  if (oldest_untold_ != kNone) oldest_untold_ = std::max(oldest_untold_, floor_);
  if (oldest_told_once_ != kNone) oldest_told_once_ = std::max(oldest_told_once_, floor_);
  received_.remove(0, floor_);
}

std::optional<wire::AckFrame> AckTracker::take_frame(TimePoint now, std::size_t room) {
  if (received_.empty()) {
    due_at_ = kNever;
    return std::nullopt;
  }
  wire::AckFrame frame;
  frame.delay_us = to_us(now - largest_at_);
  frame.received_at_us = to_us(largest_at_.time_since_epoch());
  frame.congestion_marks = congestion_marks_;
  const auto& intervals = received_.intervals();
  const std::size_t enough = acks_until_full_ > 0 ? kNewestRanges : wire::kAckRangesMax;
  const std::uint64_t oldest = std::min(oldest_untold_, oldest_told_once_);
  for (auto at = intervals.rbegin(); at != intervals.rend(); ++at) {
    if (frame.ranges.size() == wire::kAckRangesMax) break;
    if (frame.ranges.size() >= enough && at->end <= oldest) break;
    frame.ranges.push_back({wire::PacketNumber(at->begin), wire::PacketNumber(at->end - 1)});
  }
  while (frame.ranges.size() > 1 && wire::ack_frame_size(frame) > room) frame.ranges.pop_back();
  if (wire::ack_frame_size(frame) > room) return std::nullopt;
  acks_until_full_ = acks_until_full_ > 0 ? acks_until_full_ - 1 : kAcksPerFull - 1;
  const std::size_t left = intervals.size() - frame.ranges.size();
  if (left == 0 || intervals[left - 1].end <= oldest_untold_)
    oldest_told_once_ = std::exchange(oldest_untold_, kNone);
  due_at_ = kNever;
  unacknowledged_ = 0;
  return frame;
}

}  // namespace tusk::transport
