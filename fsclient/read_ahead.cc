#include "fsclient/read_ahead.h"

#include <algorithm>

namespace tusk::client {
namespace {

// How far ahead of a reader who has read so much in order.
ByteCount trusted(ByteCount read) {
  const ByteCount beyond = read - std::min(read, ReadAhead::kLongRead);
  return ReadAhead::kBurst + ReadAhead::kTrust * read + ReadAhead::kLongTrust * beyond;
}

ByteCount skip_max(Interval read) { return std::min(ReadAhead::kSkipMax, read.size()); }

}  // namespace

ReadAheadAdvice ReadAhead::observe(Interval read, bool waited, ByteCount size,
                                   const ReadAheadLimits& limits) {
  ReadAheadAdvice advice;
  Run* run = run_of(read);
  in_steps_ = false;
  if (run != nullptr) {
    continue_run(*run, read);
    steps_.extend(read);
    lonely_ = 0;
  } else {
    // What a reader in order is about to get anyway is out of order at most.
    const bool coming = std::ranges::any_of(
        runs_, [&](const Run& other) { return other.begin <= read.begin && read.end <= other.reach(); });
    if (!coming) {
      ReadSteps::Advice steps =
          steps_.observe(read, waited, size, std::min(limits.window_max, limits.room), kGrainInOrder);
      in_steps_ = steps.followed;
      advice.fetch = std::move(steps.fetch);
    }
    if (!in_steps_) turn_away(read, advice);
    lonely_ = waited && !in_steps_ ? lonely_ + 1 : 0;
    run = &begin_run(read);
  }
  grow_together(*run);
  run->used = ++uses_;
  newest_ = static_cast<std::size_t>(run - runs_.data());
  bet_on(*run, read, size, limits);
  if (believed(*run, waited)) plan(*run, waited, size, limits, advice);
  return advice;
}

ByteCount ReadAhead::grain() const {
  if (sequential()) return kGrainInOrder;
  return in_steps_ || lonely_ > kLonelyMax ? kGrainPage : kGrainNearby;
}

std::vector<Interval> ReadAhead::pending() const {
  std::vector<Interval> pending;
  for (const Run& run : runs_)
    if (run.requested > run.end) pending.push_back({run.end, run.requested});
  return pending;
}

// ---------------------------------------------------------------- runs

// Goes on with this read, has it inside, or will reach it when pieces that are late have come.
bool ReadAhead::Run::takes_in(Interval read) const {
  if (used == 0 || read.begin < begin) return false;
  if (read.begin <= end + skip_max(read)) return true;
  return window > 0 && read.size() >= kReorderedReadMin && read.begin - end + holes.total() <= kHolesMax;
}

ReadAhead::Run* ReadAhead::run_of(Interval read) {
  const auto found = std::ranges::find_if(runs_, [&](const Run& run) { return run.takes_in(read); });
  return found == runs_.end() ? nullptr : &*found;
}

void ReadAhead::continue_run(Run& run, Interval read) {
  const Run& newest = runs_[newest_];
  const bool elsewhere = &newest != &run && newest.used != 0 && !run.near({newest.begin, newest.end});
  if (elsewhere) run.returned = true;
  run.continued = run.continued || read.end > run.end;
  if (read.begin > run.end) run.holes.add(run.end, read.begin);
  run.holes.remove(read.begin, read.end);
  run.end = std::max(run.end, read.end);
  if (run.end > kReorderSlack) run.holes.remove(0, run.end - kReorderSlack);
}

// A new one, or one that is read backwards: then it grows at its front.
ReadAhead::Run& ReadAhead::begin_run(Interval read) {
  for (Run& run : runs_) {
    if (run.used == 0 || read.begin >= run.begin || read.end < run.begin) continue;
    run.begin = read.begin;
    run.end = std::max(run.end, read.end);
    return run;
  }
  Run& oldest = *std::ranges::min_element(runs_, {}, &Run::used);
  oldest = {.begin = read.begin, .end = read.end};
  return oldest;
}

// Pieces that arrived out of order are one run once the gap between them is read.
void ReadAhead::grow_together(Run& run) {
  for (Run& other : runs_) {
    if (&other == &run || other.used == 0 || other.begin < run.begin || other.begin > run.end) continue;
    run.end = std::max(run.end, other.end);
    run.requested = std::max(run.requested, other.requested);
    run.window = std::max(run.window, other.window);
    run.burst = std::max(run.burst, other.burst);
    run.returned = run.returned || other.returned;
    run.hungry_in = std::max(run.hungry_in, other.hungry_in);
    run.continued = true;
    other = {};
  }
}

void ReadAhead::turn_away(Interval read, ReadAheadAdvice& advice) {
  for (Run& run : runs_) {
    if (run.window == 0 || run.returned || run.near(read)) continue;
    // But for what it wants now, if that is among it: whole blocks, as they were asked for.
    const ByteCount wanted = read.begin / kGrainInOrder * kGrainInOrder;
    const ByteCount beyond = (read.end + kGrainInOrder - 1) / kGrainInOrder * kGrainInOrder;
    for (const Interval& left : {Interval{run.end, std::min(run.requested, std::max(run.end, wanted))},
                                 Interval{std::max(run.end, beyond), run.requested}})
      if (left.begin < left.end) advice.give_up.push_back(left);
    run.window = 0;
    run.requested = 0;
    run.burst = 0;
  }
}

// ---------------------------------------------------------------- the window

bool ReadAhead::believed(const Run& run, bool waited) const {
  if (run.window > 0) return true;
  const ByteCount length = run.end - run.begin;
  // Whoever begins at the start will probably go on.
  if (run.begin == 0 && (waited || length >= kProof)) return true;
  return run.continued && length >= std::max(kProof, 2 * steps_.length_at(run.begin));
}

void ReadAhead::bet_on(Run& run, Interval read, ByteCount size, const ReadAheadLimits& limits) {
  const bool large = read.begin == 0 && read.size() >= kBulkRead && read.end < size;
  if (bet_ == Bet::kNone && large && limits.burst > 0) {
    bet_ = Bet::kOpen;
    run.burst = limits.burst;
  }
  if (run.begin > 0) return;
  if (run.end >= kLongRead)
    bet_ = Bet::kWon;
  else if (run.end >= size && bet_ == Bet::kOpen)
    bet_ = Bet::kEven;
}

void ReadAhead::plan(Run& run, bool waited, ByteCount size, const ReadAheadLimits& limits,
                     ReadAheadAdvice& advice) {
  if (waited && run.hungry_in != limits.period) {
    run.hungry_in = limits.period;
    advice.hungry = true;
  }
  const ByteCount length = run.end - run.begin;
  // A bet that is about to come true goes as far as the line meanwhile seems to carry, until trust is as
  // much.
  if (run.burst > 0 && length >= kBurst) run.burst = std::max(run.burst, limits.burst);
  const ByteCount burst = length < 2 * kLongRead ? std::min(run.burst, limits.burst) : 0;
  const ByteCount most = std::max(burst, std::min(limits.window_max, trusted(length)));
  if (run.window == 0)
    run.window = std::max(burst, kWindowFirst);
  else if (waited)
    run.window *= 4;
  run.window = std::min(run.window, most);

  const ByteCount begin = std::max(run.requested, run.end);
  const ByteCount room = limits.room / kGrainInOrder * kGrainInOrder;
  const ByteCount wanted = std::min(size, run.end + run.window);
  if (begin >= wanted || room == 0) return;
  const ByteCount end = wanted - begin <= room ? wanted : begin + room;
  // Small steps would become small calls: wait until a good part of the window is due, or the end.
  if (end < size && begin > run.end && end - begin < std::min(run.window / 4, kStepMax)) return;
  run.requested = end;
  advice.fetch.push_back({begin, end});
}

}  // namespace tusk::client
