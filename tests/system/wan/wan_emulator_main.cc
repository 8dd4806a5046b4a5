// tusk-wan: two network namespaces joined by an emulated WAN path. See --help.
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/system/wan/control.h"
#include "tests/system/wan/emulator.h"
#include "tests/system/wan/network.h"
#include "tests/system/wan/quantity.h"
#include "tests/system/wan/report.h"
#include "tests/system/wan/settings.h"

namespace tusk::wan {
namespace {

constexpr std::size_t kMtuMin = 576;
constexpr std::size_t kMtuMax = 65'535;
constexpr std::size_t kScheduledMax = 10'000;
constexpr std::string_view kDefaults = "queue=100ms";
constexpr int kNicePriority = -20;

constexpr const char* kDescription =
    "Joins two new network namespaces, A and B, by an emulated WAN path: all IP packets between them pass\n"
    "a bottleneck with its queue, loss, delay and whatever else is asked for, in each direction. Needs "
    "root.\n";

constexpr const char* kManual = R"(
One line is printed when the path is usable:   ready NAMESPACE_A NAMESPACE_B ADDRESS_A ADDRESS_B
and one line of JSON with the figures at the end (SIGTERM, SIGINT, "quit", or the death of the parent), when
the namespaces are gone again. Programs enter with   nsenter --net=/run/netns/NAMESPACE_A COMMAND
IPv6: 10.X.Y.1 is also fd00:X:Y::1.

The order of things: outage, policer, bottleneck and queue, loss, corruption and duplication, delay and
reordering. The RTT is the delay twice, and at most half a millisecond.

--at TIME CHANGES and the control socket take the settings above without dashes: rate=100mbit,ab-delay=46ms

The control socket (by default /run/tusk-wanPID.sock) takes one command a line and answers one line:
  set CHANGES | at DELAY CHANGES | outage on|off | stats | quit

Examples
  A transatlantic gigabit:          tusk-wan --rate 1gbit --delay 50ms --loss 0.1%
  The rate falls after 10 s:        tusk-wan --rate 1gbit --delay 25ms --at 10s rate=100mbit
  A home line:                      tusk-wan --ab-rate 50mbit --ba-rate 500mbit --delay 10ms --queue 500ms
  Cut a running path:               tusk-wan --control /run/tusk-wan1234.sock --send "outage on"
)";

struct Arguments {
  std::string topology = "tusk";
  std::map<std::string, std::string> settings;  // by name, with ab- or ba- if given so
  std::vector<std::pair<std::string, std::string>> schedule;
  std::string control;
  std::string send;
  std::string series;
  std::string series_interval = "100ms";
  std::string memory = "512mib";
  std::string congestion_control;
  EmulatorConfig emulator;
};

struct Scheduled {
  TimePoint when;
  std::string changes;
};

void declare_settings(CLI::App& app, Arguments& arguments) {
  for (const Setting& setting : settings()) {
    const std::string name(setting.name);
    for (const char* prefix : {"", "ab-", "ba-"}) {
      CLI::Option* option = app.add_option_function<std::string>(
          "--" + (prefix + name),
          [&arguments, key = prefix + name](const std::string& value) { arguments.settings[key] = value; });
      option->type_name(std::string(setting.example));
      option->group(*prefix == '\0'
                        ? "The path, both directions; --ab-... and --ba-... set one (A to B, B to A)"
                        : "");  // an empty group hides the option
      option->description(std::string(setting.help));
    }
  }
}

void declare(CLI::App& app, Arguments& arguments) {
  app.footer(kManual);
  app.get_formatter()->column_width(34);
  declare_settings(app, arguments);
  app.add_option("--at", arguments.schedule, "change settings TIME after the start; repeatable")
      ->type_name("TIME CHANGES");
  app.add_option("--topology", arguments.topology, "first part of the namespaces' names")->type_name("NAME");
  app.add_option("--mtu", arguments.emulator.mtu, "of both devices")
      ->check(CLI::Range(kMtuMin, kMtuMax))
      ->type_name("1500");
  app.add_option("--seed", arguments.emulator.seed, "of all chance")->type_name("1");
  app.add_option("--tcp", arguments.congestion_control,
                 "default TCP congestion control inside: bbr, cubic, reno")
      ->type_name("NAME");
  app.add_option("--series", arguments.series, "write throughput and queues over time as CSV")
      ->type_name("FILE");
  app.add_option("--series-interval", arguments.series_interval, "of its rows")->type_name("100ms");
  app.add_option("--control", arguments.control, "path of the control socket")->type_name("PATH");
  app.add_option("--send", arguments.send,
                 "send COMMAND to the emulator at --control, print its answer, exit")
      ->type_name("COMMAND");
  app.add_option("--memory", arguments.memory, "limit for packets under way, each direction")
      ->type_name("512mib");
  app.add_flag("!--no-realtime", arguments.emulator.realtime, "run the path at ordinary priority");
}

// Settings without a prefix first, so that ab- and ba- win wherever they stand on the command line.
Result<PathParameters> initial_parameters(const Arguments& arguments) {
  TUSK_ASSIGN(PathParameters parameters, with_changes({}, kDefaults));
  for (const bool prefixed : {false, true}) {
    for (const auto& [name, value] : arguments.settings) {
      if ((name.starts_with("ab-") || name.starts_with("ba-")) != prefixed) continue;
      TUSK_ASSIGN(parameters, with_changes(parameters, name + "=" + value));
    }
  }
  return parameters;
}

// The running program: waits for signals, commands and the times of changes and rows.
class Session {
 public:
  Session(Emulator& emulator, ControlSocket& control, int signals, TimePoint start)
      : emulator_(emulator), control_(control), signals_(signals), start_(start) {}

