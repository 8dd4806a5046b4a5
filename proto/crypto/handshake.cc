#include "proto/crypto/handshake.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/tls1.h>

#include <array>
#include <utility>

#include "proto/base/check.h"
#include "proto/base/shared_bytes.h"
#include "proto/crypto/openssl.h"

namespace tusk::crypto {

struct HandshakeState {
  SslCtxPtr context;
  SslPtr ssl;
  bool is_client = false;
  std::optional<Fingerprint> expected_server;
  std::string alpn;  // RFC 7301 §3.1: each name after its length byte

  std::size_t bytes_in = 0;
  bool complete = false;
  std::optional<Fingerprint> peer;  // shown by its certificate; proven only when complete
  std::string protocol;
  // Why a callback said no: it can tell OpenSSL no more than that.
  std::optional<Error> refusal;
  std::optional<Error> failure;  // final
};

namespace {

constexpr std::string_view kExporterLabel = "EXPORTER-tusk packet keys";
constexpr const char* kSuitesAesFirst = "TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
constexpr const char* kSuitesChaChaFirst = "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384";
constexpr const char* kGroups = "X25519";
constexpr const char* kSignatures = "ed25519";
constexpr std::size_t kProtocolNameBytesMax = 255;

struct Classified {
  ErrorCode code;
  const char* what;
};

// The peer's alert (RFC 8446 §6.2) as one of our errors.
Classified classify_alert(int alert) {
  switch (alert) {
    case SSL_AD_NO_APPLICATION_PROTOCOL:
    case SSL_AD_PROTOCOL_VERSION:
      return {ErrorCode::kVersionMismatch, "the peer speaks no common version"};
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_CERTIFICATE_REQUIRED:
    case SSL_AD_UNKNOWN_CA:
    case SSL_AD_ACCESS_DENIED:
      return {ErrorCode::kAuthenticationFailed, "the peer refused our key"};
    case SSL_AD_BAD_RECORD_MAC:
    case SSL_AD_DECRYPT_ERROR:
      return {ErrorCode::kAuthenticationFailed, "the peer received changed handshake bytes"};
    default:
      return {ErrorCode::kPeerClosed, "the peer ended the handshake"};
  }
}

Classified classify(unsigned long error) {
  constexpr Classified kMalformed = {ErrorCode::kMalformed, "the peer's handshake is malformed"};
  if (ERR_GET_LIB(error) != ERR_LIB_SSL) return kMalformed;
  const int reason = ERR_GET_REASON(error);
  if (reason >= SSL_AD_REASON_OFFSET) return classify_alert(reason - SSL_AD_REASON_OFFSET);
  switch (reason) {
    case SSL_R_NO_APPLICATION_PROTOCOL:
    case SSL_R_UNSUPPORTED_PROTOCOL:
      return {ErrorCode::kVersionMismatch, "no common version"};
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return {ErrorCode::kAuthenticationFailed, "the peer showed no certificate"};
    case SSL_R_BAD_SIGNATURE:
    case SSL_R_DIGEST_CHECK_FAILED:
    case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC:
    case SSL_R_WRONG_SIGNATURE_TYPE:
      return {ErrorCode::kAuthenticationFailed, "the peer's handshake does not authenticate"};
    case SSL_R_EXCESSIVE_MESSAGE_SIZE:
      return {ErrorCode::kLimitExceeded, "a message of the peer's handshake is too long"};
    default:
      return kMalformed;
  }
}

Result<std::string> encode_alpn(const std::vector<std::string>& protocols) {
  std::string alpn;
  for (const std::string& name : protocols) {
    if (name.empty() || name.size() > kProtocolNameBytesMax)
      return fail(ErrorCode::kBadConfig, "a protocol name must have 1 to 255 bytes");
    alpn += static_cast<char>(name.size());
    alpn += name;
  }
  if (alpn.empty()) return fail(ErrorCode::kBadConfig, "a handshake needs a protocol name");
  return alpn;
}

const unsigned char* as_uchar(const std::string& text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

Result<Fingerprint> accept_key(X509* certificate, const std::optional<Fingerprint>& expected) {
  TUSK_ASSIGN(const Fingerprint found, fingerprint_of(certificate ? X509_get0_pubkey(certificate) : nullptr));
  if (expected && *expected != found)
    return fail(ErrorCode::kFingerprintMismatch,
                "expected the server key " + expected->to_text() + ", the server has " + found.to_text());
  return found;
}

// Replaces OpenSSL's building of a certificate chain: trust is in the fingerprint alone. That the peer
// holds the private half is proven afterwards, by the signature in its CertificateVerify message.
int verify_certificate(X509_STORE_CTX* store, void* argument) {
  auto& state = *static_cast<HandshakeState*>(argument);
  const Result<Fingerprint> found = accept_key(X509_STORE_CTX_get0_cert(store), state.expected_server);
  if (!found) {
    state.refusal = found.error();
    X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_REJECTED);  // sent as alert bad_certificate
    return 0;
  }
  state.peer = *found;
  return 1;
}

// select_protocol is not called for a client that offers no protocol at all.
int require_protocols(SSL* ssl, int* alert, void* argument) {
  const unsigned char* data = nullptr;
  std::size_t length = 0;
  if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_application_layer_protocol_negotiation, &data, &length) == 1)
    return SSL_CLIENT_HELLO_SUCCESS;
  static_cast<HandshakeState*>(argument)->refusal =
      Error{ErrorCode::kVersionMismatch, "the client offers no protocol"};
  *alert = SSL_AD_NO_APPLICATION_PROTOCOL;
  return SSL_CLIENT_HELLO_ERROR;
}

