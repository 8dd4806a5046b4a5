// One connection with its keys: datagrams in, datagrams out. Joins the handshake (crypto), the packet
// headers (wire) and the connection (transport); still without socket, clock or thread.
//
// States (docs/PROTOCOL.md, "Handshake"): handshaking -> established -> closed. A client is established
// when TLS is complete and repeats its last flight until the server's first sealed packet confirms it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "proto/base/random.h"
#include "proto/base/result.h"
#include "proto/base/time.h"
#include "proto/crypto/handshake.h"
#include "proto/crypto/packet_keys.h"
#include "proto/transport/connection.h"
#include "proto/transport/handshake_stream.h"
#include "proto/wire/packet_header.h"

namespace tusk::rpc {

// A random connection id, from the system's generator: it must not be guessable.
[[nodiscard]] wire::ConnectionIdBytes random_connection_id();

// Counted, never answered: what does not authenticate.
struct DropCounters {
  std::uint64_t malformed = 0;
  std::uint64_t unauthenticated = 0;
  std::uint64_t unexpected = 0;  // whole, but late, repeated or out of turn

  // No correct peer sent them so.
  [[nodiscard]] std::uint64_t spoilt() const { return malformed + unauthenticated; }
};

class SecureConnection {
 public:
  struct ClientOptions {
    const crypto::Identity& identity;
    std::optional<crypto::Fingerprint> expected_server;
    std::vector<std::byte> address_token;  // of an earlier connection; may be empty
    transport::ConnectionConfig config;
    std::optional<crypto::KeyLimits> key_limits = {};  // for tests; else the cipher's own
    std::optional<std::byte> original_id_begins = {};  // its first byte; else random
  };
  struct ServerOptions {
    const crypto::Identity& identity;
    wire::ConnectionIdBytes original_id;  // what the client called the server first
    wire::ConnectionIdBytes client_id;
    wire::ConnectionIdBytes own_id;
    transport::ConnectionConfig config;
    std::optional<crypto::KeyLimits> key_limits = {};  // for tests; else the cipher's own
  };
  [[nodiscard]] static Result<std::unique_ptr<SecureConnection>> client(const ClientOptions& options,
                                                                        TimePoint now);
  [[nodiscard]] static Result<std::unique_ptr<SecureConnection>> server(const ServerOptions& options,
                                                                        TimePoint now);

  // A datagram addressed to this connection; its bytes are overwritten. True when it authenticated.
  bool handle_datagram(TimePoint now, std::span<std::byte> datagram, std::uint8_t ecn);

  struct Outgoing {
    std::size_t size = 0;
    bool mtu_probe = false;
  };
  // Writes the next datagram; nullopt: nothing to send now. `out` holds wire::kDatagramSizeMax, or less,
  // at least kDatagramRoomMin, where no more may go out.
  static constexpr std::size_t kDatagramRoomMin =
      wire::kShortHeaderSize + transport::Connection::kPayloadMin + wire::kTagSize;
  [[nodiscard]] std::optional<Outgoing> poll_datagram(TimePoint now, std::span<std::byte> out);

  [[nodiscard]] TimePoint next_timeout() const;
  void handle_timeout(TimePoint now);

  // What became of the handshake; each is reported once, in order, before any transport event.
  struct Established {};
  using Event = std::variant<Established, transport::Event>;
  [[nodiscard]] std::optional<Event> poll_event();

  void close(TimePoint now, ErrorCode code, std::string_view reason);

  [[nodiscard]] bool established() const { return connection_ != nullptr; }
  [[nodiscard]] bool closed() const { return closed_ || (connection_ && connection_->closed()); }
  // Only when established.
  [[nodiscard]] transport::Connection& connection() { return *connection_; }
  [[nodiscard]] const transport::Connection& connection() const { return *connection_; }
  // Once established.
  [[nodiscard]] const crypto::Fingerprint& peer_fingerprint() const { return peer_fingerprint_; }

  [[nodiscard]] const wire::ConnectionIdBytes& own_id() const { return own_id_; }
  [[nodiscard]] const wire::ConnectionIdBytes& original_id() const { return original_id_; }
  [[nodiscard]] const DropCounters& drops() const { return drops_; }
  // How often this side has changed its sending key. Only when established.
  [[nodiscard]] std::uint64_t key_generation() const { return send_keys_->generation(); }
  [[nodiscard]] crypto::PacketCipher cipher() const { return send_keys_->cipher(); }
  // Where the next packet's number will be: a peer's address only follows its newest packet.
  [[nodiscard]] bool last_was_newest() const { return last_was_newest_; }

 private:
  SecureConnection(transport::Role role, crypto::Handshake tls, const transport::ConnectionConfig& config,
                   std::optional<crypto::KeyLimits> key_limits, const wire::ConnectionIdBytes& original_id,
                   TimePoint now);

  bool handle_short(TimePoint now, std::span<std::byte> datagram, std::uint8_t ecn);
  bool handle_long(TimePoint now, std::span<std::byte> datagram);
  bool handle_retry(const wire::LongHeader& header);
  bool handle_version_negotiation(const wire::LongHeader& header);
  bool handle_reset(const wire::LongHeader& header);
  bool handle_handshake_packet(TimePoint now, const wire::ParsedLong& parsed, std::span<std::byte> datagram);
  void handle_handshake_frames(TimePoint now, std::span<const std::byte> payload);
  void advance_handshake(TimePoint now);
  void establish(TimePoint now);
  void confirm();
  void fail(ErrorCode code, std::string reason);
  [[nodiscard]] std::optional<Outgoing> poll_handshake(TimePoint now, std::span<std::byte> out);

  const transport::Role role_;
  const transport::ConnectionConfig config_;
  const std::optional<crypto::KeyLimits> key_limits_;
  // Until both sides have the keys: it takes more memory than all else.
  std::optional<crypto::Handshake> tls_;
  crypto::Fingerprint peer_fingerprint_;
  transport::HandshakeStream stream_;
  crypto::PacketProtector handshake_seal_;
  crypto::PacketProtector handshake_open_;
  std::optional<crypto::SendKeys> send_keys_;
  std::optional<crypto::ReceiveKeys> receive_keys_;
  std::uint64_t receive_generation_ = 0;
  TimePoint drop_previous_at_ = kNever;
  std::unique_ptr<transport::Connection> connection_;

  wire::ConnectionIdBytes original_id_;
  wire::ConnectionIdBytes own_id_;
  wire::ConnectionIdBytes peer_id_;
  std::vector<std::byte> token_;
  std::vector<std::byte> reset_token_;
  int retries_ = 0;
  bool heard_server_ = false;
  bool confirmed_ = false;  // the peer is known to have the keys
  bool close_sent_ = false;
  bool closed_ = false;
  bool last_was_newest_ = false;
  std::uint64_t handshake_number_ = 0;
  TimePoint started_at_;
  std::vector<Event> events_;
  std::size_t next_event_ = 0;
  ErrorCode close_code_ = ErrorCode::kOk;
  std::string close_reason_;
  DropCounters drops_;
};

}  // namespace tusk::rpc
