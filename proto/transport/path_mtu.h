// Finds the largest datagram the path carries (RFC 8899, DPLPMTUD): every common size is probed at once
// in the first round trip, so that bulk data runs at full size from the second on. A path that starts to
// swallow full-size packets (a black hole) drops back to the minimum and is searched again later.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "proto/base/time.h"
#include "proto/wire/types.h"

namespace tusk::transport {

class PathMtu {
 public:
  // Largest UDP payload of common paths: 9000 and 1500 byte MTU over IPv4 and IPv6, PPPoE, tunnels.
  static constexpr std::array<std::uint32_t, 9> kCandidates = {1312, 1372, 1412, 1440, 1452,
                                                               1464, 1472, 8952, 8972};
  static constexpr int kAttemptsMax = 3;
  static constexpr int kBlackHoleLosses = 3;
  static constexpr Duration kRetryAfterBlackHole = 60s;
  static constexpr Duration kRaiseAfter = 600s;

  explicit PathMtu(std::uint32_t size_max) : size_max_(size_max) {}

  // Bytes of UDP payload that are known to pass.
  [[nodiscard]] std::uint32_t datagram_size() const { return confirmed_; }
  // What the peer can receive is less.
  void limit(std::uint32_t size_max) {
    size_max_ = std::min(size_max_, size_max);
    confirmed_ = std::min(confirmed_, std::max<std::uint32_t>(size_max_, wire::kDatagramSizeMin));
  }

  // The size of a probe to send now, smallest first.
  [[nodiscard]] std::optional<std::uint32_t> poll_probe(TimePoint now, Duration round_trip);
  [[nodiscard]] TimePoint next_timeout() const { return round_at_; }
  // No room for probes before `until`.
  void postpone(TimePoint until) { round_at_ = std::max(round_at_, until); }
  void handle_probe_acked(std::uint32_t size);
  // The host's own interface refuses such sizes, until it is asked again when all are.
  void handle_too_big(std::uint32_t size);

  void handle_full_size_acked() { full_size_losses_ = 0; }
  // True: a black hole; the size fell back.
  bool handle_full_size_lost(TimePoint now);

 private:
  std::uint32_t confirmed_ = wire::kDatagramSizeMin;
  std::uint32_t size_max_;  // of the peer's
  std::uint32_t interface_max_ = wire::kDatagramSizeMax;
  std::size_t next_candidate_ = 0;  // in this round of probes
  int attempts_ = 0;
  TimePoint round_at_{};  // when the next round of probes may start
  int full_size_losses_ = 0;
};

}  // namespace tusk::transport
