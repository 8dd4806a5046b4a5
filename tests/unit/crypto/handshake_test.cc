// Two handshakes joined by hand: what completes, what fails with which error, and that no change of
// the bytes between them ends in a completed handshake with different secrets.
#include "proto/crypto/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/params.h>

#include <utility>

#include "proto/crypto/openssl.h"
#include "proto/crypto/packet_protection.h"
#include "tests/unit/crypto/test_bytes.h"

namespace tusk::crypto {
namespace {

using testing::HasSubstr;

const Identity& identity_of(std::string_view who) {
  static const Identity kClient = *Identity::generate();
  static const Identity kServer = *Identity::generate();
  return who == "client" ? kClient : kServer;
}

struct Pair {
  explicit Pair(const HandshakeOptions& client_options = {}, const HandshakeOptions& server_options = {})
      : client(*Handshake::client(identity_of("client"), client_options)),
        server(*Handshake::server(identity_of("server"), server_options)) {}

  // Carries bytes both ways until both are silent.
  void run() {
    for (;;) {
      const Bytes to_server = client.take_output();
      if (!to_server.empty()) keep_first_error(server_error, server.handle_bytes(to_server));
      const Bytes to_client = server.take_output();
      if (!to_client.empty()) keep_first_error(client_error, client.handle_bytes(to_client));
      if (to_server.empty() && to_client.empty()) return;
    }
  }
  static void keep_first_error(ErrorCode& code, const Result<void>& result) {
    if (!result && code == ErrorCode::kOk) code = result.error().code;
  }
  [[nodiscard]] bool both_complete() const { return client.complete() && server.complete(); }
  [[nodiscard]] bool secrets_agree() const {
    const auto a = client.export_secrets();
    const auto b = server.export_secrets();
    return a && b && a->cipher == b->cipher && a->client_to_server == b->client_to_server &&
           a->server_to_client == b->server_to_client;
  }

