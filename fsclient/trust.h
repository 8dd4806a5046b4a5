// May a cached fact be used now, without asking the server? The one place that decides it.
//
// Today by age: a fact is good for the lifetime that the server gave at the attach. Leases will be
// another implementation: good until the server takes them back.
#pragma once

#include <algorithm>
#include <cstdint>

#include "proto/base/time.h"

namespace tusk::client {

enum class Fact : std::uint8_t {
  kAttributes,
  kEntry,    // this name is that file
  kAbsence,  // there is no such name
  kListing,  // these are all the names
};

// When a fact was learnt from the server. The default is "never": such a fact is not to be used.
struct Learnt {
  TimePoint at = TimePoint::min();

  [[nodiscard]] bool ever() const { return at != TimePoint::min(); }
  void forget() { at = TimePoint::min(); }
};

// Implementations are thread-safe.
class Trust {
 public:
  virtual ~Trust() = default;
  // How long from `now` on the fact may be used; zero: ask the server.
  [[nodiscard]] virtual Duration remaining(Fact fact, Learnt learnt, TimePoint now) const = 0;

  [[nodiscard]] bool may_use(Fact fact, Learnt learnt, TimePoint now) const {
    return remaining(fact, learnt, now) > Duration::zero();
  }
};

class LifetimeTrust final : public Trust {
 public:
  // A name that is missing is often about to appear (configure scripts, lock files made by others).
  static constexpr Duration kAbsenceMax = std::chrono::milliseconds(500);

  explicit LifetimeTrust(Duration lifetime) : lifetime_(lifetime) {}

  [[nodiscard]] Duration remaining(Fact fact, Learnt learnt, TimePoint now) const override {
    if (!learnt.ever()) return Duration::zero();
    const Duration lifetime = fact == Fact::kAbsence ? std::min(lifetime_, kAbsenceMax) : lifetime_;
    return std::max(Duration::zero(), lifetime - (now - learnt.at));
  }

 private:
  const Duration lifetime_;
};

}  // namespace tusk::client