  [[nodiscard]] Result<void> schedule(TimePoint when, const std::string& changes) {
    if (scheduled_.size() >= kScheduledMax)
      return fail(ErrorCode::kLimitExceeded, "too many scheduled changes");
    TUSK_TRY(with_changes(emulator_.parameters(), changes));  // a mistake is told now, not when it is due
    const auto later = std::ranges::upper_bound(scheduled_, when, {}, &Scheduled::when);
    scheduled_.insert(later, {when, changes});
    return {};
  }

  void record(TimeSeries series, Duration interval) {
    series_ = std::move(series);
    interval_ = interval;
    next_row_ = start_ + interval;
  }

  void run() {
    while (!finished_) {
      wait();
      const TimePoint now = clock_now();
      while (!scheduled_.empty() && scheduled_.front().when <= now) {
        // Checked when it was scheduled; only combined with other changes can it have become wrong.
        if (auto done = apply(scheduled_.front().changes); !done) std::cerr << done.error().message() << '\n';
        scheduled_.erase(scheduled_.begin());
      }
      if (series_ && next_row_ <= now) {
        series_->add(emulator_.ab(), emulator_.ba(), now);
        while (next_row_ <= now) next_row_ += interval_;
      }
    }
  }

  [[nodiscard]] std::string figures() const {
    const TimePoint now = clock_now();
    return to_json(emulator_.ab(), emulator_.ba(), now, now - start_);
  }

 private:
  void wait() {
    std::vector<pollfd> events = control_.interests();
    events.push_back({.fd = signals_, .events = POLLIN});
    TimePoint next = series_ ? next_row_ : kNever;
    if (!scheduled_.empty()) next = std::min(next, scheduled_.front().when);
    const Duration left = std::max(next - clock_now(), Duration(0));
    const timespec timeout{.tv_sec = left / 1s, .tv_nsec = (left % 1s).count()};
    if (ppoll(events.data(), events.size(), next == kNever ? nullptr : &timeout, nullptr) <= 0) return;
    if (events.back().revents != 0) finished_ = true;
    control_.serve([this](std::string_view command) { return answer(command); });
  }

  [[nodiscard]] Result<void> apply(std::string_view changes) {
    TUSK_ASSIGN(const PathParameters parameters, with_changes(emulator_.parameters(), changes));
    emulator_.change(parameters);
    return {};
  }

  [[nodiscard]] std::string answer(std::string_view command) {
    const Result<void> done = execute(command);
    if (!done) return "error: " + done.error().message();
    return command == "stats" ? figures() : "ok";
  }

