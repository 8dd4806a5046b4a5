#include "tests/support/sim_secure_pair.h"

#include <algorithm>
#include <array>

namespace tusk::support {
namespace {

constexpr std::uint8_t kEcnCongestionExperienced = 3;
constexpr std::uint64_t kCryptoStream = 0xc0de;

crypto::Identity new_identity() {
  auto identity = crypto::Identity::generate();
  TUSK_CHECK(identity.has_value());
  return *identity;
}

transport::ConnectionConfig config_of(const SimOptions& options, Role role) {
  transport::ConnectionConfig config = options.connection;
  config.seed = options.seed + static_cast<std::uint64_t>(role);
  return config;
}

}  // namespace

SecurePair::SecurePair(SecureOptions options)
    : SimWorld(options.world),
      crypto_(options.world.seed ^ kCryptoStream),
      server_ahead_(options.world.server_clock_ahead),
      server_identity_(new_identity()),
      client_identity_(new_identity()),
      front_(server_identity_, config_of(options.world, Role::kServer), options.key_limits,
             [this](SimAddress to, std::span<std::byte> datagram) { send(Role::kClient, to, datagram); }) {
  auto client = rpc::SecureConnection::client(
      {client_identity_, options.expected_server.value_or(server_identity_.fingerprint()),
       options.address_token, config_of(options.world, Role::kClient), options.key_limits},
      now());
  TUSK_CHECK(client.has_value());
  client_ = std::move(*client);
}

transport::Connection* SecurePair::connection(Role side) {
  rpc::SecureConnection* secure = this->secure(side);
  return secure && secure->established() ? &secure->connection() : nullptr;
}

bool SecurePair::connect(Duration limit) {
  const auto settled = [this] {
    return (established(Role::kClient) && established(Role::kServer)) || !traffic().closed().empty();
  };
  return run_until(settled, limit) && traffic().closed().empty();
}

void SecurePair::forge(Role receiver, std::span<const std::byte> datagram,
                       std::optional<SimAddress> address) {
  path().inject(now(), receiver, datagram, static_cast<std::uint32_t>(datagram.size()),
                address.value_or(client_address_));
}

void SecurePair::send(Role receiver, SimAddress address, std::span<std::byte> datagram) {
  path().send(now(), receiver, datagram, static_cast<std::uint32_t>(datagram.size()), address);
}

void SecurePair::transmit() {
  std::array<std::byte, wire::kDatagramSizeMax> bytes;
  while (const auto datagram = client_->poll_datagram(now(), bytes))
    send(Role::kServer, client_address_, std::span(bytes).first(datagram->size));
  front_.transmit(local(Role::kServer));
}

void SecurePair::deliver(const SimPath::Arrival& arrival) {
  const std::uint8_t ecn = arrival.marked ? kEcnCongestionExperienced : 0;
  if (arrival.receiver == Role::kServer) {
    front_.handle_datagram(local(Role::kServer), arrival.address, arrival.bytes, ecn);
  } else if (arrival.address == client_address_) {
    client_->handle_datagram(now(), arrival.bytes, ecn);
  }
}

void SecurePair::handle_events() {
  for (const Role side : {Role::kClient, Role::kServer}) {
    rpc::SecureConnection* secure = this->secure(side);
    if (!secure) continue;
    while (auto event = secure->poll_event()) handle_event(side, *event);
  }
}

void SecurePair::handle_event(Role side, rpc::SecureConnection::Event& event) {
  if (std::holds_alternative<rpc::SecureConnection::Established>(event)) {
    established_at_[static_cast<std::size_t>(side)] = now();
    traffic().attach(side, secure(side)->connection());
    if (side == Role::kServer) front_.welcome(local(side));
    return;
  }
  auto& transport_event = std::get<transport::Event>(event);
  if (side == Role::kServer) front_.handle_path_event(transport_event);
  traffic().handle_event(side, transport_event);
}

TimePoint SecurePair::next_timeout() const {
  TimePoint server = front_.next_timeout(local(Role::kServer));
  if (server != kNever) server = server < TimePoint(server_ahead_) ? TimePoint() : server - server_ahead_;
  return std::min(client_->next_timeout(), server);
}

void SecurePair::handle_timeouts() {
  for (const Role side : {Role::kClient, Role::kServer}) {
    rpc::SecureConnection* secure = this->secure(side);
    if (secure && secure->next_timeout() <= local(side)) secure->handle_timeout(local(side));
  }
}

}  // namespace tusk::support
