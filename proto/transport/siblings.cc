#include "proto/transport/siblings.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tusk::transport {
namespace {

// Who has said nothing for so long has nothing to send.
constexpr Duration kHeardMin = 250ms;
constexpr int kHeardRtts = 4;

// What one is owed, or owes, of its part of the line: older debts are forgotten.
constexpr double kOwedSeconds = 16;
constexpr Duration kOwedLong = 2s;
// Who begins so much later than the first of others ends with them all the same.
constexpr Duration kBeganTogether = 3s;
// In a crowd, whose programs wait for one another's processors before they ask and in between: both.
constexpr Duration kCrowdTogether = 10s;

constexpr double kAlike = 0.1;  // of a base round trip
constexpr Duration kAlikeMin = 2ms;
constexpr double kTripAlike = 0.1;  // of one with the queue
// Where that is long each saw another moment of it.
constexpr double kLongTripAlike = 0.25;
constexpr double kQueueAlike = 0.4;
constexpr Duration kQueueAlikeMin = 5ms;
constexpr double kQueueSeconds = 2;
constexpr double kCapacityAlike = 1.6;
// One flow keeps less by itself, so that who sees more of it sees the queue of several.
constexpr Duration kCrowdsQueue = 15ms;

class Mean {
 public:
  void add(double value) {
    if (value <= 0) return;
    sum_ += value;
    ++count_;
  }
  [[nodiscard]] bool known() const { return count_ > 0; }
  [[nodiscard]] double mean() const { return known() ? sum_ / count_ : 0; }

 private:
  double sum_ = 0;
  int count_ = 0;
};

bool about(Duration a, Duration b, double share, Duration least) {
  const Duration apart = a > b ? a - b : b - a;
  return apart <= std::max(least, from_seconds(share * to_seconds(std::max(a, b))));
}

bool silent(const Siblings::News& news, TimePoint now) {
  return now > news.now + std::max<Duration>(kHeardMin, kHeardRtts * (news.base + news.queue));
}

}  // namespace

// One flow beside another. Who starts knows little: not the path without the others' queue, and of its
// capacity what trains tell that went between the others' packets.
struct Siblings::Pair {
  const Flow& a;
  const Flow& b;

  [[nodiscard]] bool starts() const { return a.news.rate <= 0 || b.news.rate <= 0; }
  [[nodiscard]] bool waits() const { return std::min(a.queue(), b.queue()) > kCrowdsQueue; }
  // Whose base has crept up, since it never saw the queue empty, has as long a round trip all the same.
  [[nodiscard]] bool as_far() const {
    return about(a.news.base, b.news.base, kAlike, kAlikeMin) || about(a.longest, b.longest,
                                                                       starts()  ? kQueueAlike
                                                                       : waits() ? kLongTripAlike
                                                                                 : kTripAlike,
                                                                       kQueueAlikeMin);
  }
  [[nodiscard]] bool same_queue() const {
    const bool crept = !about(a.news.base, b.news.base, kAlike, kAlikeMin);
    return starts() || about(a.queue(), b.queue(), kQueueAlike, kQueueAlikeMin) ||
           (crept && about(a.longest, b.longest, kTripAlike, kQueueAlikeMin));
  }
  [[nodiscard]] bool as_wide() const {
    const bool crowd = same_queue() && waits();
    const auto [less, more] = std::minmax(a.news.capacity, b.news.capacity);
    return starts() || crowd || more <= kCapacityAlike * less;
  }
};

Siblings::Others Siblings::tell(const void* flow, const News& news) {
  Flow& mine = find(flow, news);
  mine.hear(news);
  emptying_ = std::max(emptying_, news.emptying);
  Others others;
  Mean settled, starting;  // capacities
  alike_.clear();
  for (Flow& other : flows_) {
    if (&other == &mine || silent(other.news, news.now)) continue;
    const Pair pair{mine, other};
    if (!pair.as_far()) continue;
    if (!pair.as_wide()) continue;
    others.rate_of_all += other.news.rate;
    if (!pair.same_queue()) continue;
    others.emptying = std::max(others.emptying, other.news.emptying);
    ++others.flows;
    others.parts += other.news.part;
    others.rate += other.news.rate;
    alike_.push_back(&other);
    (other.news.rate > 0 ? settled : starting).add(other.news.capacity);
  }
  if (!mine.joined) join(mine);
  others.capacity = settled.known() ? settled.mean() : starting.mean();
  settle(mine, others);
  return others;
}

