// Up to which size the programs of this mount read files whole: learnt from every one they close. A copy
// reads photographs and songs to their ends, a player that looks for titles only the heads of songs; it must
// not have them all pulled in.
//
// Thread-safe, no lock.
#pragma once

#include <algorithm>
#include <atomic>

#include "proto/base/strong_int.h"

namespace tusk::client {

class WholeReads {
 public:
  // Files next to each other are seldom alike to the byte.
  static constexpr ByteCount kTrust = 4;

  explicit WholeReads(ByteCount least) : least_(least), size_max_(least) {}

  // A file of `size` bytes was closed; so many of them were read. None: the kernel had them, perhaps.
  void note_close(ByteCount size, ByteCount read) {
    if (size <= least_ || read == 0) return;
    const ByteCount known = size_max();
    size_max_ = read >= size ? std::max(known, kTrust * size) : std::clamp(size / 2, least_, known);
  }
  // Larger files are not expected to be read to their ends.
  [[nodiscard]] ByteCount size_max() const { return size_max_.load(std::memory_order_relaxed); }

 private:
  const ByteCount least_;  // up to here it costs too little to be asked
  std::atomic<ByteCount> size_max_;
};

}  // namespace tusk::client