  Handshake client;
  Handshake server;
  ErrorCode client_error = ErrorCode::kOk;
  ErrorCode server_error = ErrorCode::kOk;
};

HandshakeOptions expecting(const Fingerprint& fingerprint) { return {.expected_server = fingerprint}; }
HandshakeOptions preferring(PacketCipher cipher) { return {.preferred_cipher = cipher}; }
HandshakeOptions speaking(std::vector<std::string> protocols) { return {.protocols = std::move(protocols)}; }

TEST(Handshake, CompletesAndBothKnowEachOther) {
  Pair pair;
  pair.run();
  ASSERT_TRUE(pair.both_complete());
  EXPECT_EQ(pair.client.peer_fingerprint(), identity_of("server").fingerprint());
  EXPECT_EQ(pair.server.peer_fingerprint(), identity_of("client").fingerprint());
  EXPECT_EQ(pair.client.protocol(), kProtocolName);
  EXPECT_EQ(pair.server.protocol(), kProtocolName);
  EXPECT_TRUE(pair.secrets_agree());
}

TEST(Handshake, CompletesWithTheExpectedServer) {
  Pair pair(expecting(identity_of("server").fingerprint()));
  pair.run();
  EXPECT_TRUE(pair.both_complete());
}

TEST(Handshake, TakesOneRoundTripAndSmallFlights) {
  Pair pair;
  const Bytes first = pair.client.take_output();
  ASSERT_TRUE(pair.server.handle_bytes(first));
  const Bytes second = pair.server.take_output();
  ASSERT_TRUE(pair.client.handle_bytes(second));
  EXPECT_TRUE(pair.client.complete());
  const Bytes third = pair.client.take_output();
  ASSERT_TRUE(pair.server.handle_bytes(third));
  EXPECT_TRUE(pair.server.complete());
  EXPECT_TRUE(pair.server.take_output().empty());  // no tickets
  // Each fits in one packet of 1200 bytes.
  EXPECT_LT(first.size(), 300U);
  EXPECT_LT(second.size(), 900U);
  EXPECT_LT(third.size(), 700U);
  RecordProperty("flights", std::to_string(first.size()) + " " + std::to_string(second.size()) + " " +
                                std::to_string(third.size()));
}

TEST(Handshake, CompletesByteByByte) {
  Pair pair;
  for (int round = 0; round < 2; ++round) {
    for (const std::byte byte : pair.client.take_output()) ASSERT_TRUE(pair.server.handle_bytes({&byte, 1}));
    for (const std::byte byte : pair.server.take_output()) ASSERT_TRUE(pair.client.handle_bytes({&byte, 1}));
  }
  ASSERT_TRUE(pair.both_complete());
  EXPECT_TRUE(pair.secrets_agree());
}

TEST(Handshake, SurvivesAMoveOnTheWay) {
  Pair pair;
  ASSERT_TRUE(pair.server.handle_bytes(pair.client.take_output()));
  Pair moved(std::move(pair));
  moved.run();
  EXPECT_TRUE(moved.both_complete());
}

TEST(Handshake, IgnoresEmptyInput) {
  Pair pair;
  EXPECT_TRUE(pair.server.handle_bytes({}));
  pair.run();
  EXPECT_TRUE(pair.both_complete());
  EXPECT_TRUE(pair.client.handle_bytes({}));
}

TEST(Handshake, SecretsDifferByDirectionAndConnection) {
  Pair a, b;
  a.run();
  b.run();
  const auto secrets_a = a.client.export_secrets();
  const auto secrets_b = b.client.export_secrets();
  ASSERT_TRUE(secrets_a && secrets_b);
  EXPECT_FALSE(secrets_a->client_to_server == secrets_a->server_to_client);
  EXPECT_FALSE(secrets_a->client_to_server == secrets_b->client_to_server);
}

TEST(Handshake, SecretsDependOnTheContext) {
  Pair pair;
  pair.run();
  const auto plain = pair.client.export_secrets();
  const auto bound = pair.client.export_secrets(from_text("ids"));
  const auto bound_too = pair.server.export_secrets(from_text("ids"));
  ASSERT_TRUE(plain && bound && bound_too);
  EXPECT_FALSE(plain->client_to_server == bound->client_to_server);
  EXPECT_TRUE(bound->client_to_server == bound_too->client_to_server);
}

TEST(Handshake, SecretsCarryPackets) {
  Pair pair;
  pair.run();
  const auto client = pair.client.export_secrets();
  const auto server = pair.server.export_secrets();
  ASSERT_TRUE(client && server);
  PacketProtector sender(client->cipher, client->client_to_server);
  PacketProtector receiver(server->cipher, server->client_to_server);
  Bytes packet = pattern(100);
  sender.seal(0, {}, packet);
  EXPECT_TRUE(receiver.open(0, {}, packet));
}

TEST(HandshakeCipher, IsChaChaIfEitherSidePrefersIt) {
  using enum PacketCipher;
  for (const PacketCipher client : {kAes256Gcm, kChaCha20Poly1305})
    for (const PacketCipher server : {kAes256Gcm, kChaCha20Poly1305}) {
      Pair pair(preferring(client), preferring(server));
      pair.run();
      ASSERT_TRUE(pair.both_complete());
      const bool chacha = client == kChaCha20Poly1305 || server == kChaCha20Poly1305;
      EXPECT_EQ(pair.client.cipher(), chacha ? kChaCha20Poly1305 : kAes256Gcm);
      EXPECT_TRUE(pair.secrets_agree());
    }
}

TEST(HandshakeTrust, RefusesAnotherServerAndNamesBothKeys) {
  const Fingerprint expected = Identity::generate()->fingerprint();
  Pair pair(expecting(expected));
  ASSERT_TRUE(pair.server.handle_bytes(pair.client.take_output()));
  const auto result = pair.client.handle_bytes(pair.server.take_output());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kFingerprintMismatch);
  EXPECT_THAT(result.error().context, HasSubstr(expected.to_text()));
  EXPECT_THAT(result.error().context, HasSubstr(identity_of("server").fingerprint().to_text()));
  EXPECT_FALSE(pair.client.complete());

