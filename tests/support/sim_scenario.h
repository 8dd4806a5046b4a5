// A whole run from one number: which path, how it changes, what is asked over it. Every seed is another
// combination of all that paths and programs can do; the judges are the same for all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/sim_world.h"

namespace tusk::support {

struct SimScenario {
  struct Change {
    Duration at{};
    LinkParameters to_server;
    LinkParameters to_client;
    std::uint32_t mtu = 1500;
    bool client_moves = false;  // with keys only
  };

  bool secure = false;  // with keys; else the bare transport
  SimOptions options;
  std::vector<Change> changes;  // by time

  std::uint64_t calls_max = 0;
  ByteCount bytes_max = 0;  // no new call beyond
  std::uint64_t parallel = 1;
  double fetch_share = 0.5;
  double small_share = 0.5;  // of calls: interactive, up to 8 KiB
  double server_share = 0;   // of calls: the server asks
  double cancel_share = 0;   // of calls: given up before they are answered
  ByteCount bulk_size_max = 1 << 20;
  Duration thinking{};

  Duration limit{};  // of virtual time; longer is a stall
};

// Deliberate faults of the harness itself, which every judge must notice.
enum class Sabotage : std::uint8_t { kNone, kRepairsVanish, kDamageAccepted };

struct SimReport {
  std::vector<std::string> complaints;  // empty: all is well
  Duration elapsed{};
  ByteCount bytes = 0;
  std::uint64_t calls = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t packets = 0;  // of both sides
  std::uint64_t lost = 0;
  std::uint64_t spurious = 0;
  ByteCount held_max = 0;
  std::uint64_t event_hash = 0;
};

[[nodiscard]] SimScenario random_scenario(std::uint64_t seed, bool secure);

// Called with the world at the start, to watch it.
using SimObserver = std::function<void(SimWorld&)>;
[[nodiscard]] SimReport run_scenario(const SimScenario& scenario, Sabotage sabotage = Sabotage::kNone,
                                     const SimObserver& observer = {});

// For people: several lines.
[[nodiscard]] std::string describe(const SimScenario& scenario);
[[nodiscard]] std::string describe(const SimReport& report);
// One line.
[[nodiscard]] std::string describe(const LinkParameters& link);

}  // namespace tusk::support
