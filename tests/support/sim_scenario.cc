#include "tests/support/sim_scenario.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <sstream>

#include "tests/support/sim_pair.h"
#include "tests/support/sim_secure_pair.h"

namespace tusk::support {
namespace {

constexpr std::uint64_t kScenarioStream = 0x5ce7a;
constexpr ByteCount kBytesMost = 24 << 20;  // bounds the real time of a run
constexpr ByteCount kSmallMax = 8 << 10;
constexpr double kSecondsOfTraffic = 3;
constexpr std::uint32_t kMtuMin = wire::kDatagramSizeMin + SimPath::kIpOverhead;
// A path may be this much slower than its rate on average, with all that can go wrong on it.
constexpr double kSlownessMax = 20;
constexpr Duration kPatienceBase = 60s;

Duration times(Duration duration, double factor) { return from_seconds(to_seconds(duration) * factor); }

// Chance with the shapes that scenarios need.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  [[nodiscard]] bool chance(double p) { return random_.chance(p); }
  [[nodiscard]] double between(double low, double high) { return low + (high - low) * random_.uniform(); }
  // Every order of magnitude is as likely as the next.
  [[nodiscard]] double magnitude(double low, double high) {
    return low * std::pow(high / low, random_.uniform());
  }
  [[nodiscard]] Duration magnitude(Duration low, Duration high) {
    return from_seconds(magnitude(to_seconds(low), to_seconds(high)));
  }
  template <class T, std::size_t kCount>
  [[nodiscard]] T one_of(const T (&choices)[kCount]) {
    return choices[random_.below(kCount)];
  }

