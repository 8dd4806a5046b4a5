// tusk-sim: one simulated run, to look at.
//
//   tusk-sim SEED [--secure] [--verbose]          a random scenario; what a failing test names
//   tusk-sim --rate 1gbit --rtt 100ms --loss 0.1% --size 1gib [--store] [--trace FILE]   one transfer
//   tusk-sim --flows model,cubic@5s --rate 100mbit --rtt 50ms --queue 50ms   who gets what of a line
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <ranges>

#include "tests/support/sim_network.h"
#include "tests/support/sim_scenario.h"
#include "tests/support/sim_secure_pair.h"
#include "tests/system/wan/quantity.h"
#include "tests/system/wan/settings.h"

namespace tusk::support {
namespace {

struct Arguments {
  std::optional<std::uint64_t> seed;
  bool secure = false;
  bool verbose = false;
  // One transfer.
  std::string rate = "1gbit";
  std::string rtt = "100ms";
  std::string loss = "0";
  std::string queue = "100ms";
  std::string size = "1gib";
  std::string window;
  std::string extra;
  std::string stalls;
  transport::CongestionKind congestion = transport::CongestionKind::kModel;
  std::uint32_t mtu = 1500;
  bool store = false;
  bool rested = false;
  std::string trace;
  std::string every = "50ms";
  // Several flows.
  std::string flows;
  bool one_server = false;
  bool bodies = false;
  std::vector<std::string> turns;
  std::string lasting = "30s";
};

const std::map<std::string, transport::CongestionKind> kCongestionKinds{
    {"model", transport::CongestionKind::kModel},
    {"background", transport::CongestionKind::kBackground},
    {"cubic", transport::CongestionKind::kCubic},
    {"bbr", transport::CongestionKind::kBbr}};

// The value, or a sentence and the end.
template <class T>
T must(Result<T> result) {
  if (result) return std::move(*result);
  std::cerr << "tusk-sim: " << result.error().message() << "\n";
  std::exit(2);
}

constexpr std::string_view kTraceHeader =
    "time_s,done_bytes,rate_mbit,state,bandwidth_mbit,pacing_mbit,rtt_min_ms,rtt_ms,queueing_ms,real_queue_"
    "ms,"
    "in_flight,window,sent,lost,late,datagram\n";

// Writes the sender's state as lines of CSV.
class Trace {
 public:
  Trace(SimWorld& world, Role sender, std::ostream& out) : world_(world), sender_(sender), out_(out) {
    out_ << kTraceHeader;
  }

  void line() {
    const auto* connection = world_.connection(sender_);
    if (!connection) return;
    const auto s = connection->stats();
    const ByteCount done = world_.traffic().bytes_done();
    const double seconds = to_seconds(world_.now() - last_at_);
    const double rate = seconds > 0 ? static_cast<double>(done - last_done_) * 8e-6 / seconds : 0;
    const Duration real = world_.path().link(other(sender_)).backlog(world_.now());
    last_at_ = world_.now();
    last_done_ = done;
    const auto ms = [](Duration duration) { return to_seconds(duration) * 1e3; };
    out_ << to_seconds(world_.elapsed()) << ',' << done << ',' << rate << ',' << s.congestion_state << ','
         << s.send_bandwidth * 8e-6 << ',' << s.pacing_rate * 8e-6 << ',' << ms(s.rtt_min) << ','
         << ms(s.rtt_smoothed) << ',' << ms(s.queueing) << ',' << ms(real) << ',' << s.in_flight << ','
         << s.window << ',' << s.packets_sent << ',' << s.packets_lost << ',' << s.packets_spurious << ','
         << s.datagram_size << '\n';
  }

