#include "tests/support/sim_server_front.h"

#include <array>

#include "proto/rpc/strangers.h"

namespace tusk::support {
namespace {

std::array<std::byte, 8> address_bytes(SimAddress address) {
  std::array<std::byte, 8> bytes;
  ByteWriter(bytes).u64(address);
  return bytes;
}

constexpr Duration kBlockedTick = 10ms;

// The wall clock, as far as tokens know one: it began long ago.
crypto::UnixSeconds wall_clock(TimePoint now) {
  constexpr std::uint64_t kStart = 1'700'000'000;
  return crypto::UnixSeconds(
      kStart + static_cast<std::uint64_t>(
                   std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count()));
}

}  // namespace

SimServerFront::SimServerFront(const crypto::Identity& identity, transport::ConnectionConfig config,
                               std::optional<crypto::KeyLimits> key_limits, Send send)
    : identity_(identity),
      config_(std::move(config)),
      key_limits_(key_limits),
      send_(std::move(send)),
      tokens_(identity.derive_secret("tusk address token")),
      reset_secret_(identity.derive_secret("tusk reset token")) {}

void SimServerFront::handle_datagram(TimePoint now, SimAddress from, std::span<std::byte> datagram,
                                     std::uint8_t ecn) {
  const auto is_long = wire::is_long_packet(datagram);
  if (!is_long) return void(++counters_.dropped);
  wire::ConnectionIdBytes to;
  if (*is_long) {
    const auto parsed = wire::parse_long_header(datagram);
    if (!parsed) return void(++counters_.dropped);
    to = parsed->header.to;
  } else {
    const auto parsed = wire::parse_short_header(datagram);
    if (!parsed) return void(++counters_.dropped);
    to = parsed->header.to;
  }
  const bool young = secure_ && !secure_->established();
  if (!secure_ || (to != secure_->own_id() && !(young && to == secure_->original_id())))
    return handle_stranger(now, from, datagram, ecn);
  const std::size_t size = datagram.size();
  if (secure_->handle_datagram(now, datagram, ecn)) follow_address(now, from, size);
}

void SimServerFront::handle_stranger(TimePoint now, SimAddress from, std::span<std::byte> datagram,
                                     std::uint8_t ecn) {
  const rpc::Stranger stranger = rpc::judge_stranger(datagram);
  switch (stranger.wants) {
    case rpc::Stranger::Wants::kNothing:
      return void(++counters_.dropped);
    case rpc::Stranger::Wants::kReset:
      return send_reset(from, stranger.to);
    case rpc::Stranger::Wants::kAnotherVersion:
      ++counters_.version_negotiations;
      return send_long(from, rpc::another_version(stranger.header));
    case rpc::Stranger::Wants::kConnection:
      return greet(now, from, datagram, ecn, stranger.header);
  }
}

void SimServerFront::greet(TimePoint now, SimAddress from, std::span<std::byte> datagram, std::uint8_t ecn,
                           const wire::LongHeader& header) {
  const auto address = address_bytes(from);
  const bool again = crypto::token_kind(header.token) == crypto::AddressTokenKind::kRetry;
  const std::span<const std::byte> id = again ? std::span(header.to.bytes) : std::span<const std::byte>();
  if (!tokens_.check(header.token, address, id, wall_clock(now))) {
    const auto token =
        tokens_.mint(crypto::AddressTokenKind::kRetry, address, header.to.bytes, wall_clock(now));
    ++counters_.retries;
    return send_long(from, rpc::retry_with(header, token));
  }
  // One client at a time: a second one has to wait until the first is gone.
  if (secure_ && !secure_->closed()) return void(++counters_.dropped);
  auto secure = rpc::SecureConnection::server(
      {identity_, header.to, header.from, rpc::random_connection_id(), config_, key_limits_}, now);
  TUSK_CHECK(secure.has_value());
  if (!(*secure)->handle_datagram(now, datagram, ecn)) return void(++counters_.dropped);
  secure_ = std::move(*secure);
  route_ = {from, true, datagram.size()};
  ++counters_.connections;
}

void SimServerFront::follow_address(TimePoint now, SimAddress from, std::size_t size) {
  if (from == route_.where()) return route_.handle_received(size);
  if (!secure_->established() || !secure_->last_was_newest()) return;
  if (route_.move(from, size)) {
    secure_->connection().challenge_path(now);
  } else {
    secure_->connection().forget_challenge();
  }
}

void SimServerFront::transmit(TimePoint now) {
  if (!secure_) return;
  std::array<std::byte, wire::kDatagramSizeMax> bytes;
  if (route_.unproven() && secure_->established()) secure_->connection().hold_back();
  for (;;) {
    const bool unproven = route_.unproven();
    blocked_ = unproven && route_.budget() < wire::kDatagramSizeMin;
    if (blocked_ && route_.budget() < rpc::SecureConnection::kDatagramRoomMin) return;
    const ByteCount room = unproven ? std::min<ByteCount>(route_.budget(), bytes.size()) : bytes.size();
    const auto datagram = secure_->poll_datagram(now, std::span(bytes).first(room));
    if (!datagram) return;
    if (unproven) route_.budget() -= std::min<ByteCount>(route_.budget(), datagram->size);
    send_(route_.where(), std::span(bytes).first(datagram->size));
  }
}

TimePoint SimServerFront::next_timeout(TimePoint now) const {
  if (!secure_) return kNever;
  const TimePoint next = secure_->next_timeout();
  // What may not go out now waits for the client's next packet; time alone brings nothing but timeouts.
  return blocked_ ? std::max(next, now + kBlockedTick) : next;
}

void SimServerFront::welcome(TimePoint now) {
  secure_->connection().send_address_token(
      tokens_.mint(crypto::AddressTokenKind::kFuture, address_bytes(route_.trusted()), {}, wall_clock(now)));
  secure_->connection().send_reset_token(reset_token(secure_->own_id()));
}

void SimServerFront::handle_path_event(const transport::Event& event) {
  if (std::holds_alternative<transport::PathValidated>(event)) {
    (void)route_.handle_validated(secure_->connection().path_challenge_pending());
  } else if (std::holds_alternative<transport::PathFailed>(event)) {
    route_.handle_failed();
  }
}

std::vector<std::byte> SimServerFront::reset_token(const wire::ConnectionIdBytes& id) const {
  const auto digest = crypto::hmac_sha256(reset_secret_.bytes, id.bytes);
  return {digest.begin(), digest.begin() + wire::kResetTokenSize};
}

void SimServerFront::send_reset(SimAddress to, const wire::ConnectionIdBytes& unknown) {
  const auto token = reset_token(unknown);
  ++counters_.resets;
  send_long(to, rpc::reset_of(unknown, token));
}

void SimServerFront::send_long(SimAddress to, const wire::LongHeader& header) {
  std::array<std::byte, 256> bytes;
  const std::size_t size = wire::write_long_header(header, bytes);
  send_(to, std::span(bytes).first(size));
}

}  // namespace tusk::support
