#include "proto/crypto/aead.h"

namespace tusk::crypto {

std::unique_ptr<Aead> make_aead(PacketCipher cipher, std::span<const std::byte, kKeyBytes> key) {
  if (cipher == PacketCipher::kAes256Gcm)
    if (auto aead = make_ipsec_aead(key)) return aead;
  return make_openssl_aead(cipher, key);
}

}  // namespace tusk::crypto
