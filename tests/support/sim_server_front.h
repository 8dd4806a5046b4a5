// A server's door in virtual time: strangers get a retry, a version negotiation, a reset or nothing;
// who has proven an address gets a SecureConnection. What strangers get and where a client is are the real
// server's types (rpc/strangers.h, rpc/client_route.h). The rest must do as rpc/server_shard*.cc do, with an
// address that is a number, for one client at a time: welcome(), follow_address(), what an unproven address
// is sent. It differs in that it takes no address on trust, and that its tokens name no port.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "proto/crypto/address_token.h"
#include "proto/rpc/client_route.h"
#include "proto/rpc/secure_connection.h"
#include "tests/support/sim_path.h"

namespace tusk::support {

class SimServerFront {
 public:
  using Send = std::function<void(SimAddress to, std::span<std::byte> datagram)>;

  SimServerFront(const crypto::Identity& identity, transport::ConnectionConfig config,
                 std::optional<crypto::KeyLimits> key_limits, Send send);

  void handle_datagram(TimePoint now, SimAddress from, std::span<std::byte> datagram, std::uint8_t ecn);
  // Sends what the connection has to send, as far as the client's address is proven.
  void transmit(TimePoint now);
  // The connection is established: gives the client its tokens.
  void welcome(TimePoint now);
  // When there is something to do; kNever: nothing by itself.
  [[nodiscard]] TimePoint next_timeout(TimePoint now) const;
  void handle_path_event(const transport::Event& event);
  // As after a restart: tokens stay valid, the connection is unknown.
  void forget_connection() { secure_.reset(); }

  [[nodiscard]] rpc::SecureConnection* secure() { return secure_.get(); }
  [[nodiscard]] const rpc::SecureConnection* secure() const { return secure_.get(); }
  [[nodiscard]] SimAddress client_address() const { return route_.where(); }

  struct Counters {
    std::uint64_t retries = 0;
    std::uint64_t resets = 0;
    std::uint64_t version_negotiations = 0;
    std::uint64_t connections = 0;  // ever made
    std::uint64_t dropped = 0;      // strangers' datagrams without an answer
  };
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  void handle_stranger(TimePoint now, SimAddress from, std::span<std::byte> datagram, std::uint8_t ecn);
  void greet(TimePoint now, SimAddress from, std::span<std::byte> datagram, std::uint8_t ecn,
             const wire::LongHeader& header);
  void follow_address(TimePoint now, SimAddress from, std::size_t size);
  void send_reset(SimAddress to, const wire::ConnectionIdBytes& unknown);
  void send_long(SimAddress to, const wire::LongHeader& header);
  [[nodiscard]] std::vector<std::byte> reset_token(const wire::ConnectionIdBytes& id) const;

  const crypto::Identity& identity_;
  const transport::ConnectionConfig config_;
  const std::optional<crypto::KeyLimits> key_limits_;
  const Send send_;
  const crypto::AddressTokens tokens_;
  const crypto::Secret reset_secret_;

  std::unique_ptr<rpc::SecureConnection> secure_;
  rpc::ClientRoute<SimAddress> route_;
  bool blocked_ = false;  // there may be more to send than the budget allows
  Counters counters_;
};

}  // namespace tusk::support
