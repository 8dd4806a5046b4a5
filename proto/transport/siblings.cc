#include "proto/transport/siblings.h"

#include <algorithm>
#include <cmath>

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
// In a crowd, whose programs wait for one another's processors before they ask, and in between.
constexpr Duration kCompany = 15s;
constexpr Duration kCompanyLasts = 90s;
// Who has less of its part does not want it.
constexpr double kWants = 0.5;

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
  const auto had = static_cast<double>(news.delivered - mine.news.delivered);
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
  settle(mine, had, others);
  return others;
}

void Siblings::Flow::hear(const News& heard) {
  had += static_cast<double>(heard.delivered - news.delivered) / heard.part;
  const double since = to_seconds(heard.now - news.now);
  const Duration faded = from_seconds(to_seconds(longest) * std::exp(-since / kQueueSeconds));
  news = heard;
  longest = std::max(news.base + news.queue, faded);
}

// Who was silent had nothing to send: what the others had meanwhile is not owed to it. But one of the newest
// company may have been kept from running.
Siblings::Flow& Siblings::find(const void* flow, const News& news) {
  const auto known = std::ranges::find(flows_, flow, &Flow::name);
  if (known == flows_.end()) {
    Flow& begun =
        flows_.emplace_back(Flow{.name = flow, .news = news, .began = news.now, .before = news.delivered});
    join_company(begun);
    return begun;
  }
  if (!silent(known->news, news.now)) return *known;
  const TimePoint heard_of = known->news.now;
  const Duration silence = news.now - heard_of;
  known->hear(news);
  known->longest = {};
  known->joined = false;
  if (silence >= kOwedLong) {
    known->ahead = 0;
    known->began = news.now;
    known->before = news.delivered;
    known->heard_of = heard_of;
    if (silence >= kCompany || known->company != company_) join_company(*known);
  }
  return *known;
}

// Nobody owes anything to who comes later. But who begins a little later than others is to end with them: its
// account is that of one that was there when they began and got nothing. Programs that are started together
// ask one after the other. And who was silent for a moment still owes what it owed: in the queue of many that
// start at once a round trip is as long as a silence.
void Siblings::join(Flow& mine) {
  const TimePoint now = mine.news.now;
  double parts = 0, ahead = 0, young_parts = 0, young_ahead = 0;
  TimePoint began = mine.began;
  for (const Flow* other : alike_) {
    parts += other->news.part;
    ahead += other->ahead;
    if (mine.began < now || now - other->began > kBeganTogether || other->began <= mine.heard_of) continue;
    young_parts += other->news.part;
    young_ahead += other->ahead - static_cast<double>(other->news.delivered - other->before);
    began = std::min(began, other->began);
  }
  mine.joined = true;
  if (parts <= 0) return;
  if (mine.began < now)
    mine.ahead = std::max(mine.ahead, 0.0);
  else
    mine.ahead = mine.news.part * (young_parts > 0 ? young_ahead / young_parts : ahead / parts);
  mine.began = began;
  const double even = (ahead + mine.ahead) / (parts + mine.news.part);  // of one part: it is to be 0
  mine.ahead -= mine.news.part * even;
  for (Flow* other : alike_) other->ahead -= other->news.part * even;
}

// All were to have their parts of what one `had`.
void Siblings::settle(Flow& mine, double had, Others& others) {
  const double parts = others.parts + mine.news.part;
  const double line = std::max(others.rate + mine.news.rate, std::max(others.capacity, mine.news.capacity));
  const double most = kOwedSeconds * line / parts;
  double all = 0;
  const auto charge = [&](Flow& flow, double bytes) {
    flow.ahead = std::clamp(flow.ahead + bytes, -most * flow.news.part, most * flow.news.part);
    all += flow.ahead;
  };
  charge(mine, had * (1 - mine.news.part / parts));
  for (Flow* other : alike_) charge(*other, -had * other->news.part / parts);
  others.ahead = mine.ahead - all * mine.news.part / parts;  // who left may have owed something
  settle_in_company(mine, most, others);
}

// What each was charged is what it had beside those that it saw at that moment; and those that begin together
// see few of each other at first, whom a busy machine keeps from asking, and from telling. So for some time a
// company of many is compared by all that each had since then: of many, what one is given costs each of them
// next to nothing. Not with those that do not want their part, for which the others would wait.
void Siblings::settle_in_company(const Flow& mine, double most, Others& others) const {
  if (mine.news.now - mine.company > kCompanyLasts) return;
  const double rate = (others.rate + mine.news.rate) / (others.parts + mine.news.part);  // of one part
  int companions = 0;
  double parts = mine.news.part, behind = 0;
  for (const Flow* other : alike_) {
    if (other->company != mine.company || other->news.rate < kWants * other->news.part * rate) continue;
    ++companions;
    parts += other->news.part;
    behind += other->news.part * std::clamp(other->had - mine.had, -most, most);
  }
  if (companions >= kCrowd && 2 * companions >= others.flows) others.ahead = -mine.news.part * behind / parts;
}

// Those that begin one soon after the other.
void Siblings::join_company(Flow& mine) {
  const TimePoint now = mine.news.now;
  if (now - company_joined_ > kBeganTogether || now - company_ > kCompany) company_ = now;
  company_joined_ = now;
  mine.company = company_;
  mine.had = 0;
}

void Siblings::leave(const void* flow) {
  std::erase_if(flows_, [&](const Flow& each) { return each.name == flow; });
}

}  // namespace tusk::transport
