// Finds readers that go through a file in equal steps, forwards or backwards: columns of a table, frames of
// raw video, a file read from its end. Pure logic: no clock, no calls.
//
// As a processor's stride prefetcher does, it looks for reads at equal distances, here among the last
// kRemembered that did not go on where another had ended: kProof of them are believed. What is fetched ahead
// is the steps, not what lies between them, and never more steps than were seen, so that at most twice of
// what is read is moved.
//
// The kernel reads whole pages: records of 10,000 bytes come at distances that differ by a page, hence the
// tolerance.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "proto/base/interval_set.h"
#include "proto/base/strong_int.h"

namespace tusk::client {

class ReadSteps {
 public:
  static constexpr std::size_t kRemembered = 16;
  static constexpr std::size_t kFollowed = 4;  // readers at once
  static constexpr std::uint64_t kProof = 4;
  // Steps ahead at most: 2,500 a second at 100 ms.
  static constexpr std::uint64_t kWindowMax = 256;
  static constexpr ByteCount kPage = 4096;
  static constexpr ByteCount kToleranceMax = 2 * kPage;
  // Several threads that share the steps come to them in any order.
  static constexpr std::int64_t kBehindMax = 8;
  static constexpr std::int64_t kDistanceMax = 1ll << 40;

  struct Advice {
    bool followed = false;        // the read was one of such steps
    std::vector<Interval> fetch;  // ahead, in order of the file
  };

  // A read that does not go on where another had ended. `waited`: its bytes were not there. `window_max`:
  // memory that fetching ahead may take; a piece of a block takes `block` bytes.
  Advice observe(Interval read, bool waited, ByteCount size, ByteCount window_max, ByteCount block);
  // A read that goes on where another had ended: steps can be longer than one read.
  void extend(Interval read);
  // How long the steps are to which the read at `begin` belongs, bytes; 0: to none.
  [[nodiscard]] ByteCount length_at(ByteCount begin) const;

 private:
  struct Followed {
    ByteCount origin = 0;
    ByteCount last = 0;        // where the furthest step begins
    double distance = 0;       // the mean of all steps; negative: backwards
    std::uint64_t seen = 0;    // steps
    std::uint64_t ahead = 0;   // steps asked for beyond the last
    std::uint64_t window = 0;  // steps
    ByteCount length = 0;
    ByteCount reach = 0;  // how far the last step was read
    bool exact = true;
    std::uint64_t used = 0;  // 0: free
  };
  struct Match {
    Followed* steps;
    std::int64_t count;
  };

  [[nodiscard]] std::optional<Match> find(Interval read);
  [[nodiscard]] Followed* recognise(Interval read);
  [[nodiscard]] const Interval* remembered_at(double offset, double tolerance) const;
  [[nodiscard]] static std::vector<Interval> plan(Followed& steps, bool waited, ByteCount size,
                                                  ByteCount window_max, ByteCount block);

  std::array<Interval, kRemembered> remembered_{};
  std::size_t oldest_ = 0;
  std::array<Followed, kFollowed> followed_{};
  std::uint64_t uses_ = 0;
};

}  // namespace tusk::client
