// When trains were last asked what the line carries: they tell most after an emptying, when they leave while
// the queue is short.
//
// Pure state; not thread-safe.
#pragma once

#include <cstdint>

namespace tusk::transport {

class CapacityCheck {
 public:
  // It is due when the queue has been made short, and not before.
  void expect(bool due) { due_ = due; }
  [[nodiscard]] bool due() const { return due_; }
  // They were asked, in this round.
  void pass(std::uint64_t round) {
    due_ = false;
    passed_ = round;
  }
  // Not long before this round.
  [[nodiscard]] bool passed_lately(std::uint64_t round) const { return round - passed_ < kVerifiedRounds; }

 private:
  static constexpr std::uint64_t kVerifiedRounds = 50;

  bool due_ = false;
  std::uint64_t passed_ = 0;
};

}  // namespace tusk::transport
