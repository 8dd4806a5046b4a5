// How much to fetch ahead of a program that goes through a tree: little at first, more the more of it is
// used, nothing when what is there is not used.
//
// Pure logic: no lock, no clock. Costs are bytes. What was fetched is numbered in the order in which the
// program is expected to come to it; when it comes to one, all before it are taken to be passed by.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include "proto/base/strong_int.h"

namespace tusk::client {

class AheadWindow {
 public:
  // With each byte that is used the window grows by this many.
  static constexpr ByteCount kGrowth = 4;

  AheadWindow(ByteCount first, ByteCount most) : first_(first), most_(most), window_(first) {}

  [[nodiscard]] ByteCount room() const {
    const ByteCount ahead = in_flight_ + waiting_;
    return ahead < window_ ? window_ - ahead : 0;
  }
  // Small requests one after the other cost more than they bring.
  [[nodiscard]] bool worth_asking() const { return room() >= window_ / 4; }
  [[nodiscard]] ByteCount window() const { return window_; }

  // A request that may bring so many bytes.
  void begin(ByteCount bytes) { in_flight_ += bytes; }
  void end(ByteCount bytes) { in_flight_ -= std::min(bytes, in_flight_); }

  // Something has come and waits for the program. Its number, never 0.
  std::uint64_t add(ByteCount bytes) {
    ahead_.emplace_hint(ahead_.end(), ++last_, bytes);
    waiting_ += bytes;
    return last_;
  }
  // The program has come to it.
  void use(std::uint64_t number) {
    ByteCount used = 0;
    while (!ahead_.empty() && ahead_.begin()->first <= number) {
      used += ahead_.begin()->second;
      ahead_.erase(ahead_.begin());
    }
    waiting_ -= used;
    window_ = std::min(most_, window_ + kGrowth * used);
  }
  // The program stopped, or turned elsewhere: what waits for it is not expected to be used any more.
  void restart() {
    ahead_.clear();
    waiting_ = 0;
    window_ = first_;
  }

 private:
  const ByteCount first_;
  const ByteCount most_;
  ByteCount window_;
  ByteCount in_flight_ = 0;
  ByteCount waiting_ = 0;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, ByteCount> ahead_;
};

}  // namespace tusk::client
