#include "proto/crypto/packet_cipher.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace tusk::crypto {
namespace {

bool has_aes_hardware() {
#if defined(__x86_64__) || defined(__i386__)
  return __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
#elif defined(__aarch64__)
  const unsigned long capabilities = getauxval(AT_HWCAP);
  return (capabilities & HWCAP_AES) && (capabilities & HWCAP_PMULL);
#else
  return false;
#endif
}

}  // namespace

PacketCipher native_packet_cipher() {
  return has_aes_hardware() ? PacketCipher::kAes256Gcm : PacketCipher::kChaCha20Poly1305;
}

std::string_view packet_cipher_name(PacketCipher cipher) {
  switch (cipher) {
    case PacketCipher::kAes256Gcm:
      return "AES-256-GCM";
    case PacketCipher::kChaCha20Poly1305:
      return "ChaCha20-Poly1305";
  }
  __builtin_unreachable();
}

}  // namespace tusk::crypto