  // The server learns of it, and never sees the client's certificate.
  const auto at_server = pair.server.handle_bytes(pair.client.take_output());
  ASSERT_FALSE(at_server);
  EXPECT_EQ(at_server.error().code, ErrorCode::kAuthenticationFailed);
  EXPECT_FALSE(pair.server.complete());
}

TEST(HandshakeTrust, TheExpectedServerIsTheClientsOptionOnly) {
  Pair pair({}, expecting(Fingerprint{}));
  pair.run();
  EXPECT_TRUE(pair.both_complete());
}

TEST(HandshakeVersion, PicksTheServersFirstCommonProtocol) {
  Pair pair(speaking({"tusk/1", "tusk/2", "tusk/3"}), speaking({"tusk/9", "tusk/2", "tusk/1"}));
  pair.run();
  ASSERT_TRUE(pair.both_complete());
  EXPECT_EQ(pair.client.protocol(), "tusk/2");
  EXPECT_EQ(pair.server.protocol(), "tusk/2");
}

TEST(HandshakeVersion, FailsOnBothSidesWithoutACommonProtocol) {
  Pair pair(speaking({"tusk/2"}), speaking({"tusk/1"}));
  pair.run();
  EXPECT_EQ(pair.server_error, ErrorCode::kVersionMismatch);
  EXPECT_EQ(pair.client_error, ErrorCode::kVersionMismatch);
  EXPECT_FALSE(pair.client.complete());
  EXPECT_FALSE(pair.server.complete());
}

TEST(HandshakeVersion, RefusesUnusableProtocolNames) {
  for (const auto& protocols : {std::vector<std::string>{}, {""}, {std::string(256, 'x')}}) {
    const auto handshake = Handshake::client(identity_of("client"), speaking(protocols));
    ASSERT_FALSE(handshake);
    EXPECT_EQ(handshake.error().code, ErrorCode::kBadConfig);
  }
}

// A peer built from bare OpenSSL, to do what ours never does.
class ForeignPeer {
 public:
  ForeignPeer() : context_(SSL_CTX_new(TLS_method())) {
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_NONE, nullptr);
  }

  void show(const Identity& identity) { show(identity.certificate(), identity.private_key()); }
  void show(X509* certificate, EVP_PKEY* key) {
    ASSERT_EQ(SSL_CTX_use_certificate(context_.get(), certificate), 1);
    ASSERT_EQ(SSL_CTX_use_PrivateKey(context_.get(), key), 1);
  }
  void offer_protocol() {
    const Bytes alpn = from_text("\x06tusk/1");
    ASSERT_EQ(
        SSL_CTX_set_alpn_protos(context_.get(), as_uchar(alpn.data()), static_cast<unsigned>(alpn.size())),
        0);
  }
  void select_protocol() {
    SSL_CTX_set_alpn_select_cb(
        context_.get(),
        [](SSL*, const unsigned char** out, unsigned char* length, const unsigned char* in, unsigned, void*) {
          *length = in[0];
          *out = in + 1;
          return SSL_TLSEXT_ERR_OK;
        },
        nullptr);
  }
  SSL_CTX* context() { return context_.get(); }

  void start(bool as_client) {
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    as_client ? SSL_set_connect_state(ssl_.get()) : SSL_set_accept_state(ssl_.get());
  }
  SSL* ssl() { return ssl_.get(); }

  // Runs against `ours`; its first error, or kOk.
  ErrorCode run(Handshake& ours) {
    ErrorCode error = ErrorCode::kOk;
    for (int silent = 0; silent < 2;) {
      SSL_do_handshake(ssl_.get());
      ERR_clear_error();
      Bytes out(BIO_ctrl_pending(SSL_get_wbio(ssl_.get())));
      if (!out.empty()) BIO_read(SSL_get_wbio(ssl_.get()), out.data(), static_cast<int>(out.size()));
      if (!out.empty()) Pair::keep_first_error(error, ours.handle_bytes(out));
      const Bytes in = ours.take_output();
      if (!in.empty()) BIO_write(SSL_get_rbio(ssl_.get()), in.data(), static_cast<int>(in.size()));
      silent = out.empty() && in.empty() ? silent + 1 : 0;
    }
    return error;
  }

