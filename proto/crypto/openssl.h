// Ownership and errors of OpenSSL objects, for the .cc files of this folder only: no public header
// of proto/crypto shows an OpenSSL type.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <span>
#include <string>

#include "proto/base/result.h"

namespace tusk::crypto {

template <auto kFree>
struct OpensslFree {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};

using BioPtr = std::unique_ptr<BIO, OpensslFree<BIO_free_all>>;
using MacCtxPtr = std::unique_ptr<EVP_MAC_CTX, OpensslFree<EVP_MAC_CTX_free>>;
using PkeyPtr = std::unique_ptr<EVP_PKEY, OpensslFree<EVP_PKEY_free>>;
using PkeyCtxPtr = std::unique_ptr<EVP_PKEY_CTX, OpensslFree<EVP_PKEY_CTX_free>>;
using SslCtxPtr = std::unique_ptr<SSL_CTX, OpensslFree<SSL_CTX_free>>;
using SslPtr = std::unique_ptr<SSL, OpensslFree<SSL_free>>;
using X509Ptr = std::unique_ptr<X509, OpensslFree<X509_free>>;

// Empties the calling thread's OpenSSL error queue; returns its reasons joined by "; " (bounded).
[[nodiscard]] std::string drain_openssl_errors();

// An Error whose context is `context` followed by what OpenSSL's queue said; the queue is empty afterwards.
[[nodiscard]] std::unexpected<Error> fail_openssl(ErrorCode code, std::string context);

[[nodiscard]] inline unsigned char* as_uchar(std::byte* p) { return reinterpret_cast<unsigned char*>(p); }
[[nodiscard]] inline const unsigned char* as_uchar(const std::byte* p) {
  return reinterpret_cast<const unsigned char*>(p);
}

}  // namespace tusk::crypto
