// How much to fetch ahead of a program that goes through a tree: little at first, more the more of it is
// used, less when it comes to other things than those, next to nothing when that goes on.
//
// Pure logic: no lock, no clock. Costs are bytes. What was fetched is numbered in the order in which the
// program is expected to come to it; when it comes to one, all before it are taken to be passed by.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "proto/base/strong_int.h"

namespace tusk::client {

class AheadWindow {
 public:
  // With each byte that is used the window grows by this many; each wrong guess divides it by as many.
  static constexpr ByteCount kGrowth = 4;
  // Things in a row that nobody had asked for: one alone may be another program's.
  static constexpr std::uint32_t kMissesMax = 2;
  // As long as guesses are wrong so many of them pass before more than the least is risked for one, then
  // twice as many.
  static constexpr std::uint32_t kRestFirst = 8;
  static constexpr std::uint32_t kRestMax = 256;

  AheadWindow(ByteCount first, ByteCount most) : first_(first), most_(most), window_(first) {}

  [[nodiscard]] ByteCount room() const {
    const ByteCount ahead = in_flight_ + waiting_;
    return ahead < window_ ? window_ - ahead : 0;
  }
  // Small requests one after the other cost more than they bring.
  [[nodiscard]] bool worth_asking() const { return room() >= window_ / 4; }
  // Guesses have been wrong: only what costs little should be asked for.
  [[nodiscard]] bool doubtful() const { return window_ < first_ / kGrowth; }
  [[nodiscard]] ByteCount window() const { return window_; }
  // What the path and the memory allow; a window that is larger does not grow.
  void set_most(ByteCount most) { most_ = std::max(first_, most); }

  // A request that may bring so many bytes, of so many things in the order in which they are expected to be
  // wanted; 0: nobody knows of how many.
  struct Ticket {
    std::uint64_t guess = 0;
    std::uint64_t first = 0;  // the number of the first of them
  };
  Ticket begin(ByteCount bytes, std::uint64_t things = 0) {
    in_flight_ += bytes;
    if (!std::exchange(guessed_, true)) misses_ = 0;
    const Ticket ticket{guess_, last_ + 1};
    last_ += things;
    return ticket;
  }
  void end(ByteCount bytes) { in_flight_ -= std::min(bytes, in_flight_); }

  // Something has come and waits for the program: one of the things of its request, or the next. Its number;
  // 0 if its guess has turned out wrong: nobody expects it any more.
  std::uint64_t add(ByteCount bytes, const Ticket& ticket, std::uint64_t thing) {
    return add_as(ticket.first + thing, bytes, ticket);
  }
  std::uint64_t add(ByteCount bytes, const Ticket& ticket) { return add_as(++last_, bytes, ticket); }
  // The program has come to it.
  void use(std::uint64_t number) {
    ByteCount used = 0;
    while (!ahead_.empty() && ahead_.begin()->first <= number) {
      used += ahead_.begin()->second;
      ahead_.erase(ahead_.begin());
    }
    waiting_ -= used;
    grow(used);
    hit();
  }
  // It has used something that was not fetched ahead and would have been, had there been room.
  void grow(ByteCount used) { window_ = std::max(window_, std::min(most_, window_ + kGrowth * used)); }

  // The program has come to something that is here, or on its way.
  void hit() {
    misses_ = 0;
    rested_ = 0;
    rest_ = kRestFirst;
  }
  // It has come to something that nobody had asked for. True: what was asked for was a wrong guess.
  bool miss() {
    ++misses_;
    if (doubtful() && ++rested_ >= rest_) {
      rest_ = std::min(2 * rest_, kRestMax);
      rested_ = 0;
      window_ = first_ / kGrowth;
    }
    if (misses_ < kMissesMax || !guessed_) return false;
    turn_away();
    window_ = std::max(window_ / kGrowth, first_ / (kGrowth * kGrowth));
    return true;
  }
  // The program stopped, or begins again: what waits for it is not expected to be used any more.
  void restart() {
    turn_away();
    window_ = first_;
    hit();
  }

 private:
  void turn_away() {
    ahead_.clear();
    waiting_ = 0;
    guessed_ = false;
    misses_ = 0;
    ++guess_;
  }
  std::uint64_t add_as(std::uint64_t number, ByteCount bytes, const Ticket& ticket) {
    if (ticket.guess != guess_) return 0;
    if (ahead_.emplace(number, bytes).second) waiting_ += bytes;
    return number;
  }

  const ByteCount first_;
  ByteCount most_;
  ByteCount window_;
  ByteCount in_flight_ = 0;
  ByteCount waiting_ = 0;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, ByteCount> ahead_;
  std::uint64_t guess_ = 0;
  bool guessed_ = false;      // something was asked for since it was made
  std::uint32_t misses_ = 0;  // in a row, of this guess
  std::uint32_t rested_ = 0;  // misses since it is doubtful
  std::uint32_t rest_ = kRestFirst;
};

}  // namespace tusk::client
