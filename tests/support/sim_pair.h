// Two bare connections in virtual time: the transport's plaintext core alone, without keys and sockets.
// Packets keep the size that sealing and IP would give them. A damaged packet is dropped, as the AEAD
// would do.
#pragma once

#include <array>
#include <functional>
#include <memory>

#include "proto/wire/frame.h"
#include "tests/support/sim_world.h"

namespace tusk::support {

class SimPair final : public SimWorld {
 public:
  explicit SimPair(const SimOptions& options);

  [[nodiscard]] transport::Connection& client() { return *connections_[0]; }
  [[nodiscard]] transport::Connection& server() { return *connections_[1]; }
  [[nodiscard]] transport::Connection* connection(Role side) override {
    return connections_[static_cast<std::size_t>(side)].get();
  }

  // Decides by a packet's frames whether it is lost.
  using Predicate = std::function<bool(std::span<const wire::Frame>)>;
  // Loses the next `count` packets to `receiver` for which `predicate` holds.
  void lose(Role receiver, int count, Predicate predicate);

  // Deliberately broken, to show that the judges would notice:
  // whatever is sent a second time never arrives.
  void sabotage_repairs();

 protected:
  void transmit() override;
  void deliver(const SimPath::Arrival& arrival) override;
  void handle_events() override;
  [[nodiscard]] TimePoint next_timeout() const override;
  void handle_timeouts() override;

 private:
  [[nodiscard]] TimePoint local(Role side) const {
    return side == Role::kServer ? now() + server_ahead_ : now();
  }
  [[nodiscard]] TimePoint next_timeout(Role side) const;

  struct Packet {
    wire::PacketNumber number;
    std::vector<std::byte> payload;
    std::uint32_t size = 0;
    bool marked = false;
  };
  // What happens to a program that the machine keeps from running: packets wait, timers are late.
  struct Program {
    TimePoint asleep_until{};
    std::vector<Packet> waiting;
  };
  [[nodiscard]] bool asleep(Role side) const {
    return programs_[static_cast<std::size_t>(side)].asleep_until > now();
  }
  void stall_later(Role side);
  void wake(Role side);

  const Duration server_ahead_;
  const Duration stall_every_;
  const Duration stall_length_;
  Random stalls_;
  std::array<Program, 2> programs_;                                    // by Role
  std::array<std::unique_ptr<transport::Connection>, 2> connections_;  // by Role
};

}  // namespace tusk::support
