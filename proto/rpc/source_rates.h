// A rate for each source of first flights: a token bucket by address and proof. The table has a fixed size;
// the bucket that has waited longest gives way to a new one.
//
// Pure. Not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "proto/base/time.h"
#include "proto/rpc/source.h"

namespace tusk::rpc {

// So many a second, after up to `burst` at once.
class TokenBucket {
 public:
  TokenBucket() = default;
  explicit TokenBucket(double burst) : left_(burst) {}

  [[nodiscard]] bool take(double rate, double burst, TimePoint now) {
    const double seconds = std::chrono::duration<double>(now - updated_).count();
    left_ = std::min(burst, left_ + std::max(0.0, seconds) * rate);
    updated_ = now;
    if (left_ < 1) return false;
    left_ -= 1;
    return true;
  }
  [[nodiscard]] TimePoint updated() const { return updated_; }

 private:
  double left_ = 0;
  TimePoint updated_{};
};

class SourceRates {
 public:
  // `rate` a second, after up to `burst` at once. `seed` keeps clients from choosing who shares a place.
  SourceRates(double rate, double burst, std::uint64_t seed) : rate_(rate), burst_(burst), seed_(seed) {}

  // Counts one more from there; false: beyond the rate.
  [[nodiscard]] bool admit(const Source& source, Proof proof, TimePoint now) {
    return place_of(source, proof).bucket.take(rate_, burst_, now);
  }

 private:
  static constexpr std::size_t kSets = 256;
  static constexpr std::size_t kWays = 4;

  struct Place {
    Source source;
    Proof proof = Proof::kNone;
    bool used = false;
    TokenBucket bucket;
  };

  [[nodiscard]] Place& place_of(const Source& source, Proof proof) {
    auto& set = sets_[hash(source, proof) % kSets];
    for (Place& place : set)
      if (place.used && place.source == source && place.proof == proof) return place;
    Place& oldest = *std::ranges::min_element(set, {}, [](const Place& its) { return its.bucket.updated(); });
    oldest = {source, proof, true, TokenBucket(burst_)};
    return oldest;
  }

  [[nodiscard]] std::uint64_t hash(const Source& source, Proof proof) const {
    std::uint64_t mixed = seed_ + static_cast<std::uint64_t>(proof);
    for (const std::uint8_t byte : source.ip) {
      mixed = (mixed ^ byte) * 0x9e3779b97f4a7c15;
      mixed ^= std::rotr(mixed, 29);
    }
    return mixed;
  }

  const double rate_;
  const double burst_;
  const std::uint64_t seed_;
  std::array<std::array<Place, kWays>, kSets> sets_{};
};

}  // namespace tusk::rpc
