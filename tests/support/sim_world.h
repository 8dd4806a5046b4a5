// Two peers, the path between them and the programs above them in virtual time: a run is a function of
// its seed and its options. What the peers are made of is the derived class's business: the bare
// transport (sim_pair.h), or the transport with keys and a server's front (sim_secure_pair.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "proto/base/random.h"
#include "proto/base/time.h"
#include "proto/transport/connection.h"
#include "tests/support/sim_path.h"
#include "tests/support/sim_traffic.h"

namespace tusk::support {

struct SimOptions {
  std::uint64_t seed = 1;
  SimPath::Options path;
  transport::ConnectionConfig connection;  // of both sides; its seed is overwritten
  Duration handshake_rtt{};                // bare transport: what the handshake measured; 0: unknown
  Duration server_clock_ahead{};           // the two clocks have nothing in common
  Duration begin{};                        // when this pair comes into being
  // Bare transport: the programs of both ends are kept from running so often, for so long (means): a busy
  // machine. 0: never.
  Duration stall_every{};
  Duration stall_length{};
  std::shared_ptr<SimPath::Links> links;  // shared with other pairs (sim_network.h); none: its own
};

// What a server lets a client have on its way once it has answered (proto/rpc/server_shard_strangers.cc): for
// SimOptions' connection.credit.request_bytes_later, where more is stored than the 64 MiB of the start.
constexpr ByteCount kServerCredit = ByteCount{768} << 20;

// Both directions with the same parameters: `rate` bit/s, `rtt` split in two, a queue of `queue`.
[[nodiscard]] SimOptions symmetric_path(std::uint64_t rate, Duration rtt, double loss, Duration queue,
                                        std::uint64_t seed);

class SimWorld {
 public:
  SimWorld(const SimWorld&) = delete;
  SimWorld& operator=(const SimWorld&) = delete;
  virtual ~SimWorld() = default;

  [[nodiscard]] TimePoint now() const { return now_; }
  [[nodiscard]] Duration elapsed() const { return now_ - TimePoint(); }
  [[nodiscard]] Random& random() { return random_; }

  // ------------------------------------------------ what happens when
  // Runs `action` at `at`, between packets.
  void schedule(TimePoint at, std::function<void()> action);
  void after(Duration delay, std::function<void()> action) { schedule(now_ + delay, std::move(action)); }
  // Again and again, from now on, for ever.
  void every(Duration interval, std::function<void()> action);
  void change_links(const std::function<void(LinkParameters& to_server, LinkParameters& to_client)>& edit);
  [[nodiscard]] SimPath& path() { return path_; }
  [[nodiscard]] const SimPath& path() const { return path_; }

  // ------------------------------------------------ traffic
  [[nodiscard]] SimTraffic& traffic() { return traffic_; }
  [[nodiscard]] const SimTraffic& traffic() const { return traffic_; }
  void fetch(ByteCount size, wire::Priority priority = wire::Priority::kBulk, SimTraffic::Done done = {}) {
    traffic_.call(
        {SimTraffic::Kind::kFetch, size, priority, SimTraffic::kHeaderUsual, Role::kClient, std::move(done)});
  }
  void store(ByteCount size, wire::Priority priority = wire::Priority::kBulk, SimTraffic::Done done = {}) {
    traffic_.call(
        {SimTraffic::Kind::kStore, size, priority, SimTraffic::kHeaderUsual, Role::kClient, std::move(done)});
  }

  // ------------------------------------------------ running
  // Until `done` holds or the virtual time since the start passes `limit`; the result says which.
  bool run_until(const std::function<bool()>& done, Duration limit);
  void run_for(Duration duration);
  // Until all calls are answered and both sides have forgotten them, within `limit` since the start.
  bool run_to_rest(Duration limit);
  // For who runs several worlds: sends what is due and says when the next thing happens ...
  [[nodiscard]] TimePoint next_event();
  // ... makes it happen; false: `deadline` comes first ...
  bool step(TimePoint deadline);
  // ... or lets time pass in which nothing happens.
  void advance(TimePoint to) { now_ = std::max(now_, to); }
  // Nothing is asked, answered or unacknowledged.
  [[nodiscard]] bool at_rest() const;

  // ------------------------------------------------ judging
  // One sentence for each thing that must never be, in any run; empty: all is well.
  [[nodiscard]] std::vector<std::string> complaints() const;
  // The most that both sides together held unsent or unacknowledged.
  [[nodiscard]] ByteCount held_max() const { return held_max_; }
  // Of everything that arrived and when: equal for equal seeds.
  [[nodiscard]] std::uint64_t event_hash() const { return event_hash_; }
  // nullptr: none (yet).
  [[nodiscard]] virtual transport::Connection* connection(Role side) = 0;
  [[nodiscard]] const transport::Connection* connection(Role side) const {
    return const_cast<SimWorld*>(this)->connection(side);
  }

 protected:
  explicit SimWorld(const SimOptions& options);

  // The five things that peers do; all at now().
  virtual void transmit() = 0;
  virtual void deliver(const SimPath::Arrival& arrival) = 0;
  virtual void handle_events() = 0;
  [[nodiscard]] virtual TimePoint next_timeout() const = 0;
  virtual void handle_timeouts() = 0;

 private:
  // No correct world does so much in one nanosecond.
  static constexpr int kTurnsWithoutTimeMax = 100'000;
  static constexpr Duration kSampling = 10ms;

  struct Action {
    TimePoint at;
    std::uint64_t order;
    std::function<void()> run;
    bool operator>(const Action& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  void mix(std::uint64_t value);
  void sample_held();

  Random random_;
  TimePoint now_{};
  SimPath path_;
  SimTraffic traffic_;
  std::priority_queue<Action, std::vector<Action>, std::greater<>> actions_;
  std::uint64_t order_ = 0;
  std::uint64_t event_hash_ = 0xcbf29ce484222325;
  int turns_without_time_ = 0;
  bool stuck_ = false;
  TimePoint sample_at_{};
  ByteCount held_max_ = 0;
  ByteCount windows_max_ = 0;  // of both sides together
};

}  // namespace tusk::support
