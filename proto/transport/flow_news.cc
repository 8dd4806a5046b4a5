#include "proto/transport/flow_news.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tusk::transport {
namespace {

// What was heard so long ago may not be true any more: who had no answer since sends to a server that has
// none.
constexpr Duration kSilence = 500ms;
constexpr int kSilenceRtts = 6;
// What is told later than that is not told at all.
constexpr Duration kFresh = 500ms;
// Who told nothing for so long begins anew.
constexpr int kRestRtts = 3;
// Whoever asks more often is answered no sooner: each answer looks at all others.
constexpr Duration kAnswerEvery = 2ms;
constexpr Duration kAnswerEveryOfEach = 50us;

constexpr int kFlowsMax = wire::kOtherFlowsMax;
constexpr std::uint64_t kAheadMax = 1ull << 50;  // bytes

std::uint64_t whole(double value, std::uint64_t most) {
  return static_cast<std::uint64_t>(std::clamp(value, 0.0, static_cast<double>(most)));
}

std::uint64_t microseconds(Duration time) {
  const auto count = std::chrono::duration_cast<std::chrono::microseconds>(time).count();
  return static_cast<std::uint64_t>(std::clamp<std::int64_t>(count, 0, wire::kFlowTimeMax));
}

// And 1, since 0 is never. What was so long ago is never, too.
std::uint64_t age_of(TimePoint event, TimePoint now) {
  if (event == TimePoint{} || now - event >= std::chrono::microseconds(wire::kFlowTimeMax)) return 0;
  return microseconds(now - event) + 1;
}

TimePoint since(std::uint64_t age, TimePoint now) {
  return age == 0 ? TimePoint{} : now - std::chrono::microseconds(age - 1);
}

Duration round_trip(const Siblings::News& news) { return news.base + news.queue; }

}  // namespace

// ---------------------------------------------------------------- who sends

Siblings::Others SiblingsByPeer::tell(const void*, const News& news) {
  // What was true of the little that a mount sends at first says nothing of who starts now.
  const Duration rest = news.rate > 0 ? kSilence : Duration(0);
  if (news.now - told_at_ > std::max<Duration>(rest, kRestRtts * round_trip(news))) asked_at_ = news.now;
  told_at_ = news.now;
  untold_ = news;
  if (heard_at_ < asked_at_ ||
      news.now - heard_at_ > std::max<Duration>(kSilence, kSilenceRtts * round_trip(news)))
    others_ = {.flows = static_cast<int>(around_ - 1),
               .parts = static_cast<double>(around_ - 1) * news.part,
               .guessed = true};
  return others_;
}

void SiblingsByPeer::hear(TimePoint now, wire::PacketNumber number, const wire::OtherFlowsFrame& frame,
                          Duration round_trip) {
  if (heard_ && number < *heard_) return;
  heard_ = number;
  around_ = frame.around;
  if (!frame.answers) return;
  heard_at_ = now;
  others_ = {.flows = static_cast<int>(frame.flows),
             .parts = static_cast<double>(frame.parts) / wire::kPartUnits,
             .rate = static_cast<double>(frame.rate),
             .capacity = static_cast<double>(frame.capacity),
             .emptying = since(frame.emptied_us, now - round_trip / 2),
             .rate_of_all = static_cast<double>(frame.rate_of_all),
             .ahead = static_cast<double>(frame.ahead) - static_cast<double>(frame.behind),
             .late = round_trip / 2};
}

std::optional<wire::FlowNewsFrame> SiblingsByPeer::take_news(TimePoint now) {
  const auto news = std::exchange(untold_, std::nullopt);
  // It sent nothing meanwhile.
  if (!news || now - news->now > std::max<Duration>(kFresh, round_trip(*news))) return std::nullopt;
  return wire::FlowNewsFrame{.flows = std::clamp<std::uint64_t>(
                                 static_cast<std::uint64_t>(std::lround(1 / news->part)), 1, wire::kFlowsMax),
                             .rate = whole(news->rate, wire::kRateMax),
                             .delivered = news->delivered,
                             .capacity = whole(news->capacity, wire::kRateMax),
                             .base_us = microseconds(news->base),
                             .queue_us = microseconds(news->queue),
                             .emptied_us = age_of(news->emptying, now)};
}

// ---------------------------------------------------------------- who is sent to