int select_protocol(SSL*, const unsigned char** out, unsigned char* out_length, const unsigned char* offered,
                    unsigned offered_length, void* argument) {
  const auto& state = *static_cast<const HandshakeState*>(argument);
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_length, as_uchar(state.alpn),
                            static_cast<unsigned>(state.alpn.size()), offered,
                            offered_length) != OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

// What is the same for both sides.
bool configure(SSL_CTX* context, PacketCipher preferred) {
  const bool chacha = preferred == PacketCipher::kChaCha20Poly1305;
  // The client's order decides, but a server without AES hardware overrules it: so ChaCha20 is agreed
  // on if either side wants it.
  if (chacha) SSL_CTX_set_options(context, SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
  SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);  // no middlebox sees this TLS
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_max_cert_list(context, static_cast<long>(kCertificateBytesMax));
  return SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
         SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
         SSL_CTX_set_ciphersuites(context, chacha ? kSuitesChaChaFirst : kSuitesAesFirst) == 1 &&
         SSL_CTX_set1_groups_list(context, kGroups) == 1 &&
         SSL_CTX_set1_sigalgs_list(context, kSignatures) == 1 &&
         SSL_CTX_set1_client_sigalgs_list(context, kSignatures) == 1 &&
         SSL_CTX_set_num_tickets(context, 0) == 1 && SSL_CTX_set_max_early_data(context, 0) == 1 &&
         SSL_CTX_set_recv_max_early_data(context, 0) == 1;
}

bool configure_side(SSL_CTX* context, HandshakeState& state) {
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_cert_verify_callback(context, verify_certificate, &state);
  if (state.is_client)  // 0 is success, unlike elsewhere
    return SSL_CTX_set_alpn_protos(context, as_uchar(state.alpn), static_cast<unsigned>(state.alpn.size())) ==
           0;
  SSL_CTX_set_client_hello_cb(context, require_protocols, &state);
  SSL_CTX_set_alpn_select_cb(context, select_protocol, &state);
  return true;
}

bool attach_memory(SSL* ssl) {
  BioPtr input(BIO_new(BIO_s_mem()));
  BioPtr output(BIO_new(BIO_s_mem()));
  if (!input || !output) return false;
  SSL_set_bio(ssl, input.release(), output.release());
  return true;
}

Error ssl_failure(HandshakeState& state) {
  if (state.refusal) {
    ERR_clear_error();
    return *state.refusal;
  }
  // The last error is OpenSSL's conclusion, those before it are details.
  const unsigned long last = ERR_peek_last_error();
  if (last == 0) return {ErrorCode::kPeerClosed, "the peer closed the handshake"};
  const Classified classified = classify(last);
  return fail_openssl(classified.code, classified.what).error();
}

Result<void> finish(HandshakeState& state) {
  const unsigned char* name = nullptr;
  unsigned length = 0;
  SSL_get0_alpn_selected(state.ssl.get(), &name, &length);
  if (length == 0) return fail(ErrorCode::kVersionMismatch, "the server chose no protocol");
  state.protocol.assign(reinterpret_cast<const char*>(name), length);
  TUSK_CHECK(state.peer.has_value());
  state.complete = true;
  return {};
}

// The peer has nothing more to say but alerts; TLS carries no data of ours.
Result<void> read_after_handshake(HandshakeState& state) {
  unsigned char byte = 0;
  const int got = SSL_read(state.ssl.get(), &byte, 1);
  if (got > 0) return fail(ErrorCode::kMalformed, "the peer sent data inside TLS");
  if (SSL_get_error(state.ssl.get(), got) == SSL_ERROR_WANT_READ) return {};
  return std::unexpected(ssl_failure(state));
}

Result<void> advance(HandshakeState& state) {
  ERR_clear_error();  // SSL_get_error looks into the thread's queue
  if (!state.complete) {
    const int done = SSL_do_handshake(state.ssl.get());
    if (done != 1) {
      if (SSL_get_error(state.ssl.get(), done) == SSL_ERROR_WANT_READ) return {};
      return std::unexpected(ssl_failure(state));
    }
    TUSK_TRY(finish(state));
  }
  return read_after_handshake(state);
}

