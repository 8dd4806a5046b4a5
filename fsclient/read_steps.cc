#include "fsclient/read_steps.h"

#include <algorithm>
#include <cmath>

namespace tusk::client {
namespace {

double tolerance_of(double distance) {
  return std::min(static_cast<double>(ReadSteps::kToleranceMax), std::abs(distance) / 4);
}

}  // namespace

ReadSteps::Advice ReadSteps::observe(Interval read, bool waited, ByteCount size, ByteCount window_max,
                                     ByteCount block) {
  Advice advice;
  Followed* steps = nullptr;
  bool forward = true;
  if (const auto match = find(read)) {
    steps = match->steps;
    forward = match->count > 0;
    if (forward) {
      steps->length = std::max(steps->length, steps->reach - steps->last);
      const auto count = static_cast<std::uint64_t>(match->count);
      const double expected = static_cast<double>(steps->last) + static_cast<double>(count) * steps->distance;
      const bool missed = waited && count <= steps->ahead && read.size() > steps->length;
      if (static_cast<double>(read.begin) != expected || missed) steps->exact = false;
      steps->last = read.begin;
      steps->reach = read.end;
      steps->seen += count;
      steps->ahead -= std::min(count, steps->ahead);
      steps->distance = (static_cast<double>(read.begin) - static_cast<double>(steps->origin)) /
                        static_cast<double>(steps->seen - 1);
    }
  } else {
    steps = recognise(read);
  }
  remembered_[oldest_] = read;
  oldest_ = (oldest_ + 1) % kRemembered;
  if (steps == nullptr) return advice;
  steps->used = ++uses_;
  steps->length = std::max(steps->length, read.size());
  advice.followed = true;
  if (forward) advice.fetch = plan(*steps, waited, size, window_max, block);
  return advice;
}

std::optional<ReadSteps::Match> ReadSteps::find(Interval read) {
  for (Followed& steps : followed_) {
    if (steps.used == 0) continue;
    const double difference = static_cast<double>(read.begin) - static_cast<double>(steps.last);
    const double count = std::round(difference / steps.distance);
    if (count < -kBehindMax || count > static_cast<double>(steps.ahead + 1)) continue;
    if (std::abs(difference - count * steps.distance) <= tolerance_of(steps.distance))
      return Match{&steps, static_cast<std::int64_t>(count)};
  }
  return std::nullopt;
}

const Interval* ReadSteps::remembered_at(double offset, double tolerance) const {
  const auto found = std::ranges::find_if(remembered_, [&](const Interval& read) {
    return !read.empty() && std::abs(static_cast<double>(read.begin) - offset) <= tolerance;
  });
  return found == remembered_.end() ? nullptr : &*found;
}

// Is it the last of kProof reads at equal distances?
ReadSteps::Followed* ReadSteps::recognise(Interval read) {
  for (const Interval& before : remembered_) {
    if (before.empty() || before.begin == read.begin) continue;
    const double distance = static_cast<double>(read.begin) - static_cast<double>(before.begin);
    if (std::abs(distance) > static_cast<double>(kDistanceMax)) continue;
    const double tolerance = tolerance_of(distance);
    const Interval* earlier = &before;
    ByteCount length = std::max(read.size(), before.size());
    for (std::uint64_t found = 2; found < kProof && earlier != nullptr; ++found) {
      earlier = remembered_at(static_cast<double>(earlier->begin) - distance, tolerance);
      if (earlier != nullptr) length = std::max(length, earlier->size());
    }
    if (earlier == nullptr) continue;
    Followed& steps = *std::ranges::min_element(followed_, {}, &Followed::used);
    const double mean =
        (static_cast<double>(read.begin) - static_cast<double>(earlier->begin)) / (kProof - 1);
    steps = {.origin = earlier->begin,
             .last = read.begin,
             .distance = mean,
             .seen = kProof,
             .window = kProof,
             .length = length,
             .reach = read.end,
             .exact = mean == distance};
    return &steps;
  }
  return nullptr;
}

// A reader that waits is faster than the window is long: it grows.
std::vector<Interval> ReadSteps::plan(Followed& steps, bool waited, ByteCount size, ByteCount window_max,
                                      ByteCount block) {
  const bool gapless = std::abs(steps.distance) <= static_cast<double>(steps.length);
  const ByteCount cost = gapless ? steps.length : std::max(steps.length, block);
  if (waited && steps.seen > kProof) steps.window *= 4;
  steps.window = std::min({steps.window, steps.seen, kWindowMax, window_max / std::max<ByteCount>(1, cost)});
  // Not one by one: neighbours become one call.
  if (steps.window <= steps.ahead || (steps.window - steps.ahead) * 4 < steps.window) return {};
  IntervalSet pieces;
  for (std::uint64_t step = steps.ahead + 1; step <= steps.window; ++step) {
    const double place =
        static_cast<double>(steps.last) + std::round(static_cast<double>(step) * steps.distance);
    if (place < 0 || place >= static_cast<double>(size)) break;
    Interval piece{static_cast<ByteCount>(place), static_cast<ByteCount>(place) + steps.length};
    if (!steps.exact) {
      // The last step began in a page, not at its start, and so did the first, from which the mean is taken.
      piece.begin = std::max(piece.begin, kPage) - kPage;
      piece.end += 2 * kPage;
    }
    pieces.add(piece.begin, std::min(size, piece.end));
  }
  steps.ahead = steps.window;
  return pieces.intervals();
}

void ReadSteps::extend(Interval read) {
  for (Followed& steps : followed_)
    if (steps.used != 0 && read.begin >= steps.last && read.begin <= steps.reach + kPage)
      steps.reach = std::max(steps.reach, read.end);
}

ByteCount ReadSteps::length_at(ByteCount begin) const {
  for (const Followed& steps : followed_)
    if (steps.used != 0 && steps.last == begin) return steps.length;
  return 0;
}

}  // namespace tusk::client
