#include "tests/support/sim_world.h"

#include <algorithm>
#include <cstring>

namespace tusk::support {
namespace {

constexpr ByteCount kHeldSlack = 64 << 10;

}  // namespace

SimOptions symmetric_path(std::uint64_t rate, Duration rtt, double loss, Duration queue, std::uint64_t seed) {
  SimOptions options;
  options.seed = seed;
  options.path.to_client.rate = rate;
  options.path.to_client.delay = rtt / 2;
  options.path.to_client.loss = loss;
  options.path.to_client.queue_time = queue;
  options.path.to_server = options.path.to_client;
  return options;
}

SimWorld::SimWorld(const SimOptions& options)
    : random_(options.seed),
      now_(options.begin),
      path_(options.path, options.seed,
            options.links ? options.links : SimPath::make_links(options.path, options.seed)),
      traffic_(
          options.seed, [this] { return now_; },
          [this](Duration delay, std::function<void()> action) { after(delay, std::move(action)); }) {}

void SimWorld::schedule(TimePoint at, std::function<void()> action) {
  actions_.push({at, order_++, std::move(action)});
}

void SimWorld::every(Duration interval, std::function<void()> action) {
  after(interval, [this, interval, action = std::move(action)]() mutable {
    action();
    every(interval, std::move(action));
  });
}

void SimWorld::change_links(const std::function<void(LinkParameters&, LinkParameters&)>& edit) {
  LinkParameters to_server = path_.parameters(Role::kServer);
  LinkParameters to_client = path_.parameters(Role::kClient);
  edit(to_server, to_client);
  path_.change(now_, to_server, to_client);
}

bool SimWorld::run_until(const std::function<bool()>& done, Duration limit) {
  const TimePoint deadline = TimePoint() + limit;
  while (!done())
    if (!step(deadline)) return done();
  return true;
}

void SimWorld::run_for(Duration duration) {
  (void)run_until([] { return false; }, elapsed() + duration);
}

bool SimWorld::run_to_rest(Duration limit) {
  return run_until([this] { return traffic_.idle(); }, limit) &&
         run_until([this] { return at_rest(); }, limit);
}

TimePoint SimWorld::next_event() {
  transmit();
  const TimePoint next = std::min(next_timeout(), path_.next_arrival());
  return actions_.empty() ? next : std::min(next, actions_.top().at);
}

bool SimWorld::step(TimePoint deadline) {
  const TimePoint next = next_event();
  if (next > deadline) {
    now_ = std::max(now_, deadline);
    return false;
  }
  turns_without_time_ = next > now_ ? 0 : turns_without_time_ + 1;
  if (turns_without_time_ > kTurnsWithoutTimeMax) {
    stuck_ = true;
    return false;
  }
  now_ = std::max(now_, next);
  while (!actions_.empty() && actions_.top().at <= now_) {
    const auto run = actions_.top().run;
    actions_.pop();
    run();
  }
  while (const auto arrival = path_.poll_arrival(now_)) {
    mix(static_cast<std::uint64_t>(now_.time_since_epoch().count()));
    mix(arrival->size << 1 | static_cast<std::uint64_t>(arrival->receiver));
    deliver(*arrival);
  }
  handle_timeouts();
  handle_events();
  if (now_ >= sample_at_) sample_held();
  return true;
}

void SimWorld::mix(std::uint64_t value) { event_hash_ = (event_hash_ ^ value) * 0x100000001b3; }

void SimWorld::sample_held() {
  sample_at_ = now_ + kSampling;
  ByteCount held = 0;
  ByteCount windows = 0;
  for (const Role side : {Role::kClient, Role::kServer}) {
    const auto* open = connection(side);
    if (!open) continue;
    held += open->unsent_bytes() + open->sent_packets().in_flight();
    windows += open->congestion().window();
  }
  held_max_ = std::max(held_max_, held);
  windows_max_ = std::max(windows_max_, windows);
}

bool SimWorld::at_rest() const {
  for (const Role side : {Role::kClient, Role::kServer}) {
    const auto* open = connection(side);
    if (!open) continue;
    if (open->open_exchanges() > 0 || open->served_exchanges() > 0 || open->sent_packets().in_flight() > 0)
      return false;
  }
  return traffic_.idle();
}

std::vector<std::string> SimWorld::complaints() const {
  std::vector<std::string> result = traffic_.complaints();
  if (stuck_) result.emplace_back("time stands still: somebody has something to do for ever");
  // Unsent is what was asked for; in flight is what the windows allowed, which may have been larger
  // between two samples, and probes.
  const ByteCount held_limit = traffic_.asked_max() + 2 * windows_max_ + kHeldSlack;
  if (held_max_ > held_limit)
    result.push_back("the two sides held " + std::to_string(held_max_) + " bytes, more than " +
                     std::to_string(held_limit));
  if (!traffic_.idle()) {
    result.push_back(std::to_string(traffic_.calls_open()) + " calls are not answered after " +
                     std::to_string(to_seconds(elapsed())) + " s");
    return result;
  }
  for (const Role side : {Role::kClient, Role::kServer}) {
    const auto* open = connection(side);
    if (!open || open->closed()) continue;
    const std::string who = side == Role::kClient ? "the client" : "the server";
    if (open->open_exchanges() > 0) result.push_back(who + " keeps exchanges that it opened");
    if (open->served_exchanges() > 0) result.push_back(who + " keeps exchanges that it answered");
    if (open->unsent_bytes() > 0) result.push_back(who + " counts bytes as unsent that nobody wants");
    if (open->sent_packets().in_flight() > 0) result.push_back(who + " has packets in flight for ever");
  }
  return result;
}

}  // namespace tusk::support
