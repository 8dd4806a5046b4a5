// A client and a server with real TLS and AEAD in virtual time, the server behind its door
// (sim_server_front.h), the client behind an address that can change. Datagrams are those of the wire,
// so they can be recorded, damaged, forged and replayed.
#pragma once

#include <memory>
#include <optional>

#include "proto/rpc/secure_connection.h"
#include "tests/support/sim_random.h"
#include "tests/support/sim_server_front.h"
#include "tests/support/sim_world.h"

namespace tusk::support {

struct SecureOptions {
  SimOptions world;
  std::optional<crypto::Fingerprint> expected_server = {};  // else the server's own
  std::optional<crypto::KeyLimits> key_limits = {};         // of both sides
  std::vector<std::byte> address_token = {};                // of an earlier connection
};

class SecurePair final : public SimWorld {
 public:
  explicit SecurePair(SecureOptions options);

  [[nodiscard]] transport::Connection* connection(Role side) override;
  [[nodiscard]] rpc::SecureConnection* secure(Role side) {
    return side == Role::kClient ? client_.get() : front_.secure();
  }
  [[nodiscard]] rpc::SecureConnection& client() { return *client_; }
  [[nodiscard]] SimServerFront& front() { return front_; }

  // Runs until both sides are established or one has failed; true: established.
  bool connect(Duration limit);
  [[nodiscard]] bool established(Role side) const {
    return established_at_[static_cast<std::size_t>(side)] != kNever;
  }
  [[nodiscard]] TimePoint established_at(Role side) const {
    return established_at_[static_cast<std::size_t>(side)];
  }

  // From now on the client sends from another address; nothing sent to the old one arrives.
  void move_client() { ++client_address_; }
  [[nodiscard]] SimAddress client_address() const { return client_address_; }

  // Puts a datagram of an attacker's on the path.
  void forge(Role receiver, std::span<const std::byte> datagram, std::optional<SimAddress> address = {});

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
  void handle_event(Role side, rpc::SecureConnection::Event& event);
  void send(Role receiver, SimAddress address, std::span<std::byte> datagram);

  SeededCrypto crypto_;  // before all that draws from it
  const Duration server_ahead_;
  const crypto::Identity server_identity_;
  const crypto::Identity client_identity_;
  SimAddress client_address_ = 1;
  std::unique_ptr<rpc::SecureConnection> client_;
  SimServerFront front_;
  std::array<TimePoint, 2> established_at_{kNever, kNever};
};

}  // namespace tusk::support
