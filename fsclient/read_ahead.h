// Guesses from the reads of one open file what will be read next. Pure logic: no clock, no memory of
// its own, no calls.
//
// It follows up to kStreams sequential readers within one open file (a player that seeks keeps its
// place; threads share a descriptor). A stream is believed after a read at the start of the file or
// after kProof bytes in order; its window then grows fourfold with each read until it covers what the
// path holds, and is zero again as soon as a read fits no stream.
//
// The kernel sends the pieces of its own read-ahead from several threads, so neighbours may arrive in
// any order: a large read close to a stream's end belongs to it.
#pragma once

#include <array>
#include <cstdint>

#include "proto/base/interval_set.h"
#include "proto/base/strong_int.h"

namespace tusk::client {

// What reading ahead may cost at this moment, for one open file.
struct ReadAheadLimits {
  ByteCount window_max = 0;  // two bandwidth-delay products, or what the mount's memory allows
};

class ReadAhead {
 public:
  static constexpr std::size_t kStreams = 4;
  static constexpr ByteCount kProof = 256 * 1024;
  static constexpr ByteCount kWindowFirst = 2 * 1024 * 1024;
  static constexpr ByteCount kReorderedReadMin = 64 * 1024;
  static constexpr ByteCount kReorderSlack = 8 * 1024 * 1024;
  // A reader that skips a little (padding, headers) is still sequential.
  static constexpr ByteCount kSkipMax = 128 * 1024;

  // A program reads [offset, offset + length) of a file of `size` bytes. Returns what to fetch beyond
  // it now; empty when nothing is worth it or all of the window was asked for before.
  Interval observe(ByteCount offset, ByteCount length, ByteCount size, const ReadAheadLimits& limits);

  [[nodiscard]] bool sequential() const { return streams_[newest_].window > 0; }
  [[nodiscard]] ByteCount window() const { return streams_[newest_].window; }

 private:
  struct Stream {
    ByteCount start = 0;
    ByteCount next = 0;       // one past the furthest byte read
    ByteCount requested = 0;  // one past the furthest byte fetched ahead
    ByteCount window = 0;
    std::uint64_t used = 0;  // 0: free
  };

  Stream* follow(ByteCount offset, ByteCount length);
  Stream& begin_stream(ByteCount offset, ByteCount length);

  std::array<Stream, kStreams> streams_{};
  std::size_t newest_ = 0;
  std::uint64_t uses_ = 0;
};

}  // namespace tusk::client
