// When a socket's filter goes on and off, and whom it thins (datagram_filter.h). A server that is not flooded
// has none: it answers packets of connections that it does not know, which a restart with another version
// leaves behind.
//
// Counts what costs time and comes to nothing, in intervals. Pure. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "proto/base/time.h"
#include "proto/rpc/datagram_filter.h"

namespace tusk::rpc {

class FloodGuard {
 public:
  static constexpr Duration kInterval = 100ms;
  // In an interval; what these cost is a hundredth of a core.
  static constexpr std::uint64_t kGarbageMax = 200;
  static constexpr std::uint64_t kFlightsMax = 250;  // of one source and kind of token, dropped
  // So long after the last interval with more than a tenth of that.
  static constexpr Duration kQuietFor = 5s;

  // A datagram that belongs to no connection and asks for none.
  void note_garbage() { ++garbage_; }
  // A first flight that was dropped, by the kind of token that it carries, be it true or not.
  void note_flight(const Source& source, Proof proof);

  // To be asked often. A value: the sockets' filter is to change to this; `kernel_drops` are those of all
  // sockets since they were opened, asked for only when an interval is over.
  enum class Want : std::uint8_t { kNothing, kFilter, kNoFilter };
  template <class Drops>
  [[nodiscard]] Want decide(TimePoint now, Drops&& kernel_drops) {
    if (now < interval_end_) return Want::kNothing;
    if (!filtering_ && garbage_ == 0 && flights_.empty()) return begin_interval(now), Want::kNothing;
    return end_interval(now, filtering_ ? kernel_drops() : 0);
  }
  // While it filters: when to ask again, though nothing comes.
  [[nodiscard]] TimePoint next_look() const { return filtering_ ? interval_end_ : kNever; }
  [[nodiscard]] const std::vector<Thinned>& thinned() const { return thinned_; }
  [[nodiscard]] bool filtering() const { return filtering_; }

 private:
  static constexpr std::size_t kCountedMax = 64;

  void begin_interval(TimePoint now) {
    garbage_ = 0;
    flights_.clear();
    interval_end_ = now + kInterval;
  }
  [[nodiscard]] Want end_interval(TimePoint now, std::uint64_t kernel_drops);

  std::uint64_t garbage_ = 0;
  std::map<Thinned, std::uint64_t> flights_;
  TimePoint interval_end_{};
  bool filtering_ = false;
  std::vector<Thinned> thinned_;
  std::uint64_t drops_before_ = 0;
  TimePoint busy_at_{};
};

}  // namespace tusk::rpc
