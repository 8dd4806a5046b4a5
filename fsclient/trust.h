// May a cached fact be used now, without asking the server? The one place that decides it.
//
// A fact that was told under a lease is good until the server takes it back, or until it is not certain any
// more that the server still would: it waits for us only as long as it has heard from us within the lease's
// time. All other facts are good for the lifetime that the server gave at the attach (docs/PROTOCOL.md,
// "Leases").
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>

#include "proto/base/time.h"
#include "proto/schema/tusk.pb.h"

namespace tusk::client {

enum class Fact : std::uint8_t {
  kAttributes,
  kEntry,    // this name is that file
  kAbsence,  // there is no such name
  kListing,  // these are all the names
  kBytes,    // of an open file
};

// When and how a fact was learnt from the server. The default is "never": such a fact is not to be used.
struct Learnt {
  TimePoint at = TimePoint::min();
  std::uint64_t lease = 0;  // under which it was told; 0: none, its age decides

  [[nodiscard]] bool ever() const { return at != TimePoint::min(); }
  void forget() { *this = {}; }
};

// The answer that a fact came in.
struct Told {
  TimePoint started{};      // when the question was asked
  std::uint64_t lease = 0;  // Reply.lease
  schema::Cover cover = schema::COVER_LIFETIME;

  Told() = default;
  // Implicit: an answer that says nothing of leases.
  Told(TimePoint asked) : started(asked) {}
  Told(TimePoint asked, const schema::Reply& reply, schema::Cover of)
      : started(asked), lease(reply.lease()), cover(of) {}
  // Of attributes in the same answer.
  [[nodiscard]] Told about(const schema::Attr& attr) const {
    Told told = *this;
    told.cover = attr.cover();
    return told;
  }

  [[nodiscard]] Learnt learnt(TimePoint now) const {
    if (cover == schema::COVER_ONCE) return {};
    const bool leased = cover == schema::COVER_LEASE || cover == schema::COVER_EXCLUSIVE;
    return {now, leased ? lease : 0};
  }
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
  // A reader in order would ask for each piece of the kernel's read-ahead.
  static constexpr Duration kBytesMin = std::chrono::milliseconds(100);

  explicit LifetimeTrust(Duration lifetime) : lifetime_(lifetime) {}

  [[nodiscard]] Duration remaining(Fact fact, Learnt learnt, TimePoint now) const override {
    if (!learnt.ever()) return Duration::zero();
    return std::max(Duration::zero(), lifetime_of(fact) - (now - learnt.at));
  }
  [[nodiscard]] Duration lifetime_of(Fact fact) const {
    if (fact == Fact::kAbsence) return std::min(lifetime_, kAbsenceMax);
    if (fact == Fact::kBytes) return std::max(lifetime_, kBytesMin);
    return lifetime_;
  }

 private:
  const Duration lifetime_;
};

class LeaseTrust final : public Trust {
 public:
  // `confirmed`: when the newest of what the server is known to have received was sent; thread-safe.
  LeaseTrust(Duration lifetime, std::function<TimePoint()> confirmed)
      : by_age_(lifetime), confirmed_(std::move(confirmed)) {}

  // As the server said at an attach: how long leases last without contact (zero: there are none), and which
  // are over. A push that came before it may have said more. `exclusive`: how long exclusiveness lasts
  // without contact; zero: as long as leases.
  void set_terms(Duration lease, std::uint64_t floor, Duration exclusive = Duration::zero()) {
    lease_ = lease;
    exclusive_ = exclusive == Duration::zero() ? lease : std::min(exclusive, lease);
    raise_floor(floor);
  }
  void raise_floor(std::uint64_t floor) { floor_ = std::max(floor_.load(), floor); }
  // Another server process: its leases have nothing to do with those before.
  void forget_leases(TimePoint now) {
    valid_from_ = now;
    floor_ = 0;
  }

  // From an ATTACH on until it is answered: the server may have waited for this mount only up to there, and
  // carries out what others change. Nothing that was told under a lease is to be used meanwhile.
  void suspend() { suspended_ = true; }
  void resume() { suspended_ = false; }

  // Whether the fact is under a lease now.
  [[nodiscard]] bool covered(Learnt learnt, TimePoint now) const {
    return lease_remaining(learnt, now) > Duration::zero();
  }
  [[nodiscard]] Duration lease() const { return lease_; }
  // Of what is told without a lease.
  [[nodiscard]] Duration lifetime_of(Fact fact) const { return by_age_.lifetime_of(fact); }
  // The server still waits for us before it lets anybody look at what we have for ourselves.
  [[nodiscard]] bool waited_for(TimePoint now) const {
    if (!confirmed_ || suspended_) return false;
    const TimePoint confirmed = confirmed_();
    return confirmed != TimePoint::min() && confirmed + exclusive_.load() > now;
  }
  // When facts under leases are not trusted any more, unless the server is heard before.
  [[nodiscard]] TimePoint trusted_until() const {
    const TimePoint confirmed = confirmed_ && !suspended_ ? confirmed_() : TimePoint::min();
    return confirmed == TimePoint::min() ? confirmed : confirmed + lease_.load();
  }
  [[nodiscard]] std::uint64_t floor() const { return floor_; }

  [[nodiscard]] Duration remaining(Fact fact, Learnt learnt, TimePoint now) const override {
    if (taken_back(learnt)) return Duration::zero();
    return std::max(by_age_.remaining(fact, learnt, now), lease_remaining(learnt, now));
  }

 private:
  [[nodiscard]] bool taken_back(Learnt learnt) const {
    return learnt.lease != 0 && (suspended_ || learnt.lease < floor_ || learnt.at < valid_from_.load());
  }
  [[nodiscard]] Duration lease_remaining(Learnt learnt, TimePoint now) const {
    if (learnt.lease == 0 || taken_back(learnt)) return Duration::zero();
    const TimePoint until = trusted_until();
    return until > now ? until - now : Duration::zero();
  }

  const LifetimeTrust by_age_;
  const std::function<TimePoint()> confirmed_;
  std::atomic<Duration> lease_{Duration::zero()};
  std::atomic<Duration> exclusive_{Duration::zero()};
  std::atomic<std::uint64_t> floor_{0};
  std::atomic<bool> suspended_{false};
  std::atomic<TimePoint> valid_from_{TimePoint::min()};
};

}  // namespace tusk::client
