// What ends a burst of sending goes out with parity where packets get lost, so that who waits for the last of
// it does not wait for a round trip in which nothing but repairs is sent: among the packets on a long and
// fast line some always get lost (docs/CONGESTION.md, "What somebody waits for";
// docs/decisions/0014-tail-parity.md).
//
// Decides what is worth parity and how much, and makes it, a part of a message at a time, so that nobody else
// waits for long. When it goes out is the connection's business: when there is nothing else to send. Pure
// state.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/base/time.h"
#include "proto/transport/exchanges.h"
#include "proto/transport/sent_packets.h"

namespace tusk::transport {

class TailParity {
 public:
  // Where a repair is soon there, nobody notices; where nearly nothing or much gets lost, parity would be in
  // vain.
  static constexpr Duration kRttMin = 5ms;
  static constexpr double kLossMin = 0.00005;
  static constexpr double kLossMax = 0.05;

  // So long nothing new was there to be sent: else it is no end, only a disk or a program that was a moment
  // late, and what comes next would find the window full of parity.
  static constexpr Duration kRest = 1ms;

  // `loss`: share of packets.
  [[nodiscard]] static bool worthwhile(Duration rtt, double loss) {
    return rtt >= kRttMin && loss >= kLossMin && loss <= kLossMax;
  }
  // How many rows protect a part of which so many rows' worth of bytes are overdue, and so many under way.
  // The losses of those are about Poisson-distributed: so much more than their mean is met once in a hundred
  // thousand parts. One more, since a packet carries a few bytes more than a row has, so that some columns
  // miss two by one loss.
  [[nodiscard]] static std::size_t rows_for(double overdue, double underway, double loss);

  // Makes parity of a part, in place of what was left of that of another.
  void protect(const Exchanges::Unprotected& part, double loss);
  // Something is waiting to be sent.
  [[nodiscard]] bool pending() const { return next_ < count_; }
  [[nodiscard]] wire::ExchangeId exchange() const { return row_.exchange; }
  // Bytes of the next frame.
  [[nodiscard]] std::size_t frame_size() const;
  // Writes it; needs frame_size() of room. The first is the header of the message, if the peer may lack it:
  // without that the parity would be of no use.
  SentFrame write_next(ByteWriter& writer);
  void drop() { next_ = count_; }

 private:
  wire::MessageHeaderFrame header_;  // its data empty: it has gone out, or the peer has it
  std::vector<std::byte> header_data_;
  wire::ParityFrame row_;  // but for index and data
  std::size_t row_size_ = 1;
  std::vector<std::byte> rows_;  // count_ of them
  std::size_t count_ = 0;
  std::size_t next_ = 0;
};

}  // namespace tusk::transport
