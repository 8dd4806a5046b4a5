#include "proto/transport/path_mtu.h"

namespace tusk::transport {

std::optional<std::uint32_t> PathMtu::poll_probe(TimePoint now, Duration round_trip) {
  if (now < round_at_) return std::nullopt;
  while (next_candidate_ < kCandidates.size()) {
    const std::uint32_t size = kCandidates[next_candidate_++];
    if (size > confirmed_ && size <= std::min(size_max_, interface_max_)) return size;
  }
  // The round is over: the next one when its answers must be here, or much later.
  next_candidate_ = 0;
  const bool again = ++attempts_ < kAttemptsMax;
  if (!again) {
    attempts_ = 0;
    interface_max_ = wire::kDatagramSizeMax;  // it may be another one by then
  }
  round_at_ = now + (again ? 2 * round_trip + 50ms : kRaiseAfter);
  return std::nullopt;
}

void PathMtu::handle_probe_acked(std::uint32_t size) {
  if (size <= confirmed_ || size > std::min(size_max_, interface_max_)) return;
  confirmed_ = size;
  full_size_losses_ = 0;
}

void PathMtu::handle_too_big(std::uint32_t size) {
  if (size <= wire::kDatagramSizeMin) return;
  interface_max_ = std::min(interface_max_, size - 1);
  if (size > confirmed_) return;
  // The size in use does not fit any more: what still does is searched for at once.
  confirmed_ = wire::kDatagramSizeMin;
  full_size_losses_ = 0;
  next_candidate_ = 0;
  attempts_ = 0;
  round_at_ = {};
}

bool PathMtu::handle_full_size_lost(TimePoint now) {
  if (confirmed_ == wire::kDatagramSizeMin || ++full_size_losses_ < kBlackHoleLosses) return false;
  confirmed_ = wire::kDatagramSizeMin;
  full_size_losses_ = 0;
  next_candidate_ = 0;
  attempts_ = 0;
  round_at_ = now + kRetryAfterBlackHole;
  return true;
}

}  // namespace tusk::transport
