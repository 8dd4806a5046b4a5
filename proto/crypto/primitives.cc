#include "proto/crypto/primitives.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "proto/base/check.h"
#include "proto/base/shared_bytes.h"
#include "proto/crypto/openssl.h"

namespace tusk::crypto {
namespace {

constexpr std::string_view kTlsLabelPrefix = "tls13 ";

void append(std::vector<std::byte>& out, std::span<const std::byte> bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

// OpenSSL takes a null pointer for "as before", even of an empty key.
const unsigned char* never_null(std::span<const std::byte> bytes) {
  static constexpr unsigned char kNothing = 0;
  return bytes.empty() ? &kNothing : as_uchar(bytes.data());
}

MacCtxPtr make_hmac_context() {
  static EVP_MAC* const kHmac = EVP_MAC_fetch(nullptr, OSSL_MAC_NAME_HMAC, nullptr);
  char digest[] = "SHA256";
  const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                               OSSL_PARAM_construct_end()};
  MacCtxPtr context(EVP_MAC_CTX_new(kHmac));
  TUSK_CHECK(context != nullptr && EVP_MAC_CTX_set_params(context.get(), params) == 1);
  return context;
}

}  // namespace

void wipe(std::span<std::byte> bytes) { OPENSSL_cleanse(bytes.data(), bytes.size()); }

bool constant_time_equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Secret::Secret(std::span<const std::byte, kBytes> source) { std::ranges::copy(source, bytes.begin()); }

Secret Secret::random() {
  Secret secret;
  random_bytes(secret.bytes);
  return secret;
}

void random_bytes(std::span<std::byte> out) {
  TUSK_CHECK(out.size() <= static_cast<std::size_t>(std::numeric_limits<int>::max()));
  TUSK_CHECK(RAND_bytes(as_uchar(out.data()), static_cast<int>(out.size())) == 1);
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  random_bytes(std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

Sha256Digest sha256(std::span<const std::byte> data) {
  Sha256Digest digest;
  TUSK_CHECK(SHA256(as_uchar(data.data()), data.size(), as_uchar(digest.data())) != nullptr);
  return digest;
}

Sha256Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> data) {
  // Setting up a context costs as much as the MAC itself, and every request of a file server has one.
  thread_local const MacCtxPtr context = make_hmac_context();
  Sha256Digest digest;
  std::size_t length = 0;
  TUSK_CHECK(EVP_MAC_init(context.get(), never_null(key), key.size(), nullptr) == 1);
  TUSK_CHECK(EVP_MAC_update(context.get(), never_null(data), data.size()) == 1);
  TUSK_CHECK(EVP_MAC_final(context.get(), as_uchar(digest.data()), &length, digest.size()) == 1);
  return digest;
}

Secret hkdf_extract(std::span<const std::byte> salt, std::span<const std::byte> key_material) {
  Sha256Digest digest = hmac_sha256(salt, key_material);
  const Secret secret(digest);
  wipe(digest);
  return secret;
}

void hkdf_expand(const Secret& key, std::span<const std::byte> info, std::span<std::byte> out) {
  TUSK_CHECK(out.size() <= kHkdfOutputBytesMax);
  Sha256Digest block{};
  std::vector<std::byte> input;
  input.reserve(block.size() + info.size() + 1);  // once, so that no copy is left unwiped
  std::byte counter{0};
  while (!out.empty()) {
    input.clear();
    if (counter != std::byte{0}) append(input, block);
    append(input, info);
    counter = static_cast<std::byte>(std::to_integer<unsigned>(counter) + 1);
    input.push_back(counter);
    block = hmac_sha256(key.bytes, input);
    const std::size_t taken = std::min(out.size(), block.size());
    std::copy_n(block.begin(), taken, out.begin());
    out = out.subspan(taken);
  }
  wipe(block);
  wipe(input);
}

void hkdf_expand_label(const Secret& key, std::string_view label, std::span<std::byte> out) {
  TUSK_CHECK(!label.empty() && label.size() <= kLabelBytesMax);
  TUSK_CHECK(out.size() <= std::numeric_limits<std::uint16_t>::max());
  std::vector<std::byte> info;
  info.push_back(static_cast<std::byte>(out.size() >> 8));
  info.push_back(static_cast<std::byte>(out.size() & 0xff));
  info.push_back(static_cast<std::byte>(kTlsLabelPrefix.size() + label.size()));
  append(info, as_byte_span(kTlsLabelPrefix));
  append(info, as_byte_span(label));
  info.push_back(std::byte{0});  // the empty context's length
  hkdf_expand(key, info, out);
}

Secret hkdf_expand_label(const Secret& key, std::string_view label) {
  Secret out;
  hkdf_expand_label(key, label, out.bytes);
  return out;
}

}  // namespace tusk::crypto