 private:
  SimWorld& world_;
  const Role sender_;
  std::ostream& out_;
  TimePoint last_at_{};
  ByteCount last_done_ = 0;
};

int run_seed(const Arguments& arguments) {
  const SimScenario scenario = random_scenario(*arguments.seed, arguments.secure);
  std::cout << describe(scenario);
  std::optional<Trace> trace;
  SimObserver observer;
  if (arguments.verbose) {
    const Duration every = must(wan::parse_duration(arguments.every));
    const Role sender = arguments.store ? Role::kClient : Role::kServer;
    observer = [&trace, sender, every](SimWorld& world) {
      trace.emplace(world, sender, std::cout);
      world.every(every, [&trace] { trace->line(); });
    };
  }
  const SimReport report = run_scenario(scenario, Sabotage::kNone, observer);
  std::cout << describe(report);
  if (report.complaints.empty()) return 0;
  std::cout << "replay with: ./dev sim " << *arguments.seed << (arguments.secure ? " --secure" : "") << "\n";
  return 1;
}

// What the arguments say of the path and the two ends.
SimOptions options_of(const Arguments& arguments) {
  const Duration rtt = must(wan::parse_duration(arguments.rtt));
  SimOptions options =
      symmetric_path(must(wan::parse_rate(arguments.rate)), rtt, must(wan::parse_fraction(arguments.loss)),
                     must(wan::parse_duration(arguments.queue)), arguments.seed.value_or(1));
  options.handshake_rtt = rtt;
  options.path.mtu = arguments.mtu;
  options.connection.congestion = arguments.congestion;
  options.connection.credit.request_bytes_later = kServerCredit;
  options.path.deliver_damaged = arguments.secure;
  if (!arguments.stalls.empty()) {
    const std::size_t colon = arguments.stalls.find(':');
    if (colon == std::string::npos)
      must<int>(fail(ErrorCode::kBadConfig, "'" + arguments.stalls + "' are no stalls: EVERY:LENGTH"));
    options.stall_every = must(wan::parse_duration(arguments.stalls.substr(0, colon)));
    options.stall_length = must(wan::parse_duration(arguments.stalls.substr(colon + 1)));
  }
  if (!arguments.extra.empty()) {
    const auto changed =
        must(wan::with_changes({options.path.to_server, options.path.to_client}, arguments.extra));
    options.path.to_server = changed.ab;
    options.path.to_client = changed.ba;
  }
  return options;
}

// Two bandwidth-delay products and a queue's worth, as a mount would keep asked for.
ByteCount window_of(const Arguments& arguments) {
  if (!arguments.window.empty()) return must(wan::parse_size(arguments.window));
  const auto rate = static_cast<double>(must(wan::parse_rate(arguments.rate)));
  const Duration rtt = must(wan::parse_duration(arguments.rtt));
  return static_cast<ByteCount>(3 * rate / 8 * (to_seconds(rtt) + 0.05)) + (8 << 20);
}

int run_transfer(const Arguments& arguments) {
  const std::uint64_t rate = must(wan::parse_rate(arguments.rate));
  const Duration rtt = must(wan::parse_duration(arguments.rtt));
  const double loss = must(wan::parse_fraction(arguments.loss));
  const ByteCount size = must(wan::parse_size(arguments.size));
  const SimOptions options = options_of(arguments);
  std::unique_ptr<SimWorld> world;
  if (arguments.secure) {
    auto secure = std::make_unique<SecurePair>(SecureOptions{.world = options});
    if (!secure->connect(60s)) {
      std::cout << "no connection came about\n";
      return 1;
    }
    world = std::move(secure);
  } else {
    world = std::make_unique<SimPair>(options);
  }
  const Role sender = arguments.store ? Role::kClient : Role::kServer;
  std::ofstream file;
  std::optional<Trace> trace;
  if (!arguments.trace.empty()) {
    if (arguments.trace != "-") {
      file.open(arguments.trace);
      if (!file) must<int>(fail(ErrorCode::kBadConfig, "cannot write " + arguments.trace));
    }
    trace.emplace(*world, sender, arguments.trace == "-" ? std::cout : file);
    world->every(must(wan::parse_duration(arguments.every)), [&trace] { trace->line(); });
  }
  if (arguments.rested) world->run_for(1s + 6 * rtt);
  const Duration start = world->elapsed();
  world->traffic().stream(size, window_of(arguments),
                          arguments.store ? SimTraffic::Kind::kStore : SimTraffic::Kind::kFetch);
  const bool done = world->run_until([&] { return world->traffic().bytes_done() >= size; }, start + 24h);
  const double seconds = to_seconds(world->elapsed() - start);
  const LinkStatistics& link = world->path().statistics(other(sender));
  const auto stats = world->connection(sender)->stats();
  const double payload =
      static_cast<double>(arguments.mtu - 66) / arguments.mtu;  // IP, UDP, header, tag, frame
  const double limit = static_cast<double>(rate) * (1 - loss) * payload;
  const double achieved = static_cast<double>(world->traffic().bytes_done()) * 8 / seconds;
  std::printf("%s in %.3f s: %.1f Mbit/s, %.1f %% of the limit %.1f\n", done ? "done" : "NOT DONE", seconds,
              achieved / 1e6, 100 * achieved / limit, limit / 1e6);
  std::printf(
      "queue mean %.2f ms, most %.2f ms; %lu packets, %lu dropped by the queue, %lu lost on the way, %lu "
      "taken for "
      "lost, %lu of them only late\n",
      to_seconds(link.queue_mean()) * 1e3, to_seconds(link.queue_max) * 1e3, stats.packets_sent,
      link.drops[static_cast<std::size_t>(DropCause::kQueue)],
      link.dropped() - link.drops[static_cast<std::size_t>(DropCause::kQueue)], stats.packets_lost,
      stats.packets_spurious);
  for (const std::string& complaint : world->traffic().complaints())
    std::printf("WRONG: %s\n", complaint.c_str());
  return done && world->traffic().complaints().empty() ? 0 : 1;
}

struct Flow {
  std::string name;
  transport::CongestionKind congestion;
  Duration joins{};
  ByteCount size = ByteCount{1} << 50;
  std::string mount;  // that it is a further connection of; empty: it is a mount's first one
};

constexpr Duration kLanesApart = 3s;

std::vector<Flow> flows_of(const std::string& text) {
  std::vector<Flow> flows;
  for (const auto part : std::views::split(text, ',')) {
    const std::string word(part.begin(), part.end());
    const std::size_t at = word.find('@');
    const std::size_t colon = word.find(':');
    const std::size_t times = word.find('*');
    const auto kind = kCongestionKinds.find(word.substr(0, std::min(at, times)));
    if (kind == kCongestionKinds.end())
      must<int>(fail(ErrorCode::kBadConfig,
                     "'" + word + "' is no flow: model, background, cubic or bbr, then *CONNECTIONS, @TIME"));
    flows.push_back({word, kind->second});
    if (at != std::string::npos)
      flows.back().joins = must(wan::parse_duration(word.substr(at + 1, colon - at - 1)));
    if (colon != std::string::npos) flows.back().size = must(wan::parse_size(word.substr(colon + 1)));
    const int lanes = times == std::string::npos ? 1 : std::atoi(word.c_str() + times + 1);
    for (int lane = 1; lane < lanes; ++lane) {
      flows.push_back(flows.back());
      flows.back().mount = word;
      flows.back().joins += kLanesApart;
    }
  }
  std::ranges::stable_sort(flows, {}, &Flow::joins);
  return flows;
}

// A change of the path at a time.
struct Turn {
  Duration at{};
  std::string changes;
};

std::vector<Turn> turns_of(const std::vector<std::string>& texts) {
  std::vector<Turn> turns;
  for (const std::string& text : texts) {
    const std::size_t colon = text.find(':');
    if (colon == std::string::npos)
      must<int>(fail(ErrorCode::kBadConfig, "'" + text + "' is no change: TIME:CHANGES"));
    turns.push_back({must(wan::parse_duration(text.substr(0, colon))), text.substr(colon + 1)});
  }
  std::ranges::stable_sort(turns, {}, &Turn::at);
  return turns;
}

void turn(SimNetwork& network, const std::string& changes) {
  network.change_links([&](LinkParameters& to_server, LinkParameters& to_client) {
    const auto changed = must(wan::with_changes({to_server, to_client}, changes));
    to_server = changed.ab;
    to_client = changed.ba;
  });
}

void print_state(const transport::ConnectionStats& s) {
  const auto ms = [](Duration duration) { return to_seconds(duration) * 1e3; };
  std::printf(
      "%20s: bandwidth %.1f, capacity %.1f, pacing %.1f Mbit/s, round trip %.1f of %.1f ms, window %.0f KiB, "
      "loss %.2f %%\n",
      std::string(s.congestion_state).c_str(), s.send_bandwidth * 8e-6, s.capacity * 8e-6,
      s.pacing_rate * 8e-6, ms(s.rtt_min), ms(s.rtt_smoothed), static_cast<double>(s.window) / 1024,
      100 * s.loss);
}

// A line for every interval: what each flow got, in percent of the line, and the queue.
int run_flows(const Arguments& arguments) {
  const std::vector<Flow> flows = flows_of(arguments.flows);
  const auto rate = static_cast<double>(must(wan::parse_rate(arguments.rate)));
  const Duration every = must(wan::parse_duration(arguments.every));
  const Duration lasting = must(wan::parse_duration(arguments.lasting));
  SimNetwork network(options_of(arguments));
  if (arguments.one_server) network.serve_from_one();
  std::vector<Turn> turns = turns_of(arguments.turns);
  const Link& link = network.link(Role::kClient);
  std::printf("%8s", "time s");
  for (const Flow& flow : flows) std::printf(" %10s", flow.name.c_str());
  std::printf(" %8s %8s %8s\n", "Jain", "queue ms", "dropped");
  while (network.elapsed() < lasting) {
    while (network.pairs().size() < flows.size() &&
           flows[network.pairs().size()].joins <= network.elapsed()) {
      const Flow& flow = flows[network.pairs().size()];
      const auto first = std::ranges::find(flows, flow.mount, &Flow::name) - flows.begin();
      SimPair& pair = flow.mount.empty()
                          ? network.join(flow.congestion)
                          : network.join_mount_of(*network.pairs()[static_cast<std::size_t>(first)]);
      pair.traffic().stream(flow.size, window_of(arguments), SimTraffic::Kind::kFetch);
    }
    while (!turns.empty() && turns.front().at <= network.elapsed()) {
      turn(network, turns.front().changes);
      turns.erase(turns.begin());
    }
    const Shares shares(network, Role::kClient,
                        arguments.bodies ? Shares::Of::kBodies : Shares::Of::kDatagrams);
    const std::uint64_t dropped = link.statistics().dropped();
    network.run_for(every);
    std::printf("%8.2f", to_seconds(network.elapsed()));
    const auto rates = shares.rates();
    for (const double share : rates) std::printf(" %10.3f", 100 * share / rate);
    for (std::size_t i = rates.size(); i < flows.size(); ++i) std::printf(" %10s", "-");
    std::printf(" %8.3f %8.1f %8lu\n", jain_index(shares.rates_of_mounts()),
                to_seconds(network.link(Role::kClient).backlog(network.now())) * 1e3,
                link.statistics().dropped() - dropped);
    if (arguments.verbose)
      for (const auto& pair : network.pairs())
        if (const auto* connection = pair->connection(Role::kServer)) print_state(connection->stats());
  }
  bool well = true;
  for (std::size_t i = 0; i < network.pairs().size(); ++i) {
    for (const std::string& complaint : network.pairs()[i]->traffic().complaints()) {
      std::printf("WRONG: %s: %s\n", flows[i].name.c_str(), complaint.c_str());
      well = false;
    }
  }
  return well ? 0 : 1;
}

}  // namespace
}  // namespace tusk::support

