// The running path: one thread a direction between two packet devices, changes at set times, figures.
//
// Knows nothing of namespaces, command lines or sockets.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>

#include "tests/system/wan/network.h"
#include "tests/system/wan/settings.h"

namespace tusk::wan {

struct EmulatorConfig {
  std::uint64_t seed = 1;
  std::size_t mtu = 1500;
  ByteCount memory = 512 * 1024 * 1024;  // for packets under way, each direction; used when needed
  bool realtime = true;                  // threads run before ordinary ones, as a real path would
};

// CLOCK_MONOTONIC.
[[nodiscard]] TimePoint clock_now();

// A direction and the thread that pumps it.
class Lane {
 public:
  struct Figures {
    DirectionStatistics statistics;
    Duration cpu{0};  // used by the thread
    // It wanted to look for packets, or to deliver some, and was not running, kStoodStillMin or longer each
    // time: the machine was stopped, or ran something else. What the path could not carry then is nobody
    // else's fault.
    Duration stood_still{0};
  };

  Lane(const support::LinkParameters& parameters, const EmulatorConfig& config, std::uint64_t seed,
       TunDevice& source, TunDevice& sink);
  ~Lane();  // stops the thread
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Any thread. Takes effect before the next packet.
  void change(const support::LinkParameters& parameters);
  // Any thread. As of the last time the lane ran: while nothing moves, figures do not change either.
  [[nodiscard]] Figures figures() const;

 private:
  static constexpr Duration kStoodStillMin = std::chrono::milliseconds(5);

  void run();
  void exchange(TimePoint now);
  void note_late(TimePoint now);
  void wait(TimePoint now, const Direction::Pumped& pumped);
  [[nodiscard]] bool is_busy(TimePoint now, std::size_t handled);

  const bool realtime_;
  TunDevice& source_;
  TunDevice& sink_;
  Descriptor wake_;  // an eventfd
  std::atomic<bool> stopping_ = false;

  mutable std::mutex mutex_;
  std::optional<support::LinkParameters> wanted_;  // protected by mutex_
  Figures figures_;                                // protected by mutex_

  // Of the thread alone.
  Direction direction_;
  Duration nap_{0};
  TimePoint wanted_at_ = kNever;  // to run again
  Duration stood_still_{0};
  TimePoint window_start_{};
  std::size_t window_packets_ = 0;
  bool busy_ = false;

  std::thread thread_;  // last: starts when all else is there
};

class Emulator {
 public:
  // The devices outlive the emulator.
  Emulator(const PathParameters& parameters, const EmulatorConfig& config, TunDevice& a, TunDevice& b);

  void change(const PathParameters& parameters);
  [[nodiscard]] const PathParameters& parameters() const { return parameters_; }

  [[nodiscard]] Lane::Figures ab() const { return ab_.figures(); }
  [[nodiscard]] Lane::Figures ba() const { return ba_.figures(); }

 private:
  PathParameters parameters_;
  Lane ab_;
  Lane ba_;
};

}  // namespace tusk::wan
