// Guesses from the reads of one open file what will be read next, and who is gone. Pure logic: no clock, no
// memory for data, no calls.
//
// Reads that touch each other make a run. A run that goes on is a reader in order; up to kRuns are followed
// at once (threads share a descriptor; a player keeps its place). It is believed after kProof bytes, as
// Linux' readahead believes one that goes on where it ended. Its window then grows fourfold whenever the
// reader had to wait, and not else: who reads slowly needs little. It goes no further than kBurst and
// twice what was read, until that was much (kLongRead): who reads the head, the tail and five megabytes, as
// ffprobe does, must not pull in tens of them.
//
// Who begins at the start with as much as cp, rsync and cat do (kBulkRead) mostly goes to the end: that is a
// bet, as far as the limits allow (ReadAheadLimits::burst), and what became of it tells whether to bet again.
// Without it a file's first round trips fill a long line by a half.
//
// A read elsewhere is a jump: what was to be fetched for the run that was left is given up. Unless its reader
// has been seen to come back: then several readers share the file. Jumps in equal steps are ReadSteps'.
//
// The kernel sends the pieces of its own read-ahead (4 MiB) from several threads, so neighbours may arrive in
// any order: a believed run takes in a large read close to its end as long as few holes are left behind,
// others grow together, and a read close to a run is no jump.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "fsclient/read_steps.h"
#include "proto/base/interval_set.h"
#include "proto/base/strong_int.h"

namespace tusk::client {

// What reading ahead may cost at this moment.
struct ReadAheadLimits {
  ByteCount window_max = 0;  // one reader's share of four bandwidth-delay products, or of the mount's memory
  std::uint64_t period = 0;  // of StreamCensus
  // How far whoever begins with a large read (kBulkRead) is believed at once; 0: such have stopped early.
  ByteCount burst = 0;
  // What may be asked for now: memory that a fetch is on its way to cannot be given to anything else.
  ByteCount room = ~ByteCount{0};
};

struct ReadAheadAdvice {
  std::vector<Interval> fetch;    // ahead, in order of the file; parts of it may be there already
  std::vector<Interval> give_up;  // was to be fetched ahead; its reader went elsewhere
  bool hungry = false;            // a reader in order waits, for the first time in this period
};

class ReadAhead {
 public:
  static constexpr std::size_t kRuns = 16;
  static constexpr ByteCount kProof = 256 * 1024;
  static constexpr ByteCount kWindowFirst = 2 * 1024 * 1024;
  // Two thirds of what 1 Gbit/s holds at 100 ms: with what was read by then its line never falls idle.
  static constexpr ByteCount kBurst = 8 * 1024 * 1024;
  static constexpr ByteCount kTrust = 2;  // bytes ahead for each that was read
  // Who has read so much in order goes to the end, mostly: for each further byte so many more.
  static constexpr ByteCount kLongRead = 16 * 1024 * 1024;
  static constexpr ByteCount kLongTrust = 6;
  // The kernel makes this of a first read of 128 KiB.
  static constexpr ByteCount kBulkRead = 512 * 1024;
  static constexpr ByteCount kStepMax = 4 * 1024 * 1024;
  // The kernel's own read-ahead, doubled when a program announces to read in order; of the last so many bytes
  // half may be holes.
  static constexpr ByteCount kReorderSlack = 8 * 1024 * 1024;
  static constexpr ByteCount kHolesMax = kReorderSlack / 2;
  static constexpr ByteCount kReorderedReadMin = 64 * 1024;
  // A reader that skips a little (padding, headers), no more than it reads, is still in order.
  static constexpr ByteCount kSkipMax = 128 * 1024;

  // What a missing read is rounded to, bytes: in order whole blocks; elsewhere a little around it, as long as
  // that turns out to be of use; then, and in steps, pages.
  static constexpr ByteCount kGrainInOrder = 256 * 1024;
  static constexpr ByteCount kGrainNearby = 32 * 1024;
  static constexpr ByteCount kGrainPage = ReadSteps::kPage;
  static constexpr std::uint32_t kLonelyMax = 16;  // misses in a row that nothing nearby was read for

  // A program reads `read` of a file of `size` bytes. `waited`: some of it is not there.
  ReadAheadAdvice observe(Interval read, bool waited, ByteCount size, const ReadAheadLimits& limits);

  // Of the read that was observed last.
  [[nodiscard]] bool sequential() const { return runs_[newest_].window > 0; }
  [[nodiscard]] ByteCount window() const { return runs_[newest_].window; }
  [[nodiscard]] ByteCount grain() const;
  // Even: read to the end, before that was far. Won: somebody read far from the start in order, whether that
  // was bet on or not.
  enum class Bet : std::uint8_t { kNone, kOpen, kEven, kWon };
  [[nodiscard]] Bet bet() const { return bet_; }
  // What was asked for ahead of readers in order and may still be on its way.
  [[nodiscard]] std::vector<Interval> pending() const;

 private:
  struct Run {
    ByteCount begin = 0;
    ByteCount end = 0;        // one past the furthest byte read
    ByteCount requested = 0;  // one past the furthest byte asked for ahead
    ByteCount window = 0;
    ByteCount burst = 0;          // how far it was believed at its first read
    bool continued = false;       // by a second read
    bool returned = false;        // after another place was read
    std::uint64_t hungry_in = 0;  // the last period in which it waited
    std::uint64_t used = 0;       // 0: free

    IntervalSet holes;  // not read, within kReorderSlack of the end

    // As far as its reader is believed to come. A bet is none of that before it is won: who seeks into what
    // was bet on should not wait behind it.
    [[nodiscard]] ByteCount reach() const {
      return burst > 0 && end - begin < kLongRead ? std::min(requested, end + kBurst) : requested;
    }
    [[nodiscard]] bool near(Interval read) const {
      return read.end + kReorderSlack >= begin && read.begin <= std::max(end, reach()) + kReorderSlack;
    }
    [[nodiscard]] bool takes_in(Interval read) const;
  };

  [[nodiscard]] Run* run_of(Interval read);
  void continue_run(Run& run, Interval read);
  Run& begin_run(Interval read);
  void grow_together(Run& run);
  void turn_away(Interval read, ReadAheadAdvice& advice);
  [[nodiscard]] bool believed(const Run& run, bool waited) const;
  void bet_on(Run& run, Interval read, ByteCount size, const ReadAheadLimits& limits);
  static void plan(Run& run, bool waited, ByteCount size, const ReadAheadLimits& limits,
                   ReadAheadAdvice& advice);

  std::array<Run, kRuns> runs_{};
  std::size_t newest_ = 0;
  std::uint64_t uses_ = 0;
  ReadSteps steps_;
  bool in_steps_ = false;     // the newest read
  std::uint32_t lonely_ = 0;  // misses in a row that fit nothing
  Bet bet_ = Bet::kNone;
};

}  // namespace tusk::client