Result<std::unique_ptr<HandshakeState>> start(bool is_client, const Identity& identity,
                                              const HandshakeOptions& options) {
  ERR_clear_error();
  auto state = std::make_unique<HandshakeState>();
  state->is_client = is_client;
  if (is_client) state->expected_server = options.expected_server;
  TUSK_ASSIGN(state->alpn, encode_alpn(options.protocols));

  state->context.reset(SSL_CTX_new(TLS_method()));
  SSL_CTX* context = state->context.get();
  if (!context || !configure(context, options.preferred_cipher) || !configure_side(context, *state) ||
      SSL_CTX_use_certificate(context, identity.certificate()) != 1 ||
      SSL_CTX_use_PrivateKey(context, identity.private_key()) != 1)
    return fail_openssl(ErrorCode::kInternal, "set up TLS");

  state->ssl.reset(SSL_new(context));
  if (!state->ssl || !attach_memory(state->ssl.get()))
    return fail_openssl(ErrorCode::kInternal, "set up TLS");
  if (is_client) {
    SSL_set_connect_state(state->ssl.get());
    TUSK_TRY(advance(*state));
  } else {
    SSL_set_accept_state(state->ssl.get());
  }
  return state;
}

}  // namespace

Handshake::Handshake(std::unique_ptr<HandshakeState> state) : state_(std::move(state)) {}
Handshake::Handshake(Handshake&&) noexcept = default;
Handshake& Handshake::operator=(Handshake&&) noexcept = default;
Handshake::~Handshake() = default;

Result<Handshake> Handshake::client(const Identity& identity, const HandshakeOptions& options) {
  TUSK_ASSIGN(std::unique_ptr<HandshakeState> state, start(true, identity, options));
  return Handshake(std::move(state));
}

Result<Handshake> Handshake::server(const Identity& identity, const HandshakeOptions& options) {
  TUSK_ASSIGN(std::unique_ptr<HandshakeState> state, start(false, identity, options));
  return Handshake(std::move(state));
}

Result<void> Handshake::handle_bytes(std::span<const std::byte> bytes) {
  HandshakeState& state = *state_;
  if (state.failure) return std::unexpected(*state.failure);
  Result<void> result;
  if (bytes.size() > kHandshakeBytesMax - state.bytes_in) {
    result = fail(ErrorCode::kLimitExceeded, "the peer's handshake is too long");
  } else if (!bytes.empty()) {
    state.bytes_in += bytes.size();
    const int size = static_cast<int>(bytes.size());
    TUSK_CHECK(BIO_write(SSL_get_rbio(state.ssl.get()), bytes.data(), size) == size);
    result = advance(state);
  }
  if (!result) state.failure = result.error();
  return result;
}

std::vector<std::byte> Handshake::take_output() {
  BIO* output = SSL_get_wbio(state_->ssl.get());
  std::vector<std::byte> bytes(BIO_ctrl_pending(output));
  if (bytes.empty()) return bytes;
  const int size = static_cast<int>(bytes.size());
  TUSK_CHECK(BIO_read(output, bytes.data(), size) == size);
  return bytes;
}

bool Handshake::complete() const { return state_->complete; }

const Fingerprint& Handshake::peer_fingerprint() const {
  TUSK_CHECK(complete());
  return *state_->peer;
}

const std::string& Handshake::protocol() const {
  TUSK_CHECK(complete());
  return state_->protocol;
}

PacketCipher Handshake::cipher() const {
  TUSK_CHECK(complete());
  const SSL_CIPHER* suite = SSL_get_current_cipher(state_->ssl.get());
  return SSL_CIPHER_get_id(suite) == TLS1_3_CK_CHACHA20_POLY1305_SHA256 ? PacketCipher::kChaCha20Poly1305
                                                                        : PacketCipher::kAes256Gcm;
}

Result<Secrets> Handshake::export_secrets(std::span<const std::byte> context) const {
  TUSK_CHECK(complete());
  ERR_clear_error();
  std::array<std::byte, 2 * Secret::kBytes> exported;
  if (SSL_export_keying_material(state_->ssl.get(), crypto::as_uchar(exported.data()), exported.size(),
                                 kExporterLabel.data(), kExporterLabel.size(),
                                 crypto::as_uchar(context.data()), context.size(),
                                 context.empty() ? 0 : 1) != 1)
    return fail_openssl(ErrorCode::kInternal, "export the packet secrets");
  const std::span<const std::byte, 2 * Secret::kBytes> halves(exported);
  Secrets secrets{cipher(), Secret(halves.first<Secret::kBytes>()), Secret(halves.last<Secret::kBytes>())};
  wipe(exported);
  return secrets;
}

}  // namespace tusk::crypto
