#include "proto/rpc/secure_connection.h"

#include <algorithm>

#include "proto/base/shared_bytes.h"

namespace tusk::rpc {
namespace {

using transport::Role;
using wire::LongType;

constexpr int kRetriesAnsweredMax = 3;
// A handshake that takes longer is given up by the server; a client has its own, configurable patience.
constexpr Duration kHandshakeTimeout = 10s;
constexpr std::uint8_t kEcnCongestionExperienced = 3;
// Packets of the previous key generation may be this many probe timeouts under way (RFC 9001 §6.5).
constexpr int kPreviousKeysProbeTimeouts = 3;

}  // namespace

wire::ConnectionIdBytes random_connection_id() {
  wire::ConnectionIdBytes id;
  crypto::random_bytes(id.bytes);
  return id;
}

Result<std::unique_ptr<SecureConnection>> SecureConnection::client(const ClientOptions& options,
                                                                   TimePoint now) {
  crypto::HandshakeOptions tls_options;
  tls_options.expected_server = options.expected_server;
  TUSK_ASSIGN(auto tls, crypto::Handshake::client(options.identity, tls_options));
  wire::ConnectionIdBytes original = random_connection_id();
  if (options.original_id_begins) original.bytes[0] = *options.original_id_begins;
  auto connection = std::unique_ptr<SecureConnection>(
      new SecureConnection(Role::kClient, std::move(tls), options.config, options.key_limits, original, now));
  connection->own_id_ = random_connection_id();
  connection->peer_id_ = original;
  connection->token_ = options.address_token;
  connection->stream_.send(connection->tls_->take_output());
  return connection;
}

Result<std::unique_ptr<SecureConnection>> SecureConnection::server(const ServerOptions& options,
                                                                   TimePoint now) {
  TUSK_ASSIGN(auto tls, crypto::Handshake::server(options.identity));
  auto connection = std::unique_ptr<SecureConnection>(new SecureConnection(
      Role::kServer, std::move(tls), options.config, options.key_limits, options.original_id, now));
  connection->own_id_ = options.own_id;
  connection->peer_id_ = options.client_id;
  return connection;
}

SecureConnection::SecureConnection(Role role, crypto::Handshake tls,
                                   const transport::ConnectionConfig& config,
                                   std::optional<crypto::KeyLimits> key_limits,
                                   const wire::ConnectionIdBytes& original_id, TimePoint now)
    : role_(role),
      config_(config),
      key_limits_(key_limits),
      tls_(std::move(tls)),
      handshake_seal_(crypto::PacketProtector::for_handshake(original_id.bytes, role == Role::kClient)),
      handshake_open_(crypto::PacketProtector::for_handshake(original_id.bytes, role == Role::kServer)),
      original_id_(original_id),
      started_at_(now) {}

void SecureConnection::fail(ErrorCode code, std::string reason) {
  if (closed_) return;
  closed_ = true;
  events_.push_back(transport::Event(transport::Closed{code, std::move(reason)}));
}

void SecureConnection::close(TimePoint, ErrorCode code, std::string_view reason) {
  if (closed()) return;
  if (connection_) return connection_->close(code, reason);
  close_code_ = code;
  close_reason_ = reason;
  closed_ = true;
}

// ---------------------------------------------------------------- datagrams in

bool SecureConnection::handle_datagram(TimePoint now, std::span<std::byte> datagram, std::uint8_t ecn) {
  last_was_newest_ = false;
  const auto is_long = wire::is_long_packet(datagram);
  if (!is_long) return ++drops_.malformed, false;
  return *is_long ? handle_long(now, datagram) : handle_short(now, datagram, ecn);
}

bool SecureConnection::handle_short(TimePoint now, std::span<std::byte> datagram, std::uint8_t ecn) {
  const auto parsed = wire::parse_short_header(datagram);
  if (!parsed || datagram.size() < parsed->size + wire::kTagSize) return ++drops_.malformed, false;
  if (!receive_keys_ || closed()) return ++drops_.unexpected, false;
  const wire::PacketNumber expected = connection_->expected_number();
  const wire::PacketNumber number = wire::expand_packet_number(parsed->header.packet_number_low, expected);
  const auto header = datagram.first(parsed->size);
  const auto sealed = datagram.subspan(parsed->size);
  if (!receive_keys_->open(number.value(), parsed->header.key_phase, header, sealed)) {
    if (receive_keys_->integrity_limit_reached())
      fail(ErrorCode::kAuthenticationFailed, "too many forged packets");
    return ++drops_.unauthenticated, false;
  }
  if (receive_keys_->generation() != receive_generation_) {
    receive_generation_ = receive_keys_->generation();
    drop_previous_at_ = now + kPreviousKeysProbeTimeouts * connection_->rtt().probe_timeout(Duration(25ms));
  }
  confirm();
  last_was_newest_ = number >= expected;
  connection_->handle_packet(now, number, sealed.first(sealed.size() - wire::kTagSize), datagram.size(),
                             ecn == kEcnCongestionExperienced);
  if (const auto largest = connection_->sent_packets().largest_acked())
    send_keys_->handle_acknowledged(largest->value());
  return true;
}

bool SecureConnection::handle_long(TimePoint now, std::span<std::byte> datagram) {
  const auto parsed = wire::parse_long_header(datagram);
  if (!parsed) return ++drops_.malformed, false;
  switch (parsed->header.type) {
    case LongType::kRetry:
      return handle_retry(parsed->header);
    case LongType::kVersionNegotiation:
      return handle_version_negotiation(parsed->header);
    case LongType::kReset:
      return handle_reset(parsed->header);
    case LongType::kHandshake:
      return handle_handshake_packet(now, *parsed, datagram);
  }
  return false;
}

bool SecureConnection::handle_retry(const wire::LongHeader& header) {
  // Only an answer to our first flight can be one, and it must know the id we chose for it.
  if (role_ != Role::kClient || heard_server_ || header.to != own_id_ || header.token.empty())
    return ++drops_.unexpected, false;
  // Nothing protects a retry, so any of them may be damaged or forged: the last one counts. But only the
  // first few are answered at once; then the token waits for the flight's next repetition.
  token_.assign(header.token.begin(), header.token.end());
  if (++retries_ <= kRetriesAnsweredMax) stream_.restart();
  return true;
}

bool SecureConnection::handle_version_negotiation(const wire::LongHeader& header) {
  if (role_ != Role::kClient || heard_server_ || header.to != own_id_) return ++drops_.unexpected, false;
  fail(ErrorCode::kVersionMismatch, "the server speaks another version of the protocol");
  return true;
}

bool SecureConnection::handle_reset(const wire::LongHeader& header) {
  if (role_ != Role::kClient || reset_token_.empty() || header.from != peer_id_ ||
      !crypto::constant_time_equal(header.token, reset_token_))
    return ++drops_.unexpected, false;
  fail(ErrorCode::kServerRestarted, "the server does not know this connection any more");
  return true;
}

bool SecureConnection::handle_handshake_packet(TimePoint now, const wire::ParsedLong& parsed,
                                               std::span<std::byte> datagram) {
  if (datagram.size() < parsed.size + wire::kTagSize) return ++drops_.malformed, false;
  const auto sealed = datagram.subspan(parsed.size);
  if (!handshake_open_.open(parsed.header.packet_number_low, datagram.first(parsed.size), sealed))
    return ++drops_.unauthenticated, false;
  if (role_ == Role::kClient) {
    if (heard_server_ && parsed.header.from != peer_id_) return ++drops_.unexpected, false;
    heard_server_ = true;
    peer_id_ = parsed.header.from;
  }
  handle_handshake_frames(now, sealed.first(sealed.size() - wire::kTagSize));
  return true;
}

void SecureConnection::handle_handshake_frames(TimePoint now, std::span<const std::byte> payload) {
  ByteReader reader(payload);
  while (!reader.at_end() && !closed_) {
    const auto frame = wire::read_frame(reader);
    Result<void> handled;
    if (!frame) {
      handled = tusk::fail(ErrorCode::kMalformed, "a malformed handshake frame");
    } else if (const auto* crypto = std::get_if<wire::CryptoFrame>(&*frame)) {
      // Once both sides have the keys TLS has nothing more to hear, and anybody who saw the ids can forge
      // this: the peer is told again what has come, its bytes go nowhere.
      if (confirmed_) {
        stream_.acknowledge_again();
      } else {
        handled = stream_.handle_frame(now, *crypto);
      }
    } else if (const auto* ack = std::get_if<wire::CryptoAckFrame>(&*frame)) {
      handled = stream_.handle_frame(now, *ack);
    } else if (!std::holds_alternative<wire::PaddingFrame>(*frame)) {
      handled = tusk::fail(ErrorCode::kMalformed, "a frame that has no place in a handshake");
    }
    // Anybody can forge these packets: a bad one is dropped, it does not end the handshake.
    if (!handled) {
      ++drops_.malformed;
      return;
    }
  }
  advance_handshake(now);
}

void SecureConnection::advance_handshake(TimePoint now) {
  if (confirmed_) return;
  const std::vector<std::byte> received = stream_.take_received();
  if (received.empty()) return;
  const Result<void> handled = tls_->handle_bytes(received);
  stream_.send(tls_->take_output());  // the next flight, or the alert that says why not
  if (!handled) {
    close_code_ = handled.error().code;
    return fail(handled.error().code, handled.error().context);
  }
  if (tls_->complete() && !connection_) establish(now);
}

// TLS has nothing more to hear or to say.
void SecureConnection::confirm() {
  confirmed_ = true;
  tls_.reset();
}

void SecureConnection::establish(TimePoint now) {
  Result<crypto::Secrets> secrets = tls_->export_secrets(original_id_.bytes);
  if (!secrets) return fail(secrets.error().code, secrets.error().context);
  const bool client = role_ == Role::kClient;
  const crypto::KeyLimits limits = key_limits_.value_or(crypto::key_limits(secrets->cipher));
  const crypto::Secret& outbound = client ? secrets->client_to_server : secrets->server_to_client;
  const crypto::Secret& inbound = client ? secrets->server_to_client : secrets->client_to_server;
  send_keys_.emplace(secrets->cipher, outbound, limits);
  receive_keys_.emplace(secrets->cipher, inbound, limits);
  connection_ = std::make_unique<transport::Connection>(role_, config_, now,
                                                        stream_.round_trip().value_or(Duration(0)));
  peer_fingerprint_ = tls_->peer_fingerprint();
  if (!client) confirm();
  events_.push_back(Established{});
}

// ---------------------------------------------------------------- datagrams out

std::optional<SecureConnection::Outgoing> SecureConnection::poll_datagram(TimePoint now,
                                                                          std::span<std::byte> out) {
  // A handshake that failed still sends its alert, once.
  if (closed_ && (connection_ || close_sent_ || close_code_ == ErrorCode::kOk)) return std::nullopt;
  if ((!confirmed_ || stream_.has_frames()) && out.size() >= wire::kDatagramSizeMin)
    if (auto handshake = poll_handshake(now, out)) return handshake;
  if (!connection_ || closed_) return std::nullopt;

  if (send_keys_->should_update()) send_keys_->update();
  if (send_keys_->exhausted()) {
    fail(ErrorCode::kLimitExceeded, "the packet key is used up and the peer does not follow");
    return std::nullopt;
  }
  const auto room = out.subspan(wire::kShortHeaderSize, out.size() - wire::kShortHeaderSize - wire::kTagSize);
  const auto packet = connection_->poll_packet(now, room);
  if (!packet) return std::nullopt;
  const wire::ShortHeader header{peer_id_, send_keys_->key_phase(),
                                 static_cast<std::uint32_t>(packet->number.value())};
  wire::write_short_header(header, out);
  send_keys_->seal(packet->number.value(), out.first(wire::kShortHeaderSize),
                   out.subspan(wire::kShortHeaderSize, packet->payload_size + wire::kTagSize), packet->tail);
  return Outgoing{wire::kShortHeaderSize + packet->payload_size + wire::kTagSize, packet->mtu_probe};
}

std::optional<SecureConnection::Outgoing> SecureConnection::poll_handshake(TimePoint now,
                                                                           std::span<std::byte> out) {
  wire::LongHeader header;
  header.to = peer_id_;
  header.from = own_id_;
  if (role_ == Role::kClient && !heard_server_) header.token = token_;
  header.packet_number_low = static_cast<std::uint32_t>(handshake_number_);
  const std::size_t header_size = wire::long_header_size(header.token.size());
  ByteWriter writer(out.subspan(header_size, wire::kDatagramSizeMin - header_size - wire::kTagSize));
  if (!stream_.write_frames(now, writer)) {
    if (closed_) close_sent_ = true;
    return std::nullopt;
  }
  // First flights are as large as the smallest path carries: that proves it does, and gives the
  // server room to answer within three times what it got.
  if (role_ == Role::kClient && !heard_server_) write_frame(wire::PaddingFrame{writer.room()}, writer);
  wire::write_long_header(header, out);
  const std::size_t size = header_size + writer.written() + wire::kTagSize;
  handshake_seal_.seal(handshake_number_++, out.first(header_size),
                       out.subspan(header_size, size - header_size));
  return Outgoing{size, false};
}

// ---------------------------------------------------------------- time and events

TimePoint SecureConnection::next_timeout() const {
  if (closed()) return events_.size() > next_event_ ? TimePoint{} : kNever;
  TimePoint next = kNever;
  if (!confirmed_ || !stream_.all_acked()) next = stream_.has_frames() ? TimePoint{} : stream_.next_timeout();
  if (!connection_) return role_ == Role::kServer ? std::min(next, started_at_ + kHandshakeTimeout) : next;
  return std::min({next, connection_->next_timeout(), drop_previous_at_});
}

void SecureConnection::handle_timeout(TimePoint now) {
  if (closed()) return;
  if (!confirmed_ || !stream_.all_acked()) stream_.handle_timeout(now);
  if (!connection_) {
    if (role_ == Role::kServer && now >= started_at_ + kHandshakeTimeout)
      fail(ErrorCode::kTimedOut, "the handshake was not finished");
    return;
  }
  if (now >= drop_previous_at_) {
    receive_keys_->drop_previous();
    drop_previous_at_ = kNever;
  }
  connection_->handle_timeout(now);
}

std::optional<SecureConnection::Event> SecureConnection::poll_event() {
  if (next_event_ < events_.size()) return std::move(events_[next_event_++]);
  events_.clear();
  next_event_ = 0;
  if (!connection_) return std::nullopt;
  while (auto event = connection_->poll_event()) {
    if (auto* reset = std::get_if<transport::ResetTokenArrived>(&*event)) {
      reset_token_ = std::move(reset->token);
      continue;
    }
    return Event(std::move(*event));
  }
  return std::nullopt;
}

}  // namespace tusk::rpc
