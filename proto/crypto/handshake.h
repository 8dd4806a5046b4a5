// The TLS 1.3 handshake (RFC 8446) of two Tusk peers, without sockets: bytes in, bytes out.
//
// Both sides show an Ed25519 certificate. A client that was told the server's fingerprint completes
// with no other; a server completes with any client key and leaves it to the caller what that key may
// do. TLS carries nothing but the handshake: packets are sealed with the secrets exported at its end
// (packet_protection.h). No tickets, no early data. Loss, order and retransmission of the handshake's
// bytes are the transport's business. docs/PROTOCOL.md, "Handshake".
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/base/result.h"
#include "proto/crypto/fingerprint.h"
#include "proto/crypto/identity.h"
#include "proto/crypto/packet_cipher.h"
#include "proto/crypto/primitives.h"

namespace tusk::crypto {

// ALPN (RFC 7301): the version of the protocol that is spoken after the handshake.
constexpr std::string_view kProtocolName = "tusk/1";
// TLS bytes accepted from the peer over the life of a handshake; an honest peer sends about 1 KiB.
constexpr std::size_t kHandshakeBytesMax = 64 * 1024;
// The peer's certificate message; ours is about 300 bytes.
constexpr std::size_t kCertificateBytesMax = 2048;

struct HandshakeOptions {
  // Client only: the one server key to accept.
  std::optional<Fingerprint> expected_server;
  // ChaCha20-Poly1305 is agreed on if either side prefers it.
  PacketCipher preferred_cipher = native_packet_cipher();
  // Best first, each 1 to 255 bytes, at least one.
  std::vector<std::string> protocols = {std::string(kProtocolName)};
};

struct HandshakeState;

// What both sides know at the end, and nobody else.
struct Secrets {
  PacketCipher cipher = PacketCipher::kAes256Gcm;
  Secret client_to_server;
  Secret server_to_client;
};

// Movable. One thread at a time.
class Handshake {
 public:
  // kBadConfig for options out of their limits. A client has output to take at once.
  [[nodiscard]] static Result<Handshake> client(const Identity& identity,
                                                const HandshakeOptions& options = {});
  [[nodiscard]] static Result<Handshake> server(const Identity& identity,
                                                const HandshakeOptions& options = {});

  Handshake(Handshake&&) noexcept;
  Handshake& operator=(Handshake&&) noexcept;
  ~Handshake();

  // The peer's TLS bytes, in order, without gaps, in pieces of any size; also after complete(), when
  // only an alert may still come (a server that refuses the client's certificate says so after the
  // client has completed).
  // Errors are final: every later call returns the same one. Then take_output() may hold an alert
  // that tells the peer.
  //   kFingerprintMismatch   the server's key is not the expected one (both are in the context)
  //   kAuthenticationFailed  no certificate, a wrong kind of key, a bad signature, or changed bytes
  //   kVersionMismatch       no protocol or no TLS version in common
  //   kPeerClosed            the peer gave up, with an alert that means none of the above
  //   kLimitExceeded         more than kHandshakeBytesMax or kCertificateBytesMax
  //   kMalformed             anything else that no correct peer sends
  [[nodiscard]] Result<void> handle_bytes(std::span<const std::byte> bytes);

  // TLS bytes for the peer, in order; empty if there are none now.
  [[nodiscard]] std::vector<std::byte> take_output();

  // The peer is authenticated and the secrets are there; stays so. Only a server knows then that the
  // other side is complete too: a client that has completed may still be refused.
  [[nodiscard]] bool complete() const;

  // Only when complete (checked), as the functions below.
  [[nodiscard]] const Fingerprint& peer_fingerprint() const;
  [[nodiscard]] const std::string& protocol() const;
  // The packet cipher that belongs to the agreed TLS cipher suite.
  [[nodiscard]] PacketCipher cipher() const;

  // RFC 8446 §7.5, label "EXPORTER-tusk packet keys": 64 bytes, the first half client to server, the
  // second server to client. `context` is mixed in: both sides must give the same bytes, which makes
  // it a place to authenticate what was said in clear before the handshake.
  [[nodiscard]] Result<Secrets> export_secrets(std::span<const std::byte> context = {}) const;

 private:
  explicit Handshake(std::unique_ptr<HandshakeState> state);

  std::unique_ptr<HandshakeState> state_;  // OpenSSL's callbacks hold a pointer to it
};

}  // namespace tusk::crypto
