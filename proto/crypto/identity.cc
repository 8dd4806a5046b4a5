#include "proto/crypto/identity.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include <string>
#include <utility>

#include "proto/base/check.h"
#include "proto/base/shared_bytes.h"
#include "proto/crypto/key_file.h"
#include "proto/crypto/openssl.h"

namespace tusk::crypto {
namespace {

constexpr std::string_view kDeriveSalt = "tusk identity secrets";
constexpr std::size_t kEd25519SeedBytes = 32;

// Never expires and names nobody: RFC 5280 §4.1.2.5 gives the "no expiry" date. Trust comes from the
// fingerprint alone, so a clock here could only lock people out.
constexpr const char* kNotBefore = "19700101000000Z";
constexpr const char* kNotAfter = "99991231235959Z";
constexpr const char* kCommonName = "tusk";
constexpr long kSerialNumber = 1;
constexpr long kX509Version3 = 2;

// As few fields as a certificate can have: it travels in the server's first flight, whose size is
// bounded by three times the client's.
Result<X509Ptr> self_sign(EVP_PKEY* key) {
  X509Ptr certificate(X509_new());
  TUSK_CHECK(certificate != nullptr);
  X509* x509 = certificate.get();
  X509_NAME* name = X509_get_subject_name(x509);
  const bool filled =
      X509_set_version(x509, kX509Version3) == 1 &&
      ASN1_INTEGER_set(X509_get_serialNumber(x509), kSerialNumber) == 1 &&
      ASN1_TIME_set_string_X509(X509_getm_notBefore(x509), kNotBefore) == 1 &&
      ASN1_TIME_set_string_X509(X509_getm_notAfter(x509), kNotAfter) == 1 &&
      X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                                 reinterpret_cast<const unsigned char*>(kCommonName), -1, -1, 0) == 1 &&
      X509_set_issuer_name(x509, name) == 1 && X509_set_pubkey(x509, key) == 1;
  if (!filled || X509_sign(x509, key, nullptr) == 0)
    return fail_openssl(ErrorCode::kInternal, "make the certificate");
  return certificate;
}

Result<std::string> to_pem(EVP_PKEY* key) {
  const BioPtr bio(BIO_new(BIO_s_secmem()));
  TUSK_CHECK(bio != nullptr);
  if (PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return fail_openssl(ErrorCode::kInternal, "encode the key");
  char* data = nullptr;
  const long length = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<std::size_t>(length));
}

Result<std::shared_ptr<EVP_PKEY>> generate_key() {
  ERR_clear_error();
  PkeyPtr key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  if (!key) return fail_openssl(ErrorCode::kInternal, "generate an Ed25519 key");
  return std::shared_ptr<EVP_PKEY>(std::move(key));
}

// A key file without a passphrase must not make OpenSSL ask for one on the terminal.
int no_passphrase(char*, int, int, void*) { return -1; }

void wipe_text(std::string& text) { wipe(std::as_writable_bytes(std::span(text))); }

}  // namespace

Result<Fingerprint> fingerprint_of(EVP_PKEY* key) {
  if (!key || EVP_PKEY_get_id(key) != EVP_PKEY_ED25519)
    return fail(ErrorCode::kAuthenticationFailed, "the key is not an Ed25519 key");
  // Encoded anew from the key, so that an odd encoding in a certificate gives no second name to a key.
  unsigned char* der = nullptr;
  const int length = i2d_PUBKEY(key, &der);
  if (length <= 0) return fail_openssl(ErrorCode::kInternal, "encode the public key");
  Fingerprint fingerprint;
  fingerprint.bytes = sha256({reinterpret_cast<const std::byte*>(der), static_cast<std::size_t>(length)});
  OPENSSL_free(der);
  return fingerprint;
}

Result<Identity> Identity::from_key(std::shared_ptr<EVP_PKEY> key) {
  Identity identity;
  TUSK_ASSIGN(identity.fingerprint_, fingerprint_of(key.get()));
  TUSK_ASSIGN(X509Ptr certificate, self_sign(key.get()));
  identity.key_ = std::move(key);
  identity.certificate_ = std::move(certificate);
  return identity;
}

Result<Identity> Identity::from_pem(std::string_view pem, const std::filesystem::path& file) {
  ERR_clear_error();
  const BioPtr bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  TUSK_CHECK(bio != nullptr);
  PkeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr));
  if (!key)
    return fail_openssl(
        ErrorCode::kBadConfig,
        file.string() + " holds no readable key (restore it, or remove it to get a new identity)");
  if (EVP_PKEY_get_id(key.get()) != EVP_PKEY_ED25519)
    return fail(ErrorCode::kBadConfig, file.string() + " holds a key of another kind than Ed25519");
  return from_key(std::move(key));
}

Result<Identity> Identity::generate() {
  TUSK_ASSIGN(std::shared_ptr<EVP_PKEY> key, generate_key());
  return from_key(std::move(key));
}

Result<Identity> Identity::load_or_create(const std::filesystem::path& dir) {
  TUSK_TRY(prepare_private_directory(dir));
  const std::filesystem::path file = dir / kFileName;
  TUSK_ASSIGN(std::optional<std::string> pem, read_key_file(file));
  if (!pem) {
    TUSK_ASSIGN(const std::shared_ptr<EVP_PKEY> key, generate_key());
    TUSK_ASSIGN(std::string fresh, to_pem(key.get()));
    const Result<bool> created = create_key_file(file, fresh);
    wipe_text(fresh);
    if (!created) return std::unexpected(created.error());
    // Read back in both cases: what counts is what the next start will find, ours or that of
    // another process that was quicker.
    TUSK_ASSIGN(pem, read_key_file(file));
    if (!pem) return fail(from_errno(ENOENT), file.string() + " vanished while it was being made");
  }
  Result<Identity> identity = from_pem(*pem, file);
  wipe_text(*pem);
  return identity;
}

Secret Identity::derive_secret(std::string_view label) const {
  Secret seed;
  std::size_t length = seed.bytes.size();
  TUSK_CHECK(EVP_PKEY_get_raw_private_key(key_.get(), as_uchar(seed.bytes.data()), &length) == 1);
  TUSK_CHECK(length == kEd25519SeedBytes);
  const Secret root = hkdf_extract(as_byte_span(kDeriveSalt), seed.bytes);
  Secret secret;
  hkdf_expand(root, as_byte_span(label), secret.bytes);
  return secret;
}

}  // namespace tusk::crypto