 private:
  Random random_;
};

// Where less than a burst of packets can wait, nothing but single packets gets through: no real path is
// like that (and the controller would crawl).
void hold_some_packets(LinkParameters& link, std::uint32_t mtu) {
  constexpr ByteCount kPackets = 12;
  const ByteCount least = kPackets * mtu;
  const double seconds = static_cast<double>(least) * 8 / static_cast<double>(link.rate);
  link.queue_time = std::max(link.queue_time, from_seconds(seconds));
  if (link.queue_bytes > 0) link.queue_bytes = std::max(link.queue_bytes, least);
}

LinkParameters random_link(Dice& dice, std::uint64_t rate, Duration delay) {
  LinkParameters link;
  link.rate = rate;
  link.delay = delay;
  link.queue_time = dice.magnitude(5ms, 300ms);
  if (dice.chance(0.2)) link.queue_bytes = static_cast<ByteCount>(dice.magnitude(20'000, 2'000'000));
  if (dice.chance(0.2)) link.ecn_threshold = link.queue_time / 2;
  if (dice.chance(0.08))
    link.policer_rate = static_cast<std::uint64_t>(static_cast<double>(rate) * dice.between(0.6, 0.95));
  if (dice.chance(0.5)) link.loss = dice.magnitude(1e-4, 0.05);
  if (dice.chance(0.25)) {
    link.burst_loss = dice.magnitude(1e-3, 0.03);
    // A burst ends with the packets, not with time: long ones would silence a peer that only probes.
    link.burst_length = dice.between(2, 5);
  }
  if (dice.chance(0.25)) link.jitter = times(delay, dice.between(0, 0.3));
  if (dice.chance(0.3)) {
    link.reorder = dice.magnitude(1e-3, 0.1);
    link.reorder_min = dice.magnitude(100us, 5ms);
    link.reorder_max = link.reorder_min + dice.magnitude(100us, 20ms);
  }
  if (dice.chance(0.3)) link.duplicate = dice.magnitude(1e-3, 0.1);
  if (dice.chance(0.3)) link.corrupt = dice.magnitude(1e-4, 0.02);
  return link;
}

std::uint64_t scaled_rate(std::uint64_t rate, double factor) {
  constexpr double kRateMin = 500'000;
  return static_cast<std::uint64_t>(std::max(kRateMin, static_cast<double>(rate) * factor));
}

// What the next change makes of the path before it.
SimScenario::Change random_change(Dice& dice, SimScenario::Change path, bool secure) {
  path.client_moves = secure && dice.chance(0.3);
  if (dice.chance(0.5)) path.to_client.rate = scaled_rate(path.to_client.rate, dice.magnitude(0.1, 8));
  if (dice.chance(0.3)) path.to_server.rate = scaled_rate(path.to_server.rate, dice.magnitude(0.1, 8));
  if (dice.chance(0.3)) {
    const double factor = dice.magnitude(0.3, 3);
    for (LinkParameters* link : {&path.to_client, &path.to_server})
      link->delay = std::min<Duration>(300ms, times(link->delay, factor));
  }
  if (dice.chance(0.3)) path.to_client.loss = dice.chance(0.5) ? 0 : dice.magnitude(1e-4, 0.05);
  if (dice.chance(0.2)) path.mtu = std::max(kMtuMin, dice.one_of({1280u, 1400u, 1500u, 9000u}));
  for (LinkParameters* link : {&path.to_client, &path.to_server}) {
    hold_some_packets(*link, path.mtu);
    // A policer belongs to the rate it was made for.
    if (link->policer_rate > 0) link->policer_rate = std::min(link->policer_rate, link->rate);
  }
  return path;
}

// About how long the traffic takes on the path as it is at the start.
Duration expected_time(const SimScenario& scenario) {
  const auto& path = scenario.options.path;
  const double rate = static_cast<double>(std::min(path.to_client.rate, path.to_server.rate));
  const double rounds = static_cast<double>(scenario.calls_max) / static_cast<double>(scenario.parallel);
  const Duration round = path.to_client.delay + path.to_server.delay + scenario.thinking;
  return from_seconds(static_cast<double>(scenario.bytes_max) * 8 / rate + rounds * to_seconds(round));
}

void add_changes(Dice& dice, SimScenario& scenario) {
  const Duration whole = expected_time(scenario);
  SimScenario::Change path{0s, scenario.options.path.to_server, scenario.options.path.to_client,
                           scenario.options.path.mtu, false};
  const int count = dice.chance(0.4) ? 0 : static_cast<int>(dice.between(1, 5));
  for (int i = 0; i < count; ++i) {
    path = random_change(dice, path, scenario.secure);
    path.at += dice.magnitude(whole / 50, whole / 3);
    scenario.changes.push_back(path);
  }
  if (!dice.chance(0.35)) return;
  // Outages, of one direction or both, after each of which the path is as before.
  const int outages = dice.chance(0.5) ? 1 : static_cast<int>(dice.between(2, 6));
  for (int i = 0; i < outages; ++i) {
    SimScenario::Change gone = path;
    gone.client_moves = false;
    gone.at += dice.magnitude(whole / 50, whole / 3);
    const int which = static_cast<int>(dice.between(0, 3));
    gone.to_server.outage = which != 1;
    gone.to_client.outage = which != 0;
    scenario.changes.push_back(gone);
    path.at = gone.at + dice.magnitude(1ms, 5s);
    path.client_moves = scenario.secure && dice.chance(0.2);
    scenario.changes.push_back(path);
  }
}

std::uint64_t slowest_rate(const SimScenario& scenario) {
  std::uint64_t slowest = ~std::uint64_t{0};
  const auto consider = [&](const LinkParameters& link) {
    slowest = std::min(slowest, link.policer_rate > 0 ? link.policer_rate : link.rate);
  };
  consider(scenario.options.path.to_server);
  consider(scenario.options.path.to_client);
  for (const auto& change : scenario.changes) {
    consider(change.to_server);
    consider(change.to_client);
  }
  return slowest;
}

Duration longest_round(const SimScenario& scenario) {
  const auto round = [](const LinkParameters& a, const LinkParameters& b) {
    return a.delay + b.delay + a.jitter + b.jitter + a.queue_time + b.queue_time;
  };
  Duration longest = round(scenario.options.path.to_client, scenario.options.path.to_server);
  for (const auto& change : scenario.changes)
    longest = std::max(longest, round(change.to_client, change.to_server));
  return longest + scenario.thinking;
}

// The time after which a run counts as stalled: generous, since all faults can come together.
Duration patience_for(const SimScenario& scenario) {
  // Calls that were started may exceed the bytes by one round.
  const double bytes = static_cast<double>(scenario.bytes_max + scenario.parallel * scenario.bulk_size_max);
  const double rounds = static_cast<double>(scenario.calls_max) / static_cast<double>(scenario.parallel) + 1;
  const double seconds =
      bytes * 8 / static_cast<double>(slowest_rate(scenario)) + rounds * to_seconds(longest_round(scenario));
  const Duration changing = scenario.changes.empty() ? Duration(0) : scenario.changes.back().at;
  return kPatienceBase + changing + from_seconds(kSlownessMax * seconds);
}

// Keeps `parallel` calls going until there were enough, and gives some of them up.
class Pump {
 public:
  Pump(const SimScenario& scenario, SimWorld& world) : scenario_(scenario), world_(world) {
    world_.traffic().think(scenario.thinking);
    for (std::uint64_t i = 0; i < scenario.parallel; ++i) next();
  }

 private:
  void next() {
    if (calls_ >= scenario_.calls_max || bytes_ >= scenario_.bytes_max) return;
    Random& random = world_.random();
    SimTraffic::Call call;
    const bool small = random.chance(scenario_.small_share);
    call.kind = random.chance(scenario_.fetch_share) ? SimTraffic::Kind::kFetch : SimTraffic::Kind::kStore;
    call.size = random.below((small ? kSmallMax : scenario_.bulk_size_max) + 1);
    call.priority = small                ? wire::Priority::kInteractive
                    : random.chance(0.8) ? wire::Priority::kBulk
                                         : wire::Priority::kBackground;
    call.header_size = SimTraffic::kHeaderMin + random.below(random.chance(0.05) ? 20'000 : 200);
    call.caller = random.chance(scenario_.server_share) ? Role::kServer : Role::kClient;
    call.done = [this] { next(); };
    ++calls_;
    bytes_ += call.size + 2 * call.header_size;
    const bool cancelled = random.chance(scenario_.cancel_share);
    const Duration patience = from_seconds(random.uniform() * 0.3);
    world_.traffic().call(std::move(call));
    if (cancelled) world_.after(patience, [this] { world_.traffic().cancel_random(world_.random()); });
  }

  const SimScenario& scenario_;
  SimWorld& world_;
  std::uint64_t calls_ = 0;
  ByteCount bytes_ = 0;
};

void schedule_changes(const SimScenario& scenario, SimWorld& world) {
  for (const SimScenario::Change& change : scenario.changes) {
    world.after(change.at, [&] {
      world.change_links([&](LinkParameters& to_server, LinkParameters& to_client) {
        to_server = change.to_server;
        to_client = change.to_client;
      });
      world.path().change_mtu(change.mtu);
      if (!change.client_moves) return;
      if (auto* secure = dynamic_cast<SecurePair*>(&world)) secure->move_client();
    });
  }
}

SimReport report_of(SimWorld& world) {
  SimReport report;
  report.complaints = world.complaints();
  report.elapsed = world.elapsed();
  report.bytes = world.traffic().bytes_done();
  report.calls = world.traffic().calls_done();
  report.cancelled = world.traffic().calls_cancelled();
  for (const Role side : {Role::kClient, Role::kServer}) {
    const auto* connection = world.connection(side);
    if (!connection) continue;
    const auto stats = connection->stats();
    report.packets += stats.packets_sent;
    report.lost += stats.packets_lost;
    report.spurious += stats.packets_spurious;
  }
  report.held_max = world.held_max();
  report.event_hash = world.event_hash();
  return report;
}

}  // namespace

SimScenario random_scenario(std::uint64_t seed, bool secure) {
  Dice dice(seed ^ kScenarioStream);
  SimScenario scenario;
  scenario.secure = secure;
  SimOptions& options = scenario.options;
  options.seed = seed;
  options.path.deliver_damaged = secure;
  options.path.mtu = std::max(kMtuMin, dice.one_of({1280u, 1400u, 1500u, 1500u, 1500u, 9000u}));
  options.server_clock_ahead = dice.magnitude(1s, 100h);
  const auto rate = static_cast<std::uint64_t>(dice.magnitude(1e6, 1e9));
  const Duration delay = dice.magnitude(50us, 150ms);
  options.path.to_client = random_link(dice, rate, delay);
  // The way back is often slower, and seldom exactly as long.
  const double back = dice.chance(0.5) ? 1 : dice.magnitude(0.03, 1);
  options.path.to_server = random_link(dice, scaled_rate(rate, back), times(delay, dice.between(0.8, 1.2)));
  for (LinkParameters* link : {&options.path.to_client, &options.path.to_server})
    hold_some_packets(*link, options.path.mtu);
  options.handshake_rtt =
      dice.chance(0.8) ? options.path.to_client.delay + options.path.to_server.delay : Duration(0);
  if (dice.chance(0.2))
    options.connection.credit.request_bytes = static_cast<ByteCount>(dice.magnitude(5e6, 64e6));
  if (dice.chance(0.2))
    options.connection.credit.exchanges = static_cast<std::uint64_t>(dice.magnitude(2, 1000));

  const double seconds_worth = kSecondsOfTraffic * static_cast<double>(rate) / 8;
  scenario.bytes_max = static_cast<ByteCount>(std::min<double>(kBytesMost, seconds_worth));
  scenario.calls_max = static_cast<std::uint64_t>(dice.magnitude(10, 4000));
  scenario.parallel = static_cast<std::uint64_t>(dice.magnitude(1, 300));
  scenario.fetch_share = dice.chance(0.3) ? 1 : dice.chance(0.3) ? 0 : dice.between(0, 1);
  scenario.small_share = dice.between(0, 1);
  scenario.server_share = dice.chance(0.2) ? 0.2 : 0;
  scenario.cancel_share = dice.chance(0.4) ? dice.between(0, 0.5) : 0;
  scenario.bulk_size_max = static_cast<ByteCount>(dice.magnitude(10e3, 4e6));
  scenario.thinking = dice.chance(0.5) ? dice.magnitude(100us, 50ms) : Duration(0);
  add_changes(dice, scenario);
  scenario.limit = patience_for(scenario);
  return scenario;
}

SimReport run_scenario(const SimScenario& scenario, Sabotage sabotage, const SimObserver& observer) {
  SimOptions options = scenario.options;
  if (sabotage == Sabotage::kDamageAccepted) options.path.deliver_damaged = true;
  std::unique_ptr<SimWorld> world;
  if (scenario.secure) {
    auto secure = std::make_unique<SecurePair>(SecureOptions{.world = options});
    if (observer) observer(*secure);
    if (!secure->connect(60s)) {
      SimReport report = report_of(*secure);
      report.complaints.emplace_back("no connection came about");
      return report;
    }
    world = std::move(secure);
  } else {
    auto pair = std::make_unique<SimPair>(options);
    if (sabotage == Sabotage::kRepairsVanish) pair->sabotage_repairs();
    if (observer) observer(*pair);
    world = std::move(pair);
  }
  schedule_changes(scenario, *world);
  const Pump pump(scenario, *world);
  const bool rested = world->run_to_rest(world->elapsed() + scenario.limit);
  SimReport report = report_of(*world);
  if (!rested) report.complaints.emplace_back("not at rest within the limit");
  return report;
}

// ---------------------------------------------------------------- words

std::string describe(const LinkParameters& link) {
  std::ostringstream text;
  text.precision(3);
  const auto ms = [](Duration duration) { return to_seconds(duration) * 1e3; };
  text << static_cast<double>(link.rate) / 1e6 << " Mbit/s, " << ms(link.delay) << " ms, queue "
       << ms(link.queue_time) << " ms";
  if (link.queue_bytes > 0) text << " or " << link.queue_bytes << " bytes";
  if (link.ecn_threshold > 0ns) text << ", marks from " << ms(link.ecn_threshold) << " ms";
  if (link.policer_rate > 0)
    text << ", policed at " << static_cast<double>(link.policer_rate) / 1e6 << " Mbit/s";
  if (link.loss > 0) text << ", loss " << link.loss * 100 << " %";
  if (link.burst_loss > 0) text << ", bursts " << link.burst_loss * 100 << " % of " << link.burst_length;
  if (link.jitter > 0ns) text << ", jitter " << ms(link.jitter) << " ms";
  if (link.reorder > 0)
    text << ", reorders " << link.reorder * 100 << " % by " << ms(link.reorder_min) << " to "
         << ms(link.reorder_max) << " ms";
  if (link.duplicate > 0) text << ", duplicates " << link.duplicate * 100 << " %";
  if (link.corrupt > 0) text << ", damages " << link.corrupt * 100 << " %";
  if (link.outage) text << ", OUTAGE";
  return text.str();
}

std::string describe(const SimScenario& scenario) {
  std::ostringstream text;
  text.precision(3);
  text << "seed " << scenario.options.seed << (scenario.secure ? ", with keys" : "") << "\n";
  text << "  to client: " << describe(scenario.options.path.to_client) << "\n";
  text << "  to server: " << describe(scenario.options.path.to_server) << "\n";
  text << "  MTU " << scenario.options.path.mtu << ", credit "
       << scenario.options.connection.credit.request_bytes << " bytes, "
       << scenario.options.connection.credit.exchanges << " exchanges\n";
  for (const auto& change : scenario.changes) {
    text << "  " << to_seconds(change.at) << " s: MTU " << change.mtu
         << (change.client_moves ? ", client moves" : "") << "\n    to client: " << describe(change.to_client)
         << "\n    to server: " << describe(change.to_server) << "\n";
  }
  text << "  up to " << scenario.calls_max << " calls or " << scenario.bytes_max << " bytes, "
       << scenario.parallel << " at once, fetch " << scenario.fetch_share << ", small "
       << scenario.small_share << ", by the server " << scenario.server_share << ", cancelled "
       << scenario.cancel_share << ", bulk up to " << scenario.bulk_size_max << ", thinking "
       << to_seconds(scenario.thinking) * 1e3 << " ms\n";
  return text.str();
}

std::string describe(const SimReport& report) {
  std::ostringstream text;
  text << "  " << report.calls << " calls, " << report.cancelled << " cancelled, " << report.bytes
       << " bytes in " << to_seconds(report.elapsed) << " s; " << report.packets << " packets, "
       << report.lost << " lost, " << report.spurious << " of them only late; held at most "
       << report.held_max << " bytes; events " << std::hex << report.event_hash << "\n";
  for (const std::string& complaint : report.complaints) text << "  WRONG: " << complaint << "\n";
  return text.str();
}

}  // namespace tusk::support
