// Who a server or a client is: a long-lived Ed25519 key with a self-signed certificate around it.
//
// Only the key is kept on disk. The certificate is computed from it (Ed25519 signs deterministically
// and the certificate has no clock in it), so there is no pair of files that a crash could tear apart.
// Says nothing about who may do what: that is decided above, by fingerprint.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "proto/base/result.h"
#include "proto/crypto/fingerprint.h"
#include "proto/crypto/primitives.h"

struct evp_pkey_st;
struct x509_st;

namespace tusk::crypto {

// Immutable; copies share the key; may be used by several threads at once.
class Identity {
 public:
  // The file in the state directory that holds the key (PKCS #8, PEM).
  static constexpr std::string_view kFileName = "identity.key";

  // The identity kept in `dir`; made there (directory 0700, file 0600) if there is none yet. Atomic:
  // after a crash there is the whole key or none, and two processes starting at once get the same one.
  // kBadConfig if others could read or replace the key, or if the file is no Ed25519 key: it is never
  // overwritten, since a new key would lock out every peer that knows the old one. Else the errno.
  [[nodiscard]] static Result<Identity> load_or_create(const std::filesystem::path& dir);

  // A new key in memory only.
  [[nodiscard]] static Result<Identity> generate();

  [[nodiscard]] const Fingerprint& fingerprint() const { return fingerprint_; }

  // A secret that only the holder of the key can compute, a different one for each `label`, the same
  // after a restart: for MAC keys that need no file of their own.
  [[nodiscard]] Secret derive_secret(std::string_view label) const;

  // For the handshake. Owned by the identity.
  [[nodiscard]] evp_pkey_st* private_key() const { return key_.get(); }
  [[nodiscard]] x509_st* certificate() const { return certificate_.get(); }

 private:
  Identity() = default;
  [[nodiscard]] static Result<Identity> from_key(std::shared_ptr<evp_pkey_st> key);
  [[nodiscard]] static Result<Identity> from_pem(std::string_view pem, const std::filesystem::path& file);

  std::shared_ptr<evp_pkey_st> key_;
  std::shared_ptr<x509_st> certificate_;
  Fingerprint fingerprint_;
};

// The fingerprint of an Ed25519 public key; kAuthenticationFailed for any other kind of key.
[[nodiscard]] Result<Fingerprint> fingerprint_of(evp_pkey_st* key);

}  // namespace tusk::crypto