int main(int argc, char** argv) {
  tusk::support::Arguments arguments;
  CLI::App app("One simulated run of the transport in virtual time", "tusk-sim");
  app.add_option("SEED", arguments.seed, "the random scenario to run, or a transfer's seed");
  auto* secure = app.add_flag("--secure", arguments.secure, "with the handshake and keys");
  app.add_flag("--verbose", arguments.verbose,
               "print the sender's state as it goes: the server's, or with --store the client's");
  auto* rate =
      app.add_option("--rate", arguments.rate, "one transfer: bottleneck of both directions, as 1gbit");
  auto* rtt = app.add_option("--rtt", arguments.rtt, "round trip, as 100ms");
  auto* loss = app.add_option("--loss", arguments.loss, "in each direction, as 0.1%");
  auto* size = app.add_option("--size", arguments.size, "bytes to transfer, as 1gib");
  app.add_option("--queue", arguments.queue, "of the bottleneck, as 100ms");
  app.add_option("--mtu", arguments.mtu, "bytes of an IP packet")->check(CLI::Range(1260, 65535));
  app.add_option("--window", arguments.window, "bytes asked for at a time; by default enough for the path");
  app.add_option("--set", arguments.extra, "more of the path, as jitter=2ms,ab-loss=1% (ab: to the server)");
  app.add_option("--stalls", arguments.stalls,
                 "both programs are kept from running so often, for so long, on average: EVERY:LENGTH")
      ->excludes(secure);
  app.add_option("--congestion", arguments.congestion, "the controller of both sides")
      ->transform(CLI::CheckedTransformer(tusk::support::kCongestionKinds, CLI::ignore_case));
  app.add_flag("--rested", arguments.rested, "the connection is some seconds old, as a mount that is used");
  app.add_flag("--store", arguments.store, "the client sends");
  app.add_option("--trace", arguments.trace, "CSV of the sender's state over time; - is standard output");
  app.add_option("--every", arguments.every, "interval of the trace's lines");
  app.add_option(
      "--flows", arguments.flows,
      "flows that share the line, when they join and how much they fetch, as model,cubic@5s,model@9s:1gib; "
      "model*3@5s: a mount of three connections, that come three seconds one after the other");
  app.add_option("--then", arguments.turns,
                 "with --flows: a change of the path, as 10s:rate=100mbit,delay=46ms; may be repeated")
      ->allow_extra_args(false);
  app.add_flag("--one-server", arguments.one_server, "with --flows: all come from one server to one host");
  app.add_flag("--bodies", arguments.bodies,
               "with --flows: counts what comes of files, not what is taken of the line");
  app.add_option("--lasting", arguments.lasting, "how long flows are watched");
  CLI11_PARSE(app, argc, argv);
  if (!arguments.flows.empty()) return tusk::support::run_flows(arguments);
  const bool transfer = rate->count() + rtt->count() + loss->count() + size->count() > 0;
  if (!transfer && !arguments.seed) {
    std::cerr << "tusk-sim: a seed, or a transfer with --rate, --rtt, --loss, --size; see --help\n";
    return 2;
  }
  return transfer ? tusk::support::run_transfer(arguments) : tusk::support::run_seed(arguments);
}
