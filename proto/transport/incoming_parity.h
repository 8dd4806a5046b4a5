// Parity of one message on its way in: kept until what it is of has arrived, or comes back from it.
//
// A gift: whoever has no room for it drops it, and what is lost is sent again as ever. Pure state.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "proto/base/interval_set.h"
#include "proto/base/shared_bytes.h"
#include "proto/base/strong_int.h"
#include "proto/wire/frame.h"

namespace tusk::transport {

// Where the memory for what a peer sends comes from, so that somebody can count it; empty: allocate_bytes.
using Allocate = std::function<MutableSharedBytes(std::size_t size)>;

// Memory for the parity of all messages of a connection together, with what is needed beside the rows' bytes.
// It is needed for a moment, message by message.
struct ParityBudget {
  ByteCount left = 1 << 20;
};

class IncomingParity {
 public:
  // Parts of a body with parity that did not suffice yet, and rows of all of them. More are dropped: each
  // costs a look whenever a piece arrives.
  static constexpr std::size_t kPartsMax = 8;
  static constexpr std::size_t kRowsMax = 64;
  // What a row takes besides its bytes, and its part if it has but one.
  static constexpr ByteCount kRowOverhead = 256;
  // Looks at a part that did not bring it back: a peer who sends pieces of a byte should not make each of
  // them expensive. Parity follows what it is of, so few pieces come after it.
  static constexpr std::uint32_t kLooksMax = 512;

  explicit IncomingParity(ParityBudget& budget) : budget_(budget) {}
  ~IncomingParity();
  IncomingParity(const IncomingParity&) = delete;
  IncomingParity& operator=(const IncomingParity&) = delete;

  // False: it is here already, or there is no room for it.
  bool add(const wire::ParityFrame& frame, const Allocate& allocate);
  // Fills in and notes what can be filled in of `body`, of which `received` is there, and forgets what parity
  // has become useless. No part may go beyond the body.
  void restore(std::span<std::byte> body, IntervalSet& received);

  // One past the last byte that there is parity of.
  [[nodiscard]] ByteCount end() const;
  [[nodiscard]] bool empty() const { return parts_.empty(); }

 private:
  struct Row {
    std::uint8_t index;
    MutableSharedBytes bytes;
  };
  // A sender's packets may change in size, so that parts overlap, with rows of another length.
  struct Part {
    ByteCount offset;
    ByteCount length;
    ByteCount row_size;
    std::vector<Row> rows;
    std::uint32_t looks = 0;

    [[nodiscard]] ByteCount end() const { return offset + length; }
    [[nodiscard]] ByteCount bytes() const { return rows.size() * (row_size + kRowOverhead); }
  };

  [[nodiscard]] static bool restore(const Part& part, std::span<std::byte> body, IntervalSet& received);

  ParityBudget& budget_;
  std::vector<Part> parts_;
};

}  // namespace tusk::transport
