#include <openssl/err.h>
#include <openssl/evp.h>

#include "proto/base/check.h"
#include "proto/crypto/aead.h"
#include "proto/crypto/openssl.h"

namespace tusk::crypto {
namespace {

// A fetch walks the providers under locks and costs more than a packet. Never freed: keys in static storage
// may outlive any order of destruction we could choose.
const EVP_CIPHER* fetched(PacketCipher cipher) {
  static const EVP_CIPHER* const kAes = EVP_CIPHER_fetch(nullptr, "AES-256-GCM", nullptr);
  static const EVP_CIPHER* const kChaCha = EVP_CIPHER_fetch(nullptr, "ChaCha20-Poly1305", nullptr);
  const EVP_CIPHER* found = cipher == PacketCipher::kAes256Gcm ? kAes : kChaCha;
  TUSK_CHECK(found != nullptr);
  return found;
}

class OpensslAead final : public Aead {
 public:
  // The context serves both directions: in GCM and in ChaCha20-Poly1305 the key schedule is the same
  // for sealing and opening, and the per-packet init says which one it is.
  OpensslAead(PacketCipher cipher, std::span<const std::byte, kKeyBytes> key)
      : context_(EVP_CIPHER_CTX_new()) {
    TUSK_CHECK(context_ != nullptr);
    TUSK_CHECK(EVP_EncryptInit_ex2(context_.get(), fetched(cipher), as_uchar(key.data()), nullptr, nullptr) ==
               1);
    TUSK_CHECK(EVP_CIPHER_CTX_get_iv_length(context_.get()) == static_cast<int>(kNonceBytes));
  }

  void seal(const Nonce& nonce, std::span<const std::byte> header, std::span<const std::byte> tail,
            std::span<std::byte> packet) override {
    EVP_CIPHER_CTX* const context = context_.get();
    const auto text = packet.first(packet.size() - kTagBytes - tail.size());
    const auto tag = packet.last(kTagBytes);
    TUSK_CHECK(EVP_EncryptInit_ex2(context, nullptr, nullptr, as_uchar(nonce.data()), nullptr) == 1);
    encrypt(nullptr, header);
    encrypt(text.data(), text);
    encrypt(packet.data() + text.size(), tail);
    int length = 0;
    TUSK_CHECK(EVP_EncryptFinal_ex(context, as_uchar(tag.data()), &length) == 1 && length == 0);
    TUSK_CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, static_cast<int>(kTagBytes), tag.data()) ==
               1);
  }

  bool open(const Nonce& nonce, std::span<const std::byte> header, std::span<std::byte> packet) override {
    EVP_CIPHER_CTX* const context = context_.get();
    const auto text = packet.first(packet.size() - kTagBytes);
    const auto tag = packet.last(kTagBytes);
    TUSK_CHECK(EVP_DecryptInit_ex2(context, nullptr, nullptr, as_uchar(nonce.data()), nullptr) == 1);
    TUSK_CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, static_cast<int>(kTagBytes), tag.data()) ==
               1);
    decrypt(nullptr, header);
    decrypt(text.data(), text);
    int length = 0;
    std::byte nothing;
    if (EVP_DecryptFinal_ex(context, as_uchar(&nothing), &length) == 1) return true;
    ERR_clear_error();
    return false;
  }

 private:
  // To nowhere: additional data.
  void encrypt(std::byte* to, std::span<const std::byte> bytes) {
    int length = 0;
    if (bytes.empty()) return;
    TUSK_CHECK(EVP_EncryptUpdate(context_.get(), as_uchar(to), &length, as_uchar(bytes.data()),
                                 static_cast<int>(bytes.size())) == 1);
  }
  void decrypt(std::byte* to, std::span<const std::byte> bytes) {
    int length = 0;
    if (bytes.empty()) return;
    TUSK_CHECK(EVP_DecryptUpdate(context_.get(), as_uchar(to), &length, as_uchar(bytes.data()),
                                 static_cast<int>(bytes.size())) == 1);
  }

  std::unique_ptr<EVP_CIPHER_CTX, OpensslFree<EVP_CIPHER_CTX_free>> context_;  // keyed once
};

}  // namespace

std::unique_ptr<Aead> make_openssl_aead(PacketCipher cipher, std::span<const std::byte, kKeyBytes> key) {
  return std::make_unique<OpensslAead>(cipher, key);
}

}  // namespace tusk::crypto
