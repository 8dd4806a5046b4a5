// Facts that were fetched before anybody asked for them, because a program goes through a tree: how long
// they may wait for it.
//
// The program comes to them later than their lifetime (Trust) allows, so each may be used once more after
// that: within kAgeMax of the moment it was asked for, and only while the program goes on without a pause.
// docs/SEMANTICS.md C6 says so to users.
#pragma once

#include <atomic>
#include <cstdint>

#include "fsclient/trust.h"
#include "proto/base/time.h"

namespace tusk::client {

// Until when one fact may be used once without asking. Belongs to an inode, whose mutex protects it.
struct Ahead {
  TimePoint until = TimePoint::min();
  std::uint64_t walk = 0;  // Foresight's number for who it was fetched for

  void forget() { until = TimePoint::min(); }
};

// Thread-safe.
class Foresight {
 public:
  static constexpr Duration kAgeMax = std::chrono::seconds(10);
  static constexpr Duration kPauseMax = std::chrono::seconds(2);

  // Who chose a shorter lifetime than this wants to see changes sooner: then nothing is fetched ahead.
  static constexpr Duration kLifetimeMin = std::chrono::seconds(1);
  // Before anything else is called.
  void choose(Duration lifetime) { allowed_ = lifetime >= kLifetimeMin; }
  [[nodiscard]] bool allowed() const { return allowed_; }

  // What has been told so. Not what somebody was changing meanwhile.
  [[nodiscard]] Ahead told(const Told& answer) const {
    if (answer.cover == schema::COVER_ONCE || answer.started.time_since_epoch() <= forgotten_.load())
      return {};
    return {answer.started + kAgeMax, walk_.load(std::memory_order_relaxed)};
  }

  // A program has gone one step further through a tree. After a pause it is another walk.
  void note_step(TimePoint now) {
    if (!going_on(now)) walk_.fetch_add(1, std::memory_order_relaxed);
    last_step_.store(now.time_since_epoch(), std::memory_order_relaxed);
  }
  // Nothing that was told or asked for until now may be used without asking: it has been taken back.
  void forget(TimePoint now) {
    forgotten_.store(now.time_since_epoch());
    walk_.fetch_add(1, std::memory_order_relaxed);
  }
  [[nodiscard]] bool going_on(TimePoint now) const {
    return last_step_.load(std::memory_order_relaxed) + kPauseMax >= now.time_since_epoch();
  }

  [[nodiscard]] bool may_take(const Ahead& ahead, TimePoint now) const {
    return ahead.until > now && ahead.walk == walk_.load(std::memory_order_relaxed) && going_on(now);
  }
  // True: the fact may be used as if it had been learnt now. It is used up, and a step is made.
  [[nodiscard]] bool take(Ahead& ahead, TimePoint now) {
    if (!may_take(ahead, now)) return false;
    ahead.forget();
    note_step(now);
    return true;
  }

 private:
  bool allowed_ = true;  // constant once in use
  std::atomic<Duration> last_step_{Duration::min()};
  std::atomic<Duration> forgotten_{Duration::min()};
  std::atomic<std::uint64_t> walk_{0};
};

}  // namespace tusk::client