void Siblings::Flow::hear(const News& heard) {
  had += static_cast<double>(heard.delivered - news.delivered);
  const double since = to_seconds(heard.now - news.now);
  const Duration faded = from_seconds(to_seconds(longest) * std::exp(-since / kQueueSeconds));
  news = heard;
  longest = std::max(news.base + news.queue, faded);
}

// Who was silent had nothing to send: what the others had meanwhile is not owed to it. What was owed before
// is forgotten when that is long ago.
Siblings::Flow& Siblings::find(const void* flow, const News& news) {
  const auto known = std::ranges::find(flows_, flow, &Flow::name);
  if (known == flows_.end())
    return flows_.emplace_back(Flow{.name = flow, .news = news, .began = news.now, .before = news.delivered});
  if (!silent(known->news, news.now)) return *known;
  const bool crowd = static_cast<int>(flows_.size()) > kCrowd;
  if (news.now - known->news.now >= (crowd ? kCrowdTogether : kOwedLong))
    *known = {.name = flow, .began = news.now, .before = news.delivered, .heard_of = known->news.now};
  else
    known->returns = true;
  known->news = news;
  known->longest = {};
  known->joined = false;
  return *known;
}

// Nobody owes anything to who comes later. But who begins a little later than others is to end with them: its
// account is that of one that was there when they began and got nothing. Programs that are started together
// ask one after the other. And who was silent for a moment still owes what it owed: in the queue of many that
// start at once a round trip is as long as a silence. In a crowd it is also owed what it was: one of few may
// have wanted less than its part.
void Siblings::join(Flow& mine) {
  if (alike_.empty()) return;
  const bool crowd = static_cast<int>(alike_.size()) >= kCrowd;
  const Duration together = crowd ? kCrowdTogether : kBeganTogether;
  double parts = 0, had = 0, young_parts = 0, young_had = 0;
  TimePoint began = mine.began;
  for (Flow* other : alike_) {
    other->joined = true;
    parts += other->news.part;
    had += other->had;
    if (mine.began - other->began > together || other->began <= mine.heard_of) continue;
    young_parts += other->news.part;
    young_had += other->had - other->since_it_began();
    began = std::min(began, other->began);
  }
  mine.joined = true;
  if (std::exchange(mine.returns, false)) {
    const double ahead = crowd ? mine.ahead : std::max(mine.ahead, 0.0);
    mine.had = mine.news.part * had / parts + ahead * (1 + mine.news.part / parts);
  } else if (young_parts > 0) {
    mine.had = mine.news.part * young_had / young_parts + mine.since_it_began();
    mine.began = began;
  } else {
    mine.had = mine.news.part * had / parts;
  }
}

// How much it had beyond its part of what all had. What is more than so long ago is forgotten.
void Siblings::settle(Flow& mine, Others& others) {
  if (alike_.empty()) return;
  const double parts = others.parts + mine.news.part;
  const double line = std::max(others.rate + mine.news.rate, std::max(others.capacity, mine.news.capacity));
  double all = mine.had;
  for (const Flow* other : alike_) all += other->had;
  const double ahead = mine.had - mine.news.part * all / parts;
  const double most = mine.news.part * kOwedSeconds * line / parts;
  mine.ahead = others.ahead = std::clamp(ahead, -most, most);
  mine.had += mine.ahead - ahead;
}

void Siblings::leave(const void* flow) {
  std::erase_if(flows_, [&](const Flow& each) { return each.name == flow; });
}

}  // namespace tusk::transport
