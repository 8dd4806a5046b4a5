// What a path loses by itself, told apart from what it loses because we send too much.
//
// A policer and a full buffer lose more the more is sent, the path itself does not. So a loss that grows
// without a queue is put to the test: a round trip is sent at no more than is delivered, and what is lost of
// that is the path's own. If it was much less than before, the flow is content with what it gets for a while,
// and longer each time (64 round trips at most); meanwhile packet trains are not believed, since a policer
// lets them pass faster than it lets anything pass for long.
//
// Pure state; not thread-safe.
#pragma once

#include <algorithm>

namespace tusk::transport {

class PathLoss {
 public:
  // The packets of one round trip, of which it is known now what became of them.
  struct Round {
    double lost = 0;           // share of them
    double packets = 0;        // how many
    bool test = false;         // they were sent at no more than is delivered
    bool judged = true;        // they were sent as they are sent now
    bool queue_short = false;  // so loss is no full buffer
    bool harmless = true;      // speaks against a policer, if no more is lost
  };

  void end_round(const Round& round);
  // So much was lost without a queue that the path is taken for policed before anything was tested.
  void expect_policer() {
    content_next_ = std::max(content_next_, 2 * kContentRounds);
    harmless_rounds_ = 0;
  }
  // The controller does something else now; a suspicion is forgotten.
  void forget_suspicion() { suspect_ = 0; }
  // A round trip in which the controller did as content() asks.
  void end_content_round() {
    if (content_rounds_ > 0) --content_rounds_;
  }

  // Share that the path loses by itself, 0..0.08. More is not made up for by sending faster.
  [[nodiscard]] double own() const { return own_; }
  // Of `lost` what is not lost of tests, too; it takes several until more is taken for the path's own. Before
  // the first one nothing.
  [[nodiscard]] double pressed_out(double lost) const { return tested_ ? std::max(0.0, lost - quiet_) : 0; }
  // A test is due.
  [[nodiscard]] bool suspects() const { return suspect_ > 0; }
  // No more is to be sent than is delivered.
  [[nodiscard]] bool content() const { return content_rounds_ > 0; }
  // More was lost when more was sent, or much at the start, not long ago.
  [[nodiscard]] bool policed() const { return content_next_ > kContentRounds; }

 private:
  static constexpr int kContentRounds = 8;

  void judge(double lost);
  void end_harmless_round();

  double own_ = 0;
  double quiet_ = 0;  // of tests
  bool tested_ = false;
  int rounds_ = 0;          // that it is the mean of, up to eight
  double suspect_ = 0;      // share lost that may be our own doing; 0: none
  int excess_rounds_ = 0;   // in a row
  int content_rounds_ = 0;  // left
  int content_next_ = kContentRounds;
  std::int64_t harmless_rounds_ = 0;  // since then in which as much or more came through and no more was lost
};

}  // namespace tusk::transport