 private:
  SslCtxPtr context_;
  SslPtr ssl_;
};

Handshake our_server() { return *Handshake::server(identity_of("server")); }
Handshake our_client() { return *Handshake::client(identity_of("client")); }

TEST(HandshakeWithForeignClient, IsPossible) {
  ForeignPeer client;
  client.show(identity_of("client"));
  client.offer_protocol();
  client.start(true);
  Handshake server = our_server();
  EXPECT_EQ(client.run(server), ErrorCode::kOk);
  EXPECT_TRUE(server.complete());
}

TEST(HandshakeWithForeignClient, FailsWithoutACertificate) {
  ForeignPeer client;
  client.offer_protocol();
  client.start(true);
  Handshake server = our_server();
  EXPECT_EQ(client.run(server), ErrorCode::kAuthenticationFailed);
  EXPECT_FALSE(server.complete());
}

TEST(HandshakeWithForeignClient, FailsWithoutAProtocol) {
  ForeignPeer client;
  client.show(identity_of("client"));
  client.start(true);
  Handshake server = our_server();
  EXPECT_EQ(client.run(server), ErrorCode::kVersionMismatch);
  EXPECT_FALSE(server.complete());
}

TEST(HandshakeWithForeignClient, FailsWithAnOlderTls) {
  ForeignPeer client;
  SSL_CTX_set_max_proto_version(client.context(), TLS1_2_VERSION);
  client.offer_protocol();
  client.start(true);
  Handshake server = our_server();
  EXPECT_EQ(client.run(server), ErrorCode::kVersionMismatch);
}

TEST(HandshakeWithForeignClient, FailsWithoutACommonCipherSuite) {
  ForeignPeer client;
  SSL_CTX_set_ciphersuites(client.context(), "TLS_AES_128_GCM_SHA256");
  client.offer_protocol();
  client.start(true);
  Handshake server = our_server();
  EXPECT_EQ(client.run(server), ErrorCode::kMalformed);
  EXPECT_FALSE(server.complete());
}

// A certificate around a P-256 key.
void show_p256(ForeignPeer& peer) {
  const PkeyPtr key(EVP_EC_gen("P-256"));
  const X509Ptr certificate(X509_dup(identity_of("client").certificate()));
  ASSERT_EQ(X509_set_pubkey(certificate.get(), key.get()), 1);
  ASSERT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
  peer.show(certificate.get(), key.get());
}

TEST(HandshakeWithForeignClient, FailsWithAnotherKindOfKey) {
  ForeignPeer client;
  show_p256(client);
  client.offer_protocol();
  client.start(true);
  Handshake server = our_server();
  EXPECT_NE(client.run(server), ErrorCode::kOk);
  EXPECT_FALSE(server.complete());
}

TEST(HandshakeWithForeignClient, FailsWithALongCertificate) {
  ForeignPeer client;
  const X509Ptr certificate(X509_dup(identity_of("client").certificate()));
  X509_NAME* name = X509_get_subject_name(certificate.get());
  const std::string text(60, 'x');
  for (int i = 0; i < 50; ++i)
    ASSERT_EQ(X509_NAME_add_entry_by_txt(name, "OU", MBSTRING_ASC,
                                         reinterpret_cast<const unsigned char*>(text.data()), 60, -1, 0),
              1);
  ASSERT_GT(X509_sign(certificate.get(), identity_of("client").private_key(), nullptr), 0);
  client.show(certificate.get(), identity_of("client").private_key());
  client.offer_protocol();
  client.start(true);
  Handshake server = our_server();
  EXPECT_EQ(client.run(server), ErrorCode::kLimitExceeded);
  EXPECT_FALSE(server.complete());
}

TEST(HandshakeWithForeignServer, FailsWithoutAProtocol) {
  ForeignPeer server;
  server.show(identity_of("server"));
  server.start(false);
  Handshake client = our_client();
  EXPECT_EQ(server.run(client), ErrorCode::kVersionMismatch);
  EXPECT_FALSE(client.complete());
}