void PeersFlow::join(std::shared_ptr<Siblings> siblings) {
  if (siblings == siblings_) return;
  if (siblings_) {
    siblings_->leave(this);
    if (hears_) siblings_->count(-1);
  }
  siblings_ = std::move(siblings);
  if (siblings_ && hears_) siblings_->count(1);
  news_ = {.delivered = news_.delivered};
  answer_due_ = false;
  began_ = ordered_at_ = emptying_told_ = {};
}

void PeersFlow::let_hear() {
  if (hears_) return;
  hears_ = true;
  if (siblings_) siblings_->count(1);
}

void PeersFlow::hear(TimePoint now, wire::PacketNumber number, const wire::FlowNewsFrame& frame,
                     double received_rate, ByteCount received) {
  if (!siblings_ || (heard_ && number < *heard_)) return;
  if (!heard_ || now - news_.now > std::max<Duration>(kSilence, kSilenceRtts * round_trip(news_)))
    began_ = now;
  heard_ = number;
  const Duration base = std::chrono::microseconds(frame.base_us);
  const Duration queue = std::chrono::microseconds(frame.queue_us);
  news_ = {.now = now,
           .part = 1 / static_cast<double>(frame.flows),
           .rate = std::min(static_cast<double>(frame.rate), received_rate),
           .delivered = std::max(news_.delivered, std::min(frame.delivered, received)),
           .capacity = static_cast<double>(frame.capacity),
           .base = base,
           .queue = queue,
           // It may not have heard yet what it was told to do.
           .emptying = std::max(since(frame.emptied_us, now - (base + queue) / 2), ordered_at_)};
  answer_due_ = true;
}

// That it did so itself, as it came back, is no news.
bool PeersFlow::answer_wanted(TimePoint now, const Siblings::Glance& glance) {
  if (!heard_ || now - news_.now > std::max<Duration>(kFresh, round_trip(news_))) {
    answer_due_ = false;
    return false;
  }
  if (now - answered_at_ < std::max<Duration>(kAnswerEvery, flows_answered_ * kAnswerEveryOfEach))
    return false;
  const TimePoint known = std::max(emptying_told_, news_.emptying) + round_trip(news_) / 2;
  return answer_due_ || (glance.emptying > known && now - news_.now < round_trip(news_));
}

// Each would begin to empty the queue by itself before it hears of the first one: so it is said here when.
Siblings::Others PeersFlow::tell(TimePoint now) {
  Siblings::Others others = siblings_->tell(this, news_);
  const TimePoint last = std::max({began_, others.emptying, news_.emptying});
  if (others.flows == 0 || now - last <= Siblings::empty_every(news_.base)) return others;
  ordered_at_ = news_.emptying = now;
  others = siblings_->tell(this, news_);
  others.emptying = now;
  return others;
}

std::optional<wire::OtherFlowsFrame> PeersFlow::take_answer(TimePoint now) {
  if (!siblings_ || !hears_) return std::nullopt;
  const Siblings::Glance glance = siblings_->glance();
  const auto around = static_cast<std::uint64_t>(std::clamp(glance.around, 1, kFlowsMax));
  const bool wanted = answer_wanted(now, glance);
  // It matters whether they are twice as many.
  if (!wanted && around < 2 * around_told_ && 2 * around > around_told_) return std::nullopt;
  around_told_ = around;
  if (!wanted) return wire::OtherFlowsFrame{.around = around};
  const Siblings::Others others = tell(now);
  const int flows = std::min(others.flows, kFlowsMax);
  answer_due_ = false;
  answered_at_ = now;
  flows_answered_ = flows;
  emptying_told_ = std::max({emptying_told_, glance.emptying, others.emptying});
  return wire::OtherFlowsFrame{.around = around,
                               .answers = true,
                               .flows = static_cast<std::uint64_t>(flows),
                               .parts = whole(std::round(others.parts * wire::kPartUnits),
                                              static_cast<std::uint64_t>(flows) * wire::kPartUnits),
                               .rate = whole(others.rate, wire::kRateMax),
                               .rate_of_all = whole(others.rate_of_all, wire::kRateMax),
                               .capacity = whole(others.capacity, wire::kRateMax),
                               .emptied_us = age_of(others.emptying, now),
                               .ahead = whole(others.ahead, kAheadMax),
                               .behind = whole(-others.ahead, kAheadMax)};
}

}  // namespace tusk::transport
