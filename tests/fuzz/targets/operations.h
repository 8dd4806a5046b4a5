// Bytes as a sequence of operations: what a fuzzer mutates, a target reads as things to do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "proto/base/bytes.h"
#include "proto/base/random.h"
#include "tests/fuzz/targets/fuzz_target.h"

namespace tusk::fuzz {

// Reads numbers and byte strings; past the end there are only zeros.
class Operations {
 public:
  explicit Operations(std::span<const std::byte> input) : reader_(input) {}

  [[nodiscard]] bool at_end() const { return reader_.at_end(); }
  std::uint8_t u8() { return reader_.u8(); }
  std::uint16_t u16() { return reader_.u16(); }
  bool flag() { return reader_.u8() & 1; }
  // In [0, bound); bound > 0. One byte of input for small bounds, so that mutations hit.
  std::uint64_t below(std::uint64_t bound) { return (bound <= 256 ? u8() : u16()) % bound; }
  // A length in two bytes, then so many bytes, or as many as there are.
  std::span<const std::byte> bytes(std::size_t size_max) {
    const std::size_t size = std::min({below(size_max + 1), std::uint64_t{reader_.remaining()}});
    return reader_.take(size);
  }

 private:
  ByteReader reader_;
};

// `size` bytes that make a long and varied sequence of operations.
[[nodiscard]] inline Bytes random_operations(std::uint64_t seed, std::size_t size) {
  Random random(seed);
  Bytes bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.next());
  return bytes;
}

}  // namespace tusk::fuzz