TEST(HandshakeWithForeignServer, CompletesWithoutBeingAskedForACertificate) {
  // The client cannot tell; it is the server's loss.
  ForeignPeer server;
  server.show(identity_of("server"));
  server.select_protocol();
  server.start(false);
  Handshake client = our_client();
  EXPECT_EQ(server.run(client), ErrorCode::kOk);
  EXPECT_TRUE(client.complete());
}

TEST(HandshakeWithForeignServer, RefusesDataInsideTls) {
  ForeignPeer server;
  server.show(identity_of("server"));
  server.select_protocol();
  server.start(false);
  Handshake client = our_client();
  ASSERT_EQ(server.run(client), ErrorCode::kOk);
  ASSERT_EQ(SSL_write(server.ssl(), "data", 4), 4);
  EXPECT_EQ(server.run(client), ErrorCode::kMalformed);
}

TEST(HandshakeWithForeignServer, ReportsAClose) {
  ForeignPeer server;
  server.show(identity_of("server"));
  server.select_protocol();
  server.start(false);
  Handshake client = our_client();
  ASSERT_EQ(server.run(client), ErrorCode::kOk);
  SSL_shutdown(server.ssl());
  EXPECT_EQ(server.run(client), ErrorCode::kPeerClosed);
}

TEST(HandshakeWithForeignServer, ToldOfARefusalAfterItsOwnCompletion) {
  ForeignPeer server;
  server.show(identity_of("server"));
  server.select_protocol();
  SSL_CTX_set_verify(server.context(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                     [](int, X509_STORE_CTX*) { return 0; });
  server.start(false);
  Handshake client = our_client();
  EXPECT_EQ(server.run(client), ErrorCode::kAuthenticationFailed);
  EXPECT_TRUE(client.complete());
}

// A key object with `owner`'s public half and a private half that does not belong to it, which OpenSSL
// takes for `owner`'s key until a signature of it is verified.
PkeyPtr forged_key(const Identity& owner) {
  Secret public_half;
  std::size_t length = Secret::kBytes;
  EXPECT_EQ(EVP_PKEY_get_raw_public_key(owner.private_key(), as_uchar(public_half.bytes.data()), &length), 1);
  Secret private_half = Secret::random();
  OSSL_PARAM params[] = {
      OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PUB_KEY, public_half.bytes.data(), Secret::kBytes),
      OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PRIV_KEY, private_half.bytes.data(), Secret::kBytes),
      OSSL_PARAM_construct_end(),
  };
  const PkeyCtxPtr context(EVP_PKEY_CTX_new_from_name(nullptr, "ED25519", nullptr));
  EVP_PKEY* key = nullptr;
  EXPECT_EQ(EVP_PKEY_fromdata_init(context.get()), 1);
  EXPECT_EQ(EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_KEYPAIR, params), 1);
  return PkeyPtr(key);
}

TEST(HandshakeTrust, AServerCannotBorrowTheRightCertificate) {
  const Identity& owner = identity_of("server");
  const PkeyPtr key = forged_key(owner);
  ForeignPeer thief;
  thief.show(owner.certificate(), key.get());
  thief.select_protocol();
  thief.start(false);
  Handshake client = *Handshake::client(identity_of("client"), expecting(owner.fingerprint()));
  EXPECT_EQ(thief.run(client), ErrorCode::kAuthenticationFailed);
  EXPECT_FALSE(client.complete());
}

TEST(HandshakeTrust, AClientCannotBorrowACertificate) {
  const Identity& owner = identity_of("client");
  const PkeyPtr key = forged_key(owner);
  ForeignPeer thief;
  thief.show(owner.certificate(), key.get());
  thief.offer_protocol();
  thief.start(true);
  Handshake server = our_server();
  EXPECT_EQ(thief.run(server), ErrorCode::kAuthenticationFailed);
  EXPECT_FALSE(server.complete());
}