  [[nodiscard]] Result<void> execute(std::string_view command) {
    const auto take_word = [&command] {
      const std::string_view word = command.substr(0, command.find(' '));
      command.remove_prefix(std::min(word.size() + 1, command.size()));
      return word;
    };
    const std::string_view verb = take_word();
    if (verb == "stats") return {};
    if (verb == "set") return apply(command);
    if (verb == "outage") return apply("outage=" + std::string(command));
    if (verb == "at") {
      TUSK_ASSIGN(const Duration delay, parse_duration(take_word()));
      return schedule(clock_now() + delay, std::string(command));
    }
    if (verb == "quit") {
      finished_ = true;
      return {};
    }
    return fail(ErrorCode::kBadConfig, "no command is called \"" + std::string(verb) + "\"");
  }

  Emulator& emulator_;
  ControlSocket& control_;
  const int signals_;
  const TimePoint start_;
  std::vector<Scheduled> scheduled_;  // by time
  std::optional<TimeSeries> series_;
  Duration interval_{0};
  TimePoint next_row_ = kNever;
  bool finished_ = false;
};

// Signals that end the program become readable; blocked before any thread starts, so all threads inherit it.
Result<Descriptor> catch_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  Descriptor fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return fail_errno("signalfd");
  // A test that is killed must not leave a path behind.
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) raise(SIGTERM);
  return fd;
}

Result<void> run(const Arguments& arguments) {
  if (geteuid() != 0) return fail(from_errno(EPERM), "network namespaces need root");
  TUSK_ASSIGN(const PathParameters parameters, initial_parameters(arguments));
  TUSK_ASSIGN(const Duration series_interval, parse_duration(arguments.series_interval));
  if (series_interval < 1ms) return fail(ErrorCode::kBadConfig, "--series-interval is below 1ms");
  EmulatorConfig config = arguments.emulator;
  TUSK_ASSIGN(config.memory, parse_size(arguments.memory));
  TUSK_ASSIGN(const Descriptor signals, catch_signals());
  setpriority(PRIO_PROCESS, 0, kNicePriority);

  remove_stale_runs();
  const int pid = getpid();
  TUSK_ASSIGN(const Namespace namespace_a, Namespace::create(namespace_name(arguments.topology, pid, 'a')));
  TUSK_ASSIGN(const Namespace namespace_b, Namespace::create(namespace_name(arguments.topology, pid, 'b')));
  EndConfig end_a{.subnet_high = static_cast<std::uint8_t>(pid >> 8),
                  .subnet_low = static_cast<std::uint8_t>(pid),
                  .host = 1,
                  .mtu = config.mtu,
                  .tcp_congestion_control = arguments.congestion_control};
  EndConfig end_b = end_a;
  end_b.host = 2;
  TUSK_ASSIGN(TunDevice device_a, TunDevice::create(namespace_a, end_a));
  TUSK_ASSIGN(TunDevice device_b, TunDevice::create(namespace_b, end_b));
  TUSK_ASSIGN(
      ControlSocket control,
      ControlSocket::listen(arguments.control.empty() ? default_control_path(pid) : arguments.control));
  const TimePoint start = clock_now();
  Emulator emulator(parameters, config, device_a, device_b);
  Session session(emulator, control, signals.number(), start);
  for (const auto& [time, changes] : arguments.schedule) {
    TUSK_ASSIGN(const Duration after, parse_duration(time));
    TUSK_TRY(session.schedule(start + after, changes));
  }
  if (!arguments.series.empty()) {
    TUSK_ASSIGN(TimeSeries series, TimeSeries::create(arguments.series, start));
    session.record(std::move(series), series_interval);
  }
  std::cout << "ready " << namespace_a.name() << ' ' << namespace_b.name() << ' ' << end_a.ipv4() << ' '
            << end_b.ipv4() << std::endl;
  session.run();
  std::cout << session.figures() << std::endl;
  return {};
}

}  // namespace
}  // namespace tusk::wan

int main(int argc, char** argv) {
  using namespace tusk;
  wan::Arguments arguments;
  CLI::App app(wan::kDescription, "tusk-wan");
  wan::declare(app, arguments);
  CLI11_PARSE(app, argc, argv);
  if (!arguments.send.empty()) {
    const Result<std::string> reply = wan::send_command(arguments.control, arguments.send);
    std::cout << (reply ? *reply : "error: " + reply.error().message()) << std::endl;
    return reply && !reply->starts_with("error") ? 0 : 1;
  }
  if (const Result<void> done = wan::run(arguments); !done) {
    std::cerr << "tusk-wan: " << done.error().message() << std::endl;
    return 1;
  }
  return 0;
}
