#include "proto/crypto/aead.h"

#if defined(TUSK_HAVE_IPSEC_MB)

#define NO_COMPAT_IMB_API_053  // old names, as macros, which are OpenSSL's functions
#include <intel-ipsec-mb.h>
#include <openssl/crypto.h>

#include <cstdint>

#include "proto/base/check.h"

namespace tusk::crypto {
namespace {

// Which functions this processor can run; nullptr if it lacks what makes them fast and constant in time.
// Never freed, as OpenSSL's ciphers (aead_openssl.cc).
const IMB_MGR* manager() {
  static const IMB_MGR* const kManager = []() -> const IMB_MGR* {
    if (!__builtin_cpu_supports("avx"))
      return nullptr;  // asks the operating system, too, as the library does not
    IMB_MGR* const made = ::alloc_mb_mgr(0);
    if (made == nullptr) return nullptr;
    ::init_mb_mgr_auto(made, nullptr);
    constexpr std::uint64_t kNeeded = IMB_FEATURE_AESNI | IMB_FEATURE_PCLMULQDQ;
    bool good = ::imb_get_errno(made) == 0 && (made->features & kNeeded) == kNeeded;
#if defined(IMB_FEATURE_AESNI_EMU)
    good = good && (made->features & IMB_FEATURE_AESNI_EMU) == 0;
#endif
    if (good) return made;
    ::free_mb_mgr(made);
    return nullptr;
  }();
  return kManager;
}

const std::uint8_t* as_u8(const std::byte* bytes) { return reinterpret_cast<const std::uint8_t*>(bytes); }
std::uint8_t* as_u8(std::byte* bytes) { return reinterpret_cast<std::uint8_t*>(bytes); }

class IpsecAead final : public Aead {
 public:
  IpsecAead(const IMB_MGR* manager, std::span<const std::byte, kKeyBytes> key) : manager_(manager) {
    IMB_AES256_GCM_PRE(manager_, key.data(), &key_);
  }
  ~IpsecAead() override {
    ::OPENSSL_cleanse(&key_, sizeof key_);
    ::OPENSSL_cleanse(&state_, sizeof state_);
  }

  void seal(const Nonce& nonce, std::span<const std::byte> header, std::span<const std::byte> tail,
            std::span<std::byte> packet) override {
    const std::size_t text = packet.size() - kTagBytes - tail.size();
    std::uint8_t* const out = as_u8(packet.data());
    std::uint8_t* const tag = out + text + tail.size();
    if (tail.empty()) {
      IMB_AES256_GCM_ENC(manager_, &key_, &state_, out, out, text, as_u8(nonce.data()), as_u8(header.data()),
                         header.size(), tag, kTagBytes);
      return;
    }
    IMB_AES256_GCM_INIT(manager_, &key_, &state_, as_u8(nonce.data()), as_u8(header.data()), header.size());
    if (text > 0) IMB_AES256_GCM_ENC_UPDATE(manager_, &key_, &state_, out, out, text);
    IMB_AES256_GCM_ENC_UPDATE(manager_, &key_, &state_, out + text, as_u8(tail.data()), tail.size());
    IMB_AES256_GCM_ENC_FINALIZE(manager_, &key_, &state_, tag, kTagBytes);
  }

  bool open(const Nonce& nonce, std::span<const std::byte> header, std::span<std::byte> packet) override {
    const std::size_t text = packet.size() - kTagBytes;
    std::uint8_t* const in = as_u8(packet.data());
    std::array<std::uint8_t, kTagBytes> tag;
    IMB_AES256_GCM_DEC(manager_, &key_, &state_, in, in, text, as_u8(nonce.data()), as_u8(header.data()),
                       header.size(), tag.data(), tag.size());
    return ::CRYPTO_memcmp(tag.data(), in + text, tag.size()) == 0;
  }

 private:
  const IMB_MGR* manager_;
  gcm_key_data key_;
  gcm_context_data state_;  // of one packet; theirs to write into
};

}  // namespace

std::unique_ptr<Aead> make_ipsec_aead(std::span<const std::byte, kKeyBytes> key) {
  const IMB_MGR* const found = manager();
  return found != nullptr ? std::make_unique<IpsecAead>(found, key) : nullptr;
}

}  // namespace tusk::crypto

#else

namespace tusk::crypto {

std::unique_ptr<Aead> make_ipsec_aead(std::span<const std::byte, kKeyBytes>) { return nullptr; }

}  // namespace tusk::crypto

#endif