TEST(HandshakeInput, GarbageIsMalformedAtEveryStage) {
  const Bytes garbage = pattern(400);
  for (int stage = 0; stage < 2; ++stage) {
    Pair pair;
    if (stage == 1) {
      ASSERT_TRUE(pair.server.handle_bytes(pair.client.take_output()));
      ASSERT_FALSE(pair.client.handle_bytes(garbage));
      EXPECT_FALSE(pair.client.complete());
    }
    const auto result = pair.server.handle_bytes(garbage);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kMalformed) << result.error().message();
    EXPECT_FALSE(pair.server.complete());
  }
}

TEST(HandshakeInput, GarbageAfterTheEndIsAnErrorToo) {
  Pair pair;
  pair.run();
  EXPECT_FALSE(pair.server.handle_bytes(pattern(400)));
  EXPECT_FALSE(pair.client.handle_bytes(pattern(400)));
  EXPECT_TRUE(pair.both_complete());
}

TEST(HandshakeInput, ErrorsAreFinalAndLeaveNoTraceInOpenssl) {
  Pair pair;
  const auto first = pair.server.handle_bytes(pattern(400));
  ASSERT_FALSE(first);
  const auto again = pair.server.handle_bytes(pair.client.take_output());
  ASSERT_FALSE(again);
  EXPECT_EQ(first.error().context, again.error().context);
  EXPECT_EQ(ERR_peek_error(), 0U);
}

TEST(HandshakeInput, EveryTruncationWaitsForTheRest) {
  Pair whole;
  const Bytes hello = whole.client.take_output();
  for (std::size_t length = 0; length < hello.size(); length += 17) {
    Handshake server = our_server();
    EXPECT_TRUE(server.handle_bytes(std::span(hello).first(length)));
    EXPECT_TRUE(server.take_output().empty());
    EXPECT_FALSE(server.complete());
    ASSERT_TRUE(server.handle_bytes(std::span(hello).subspan(length)));
    EXPECT_FALSE(server.take_output().empty());
  }
}

TEST(HandshakeInput, IsLimited) {
  // A record of 16 KiB with the start of a ClientHello of 64 KiB: all fine so far, but for the length.
  Handshake server = our_server();
  Bytes endless = from_hex("16030140000100ffff");
  endless.resize(kHandshakeBytesMax);
  const auto accepted = server.handle_bytes(std::span(endless).first(1000));
  EXPECT_TRUE(accepted) << accepted.error().message();
  const auto refused = server.handle_bytes(endless);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kLimitExceeded);
}

// Whatever single byte is changed on the way: never two completed sides that disagree, never a server
// that completes with a client that did not, and always an error or a wait, never a crash.
class Tampering : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(EachFlight, Tampering, testing::Values(0, 1, 2));

TEST_P(Tampering, IsNeverAccepted) {
  std::size_t size = 1;
  int failures = 0;
  constexpr std::size_t kStride = 5;  // coprime to every field's size, so all kinds of fields are hit
  for (std::size_t offset = 0; offset < size; offset += kStride) {
    Pair pair;
    for (int flight = 0; flight < 3; ++flight) {
      const bool from_client = flight != 1;
      Bytes bytes = (from_client ? pair.client : pair.server).take_output();
      if (flight == GetParam()) {
        size = bytes.size();
        bytes = flip_bit(bytes, offset, offset % 8);
      }
      if (!bytes.empty() && !(from_client ? pair.server : pair.client).handle_bytes(bytes)) ++failures;
    }
    if (pair.both_complete()) {
      // Only what TLS 1.3 says to ignore: a record's legacy version.
      EXPECT_TRUE(pair.secrets_agree()) << offset;
      EXPECT_EQ(pair.client.peer_fingerprint(), identity_of("server").fingerprint());
      EXPECT_EQ(pair.server.peer_fingerprint(), identity_of("client").fingerprint());
      EXPECT_LE(offset, 2U);
    }
  }
  EXPECT_GT(failures, 0);  // the test bites
}

TEST(HandshakeMisuse, SecretsBeforeTheEndAreABug) {
  Handshake client = our_client();
  EXPECT_FALSE(client.complete());
  EXPECT_DEATH(static_cast<void>(client.export_secrets()), "invariant");
  EXPECT_DEATH(static_cast<void>(client.peer_fingerprint()), "invariant");
}

}  // namespace
}  // namespace tusk::crypto
