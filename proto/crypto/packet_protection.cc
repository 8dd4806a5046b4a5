#include "proto/crypto/packet_protection.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>

#include <algorithm>

#include "proto/base/check.h"
#include "proto/base/shared_bytes.h"
#include "proto/crypto/openssl.h"

namespace tusk::crypto {
namespace {

constexpr std::string_view kKeyLabel = "tusk key";
constexpr std::string_view kIvLabel = "tusk iv";
constexpr std::string_view kKeyUpdateLabel = "tusk ku";

// Public by design; a new version of the handshake packets gets a new salt.
constexpr std::string_view kHandshakeSalt = "tusk/1 handshake packets";
constexpr std::string_view kFromClientLabel = "tusk client in";
constexpr std::string_view kFromServerLabel = "tusk server in";

// A fetch walks the providers under locks and costs more than a packet. Never freed: protectors in
// static storage may outlive any order of destruction we could choose.
const EVP_CIPHER* fetched(PacketCipher cipher) {
  static const EVP_CIPHER* const kAes = EVP_CIPHER_fetch(nullptr, "AES-256-GCM", nullptr);
  static const EVP_CIPHER* const kChaCha = EVP_CIPHER_fetch(nullptr, "ChaCha20-Poly1305", nullptr);
  const EVP_CIPHER* found = cipher == PacketCipher::kAes256Gcm ? kAes : kChaCha;
  TUSK_CHECK(found != nullptr);
  return found;
}

}  // namespace

void PacketProtector::ContextFree::operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }

PacketProtector::PacketProtector(PacketProtector&&) noexcept = default;
PacketProtector& PacketProtector::operator=(PacketProtector&&) noexcept = default;
PacketProtector::~PacketProtector() = default;

PacketProtector::PacketProtector(PacketCipher cipher, const Secret& traffic_secret) {
  const Secret key = hkdf_expand_label(traffic_secret, kKeyLabel);
  hkdf_expand_label(traffic_secret, kIvLabel, iv_);
  init_context(cipher, key.bytes);
}

PacketProtector::PacketProtector(PacketCipher cipher, std::span<const std::byte, kKeyBytes> key,
                                 std::span<const std::byte, kNonceBytes> iv) {
  std::ranges::copy(iv, iv_.begin());
  init_context(cipher, key);
}

PacketProtector PacketProtector::for_handshake(std::span<const std::byte> client_connection_id,
                                               bool from_client) {
  const Secret root = hkdf_extract(as_byte_span(kHandshakeSalt), client_connection_id);
  return {PacketCipher::kAes256Gcm,
          hkdf_expand_label(root, from_client ? kFromClientLabel : kFromServerLabel)};
}

// The context serves both directions: in GCM and in ChaCha20-Poly1305 the key schedule is the same
// for sealing and opening, and the per-packet init says which one it is.
void PacketProtector::init_context(PacketCipher cipher, std::span<const std::byte, kKeyBytes> key) {
  context_.reset(EVP_CIPHER_CTX_new());
  TUSK_CHECK(context_ != nullptr);
  TUSK_CHECK(EVP_EncryptInit_ex2(context_.get(), fetched(cipher), as_uchar(key.data()), nullptr, nullptr) ==
             1);
  TUSK_CHECK(EVP_CIPHER_CTX_get_iv_length(context_.get()) == static_cast<int>(kNonceBytes));
}

PacketProtector::Nonce PacketProtector::nonce(std::uint64_t packet_number) const {
  Nonce nonce = iv_;
  for (std::size_t i = 0; i < sizeof packet_number; ++i)
    nonce[kNonceBytes - 1 - i] ^= static_cast<std::byte>(packet_number >> (8 * i) & 0xff);
  return nonce;
}

void PacketProtector::start_sealing(std::uint64_t packet_number, std::span<const std::byte> header) {
  EVP_CIPHER_CTX* context = context_.get();
  const Nonce packet_nonce = nonce(packet_number);
  TUSK_CHECK(EVP_EncryptInit_ex2(context, nullptr, nullptr, as_uchar(packet_nonce.data()), nullptr) == 1);
  int length = 0;
  if (!header.empty())
    TUSK_CHECK(EVP_EncryptUpdate(context, nullptr, &length, as_uchar(header.data()),
                                 static_cast<int>(header.size())) == 1);
}

void PacketProtector::finish_sealing(std::span<std::byte> tag) {
  EVP_CIPHER_CTX* context = context_.get();
  int length = 0;
  TUSK_CHECK(EVP_EncryptFinal_ex(context, as_uchar(tag.data()), &length) == 1 && length == 0);
  TUSK_CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, static_cast<int>(kTagBytes), tag.data()) ==
             1);
}

void PacketProtector::seal(std::uint64_t packet_number, std::span<const std::byte> header,
                           std::span<std::byte> packet) {
  TUSK_CHECK(packet.size() >= kTagBytes && packet.size() <= kSealedPacketBytesMax);
  start_sealing(packet_number, header);
  const std::span<std::byte> text = packet.first(packet.size() - kTagBytes);
  int length = 0;
  if (!text.empty())
    TUSK_CHECK(EVP_EncryptUpdate(context_.get(), as_uchar(text.data()), &length, as_uchar(text.data()),
                                 static_cast<int>(text.size())) == 1);
  finish_sealing(packet.last(kTagBytes));
}

void PacketProtector::seal(std::uint64_t packet_number, std::span<const std::byte> header,
                           std::span<const std::span<const std::byte>> pieces, std::span<std::byte> packet) {
  TUSK_CHECK(packet.size() >= kTagBytes && packet.size() <= kSealedPacketBytesMax);
  start_sealing(packet_number, header);
  std::span<std::byte> rest = packet.first(packet.size() - kTagBytes);
  for (const std::span<const std::byte> piece : pieces) {
    TUSK_CHECK(piece.size() <= rest.size());
    if (piece.empty()) continue;
    int length = 0;
    TUSK_CHECK(EVP_EncryptUpdate(context_.get(), as_uchar(rest.data()), &length, as_uchar(piece.data()),
                                 static_cast<int>(piece.size())) == 1);
    rest = rest.subspan(piece.size());
  }
  TUSK_CHECK(rest.empty());
  finish_sealing(packet.last(kTagBytes));
}

bool PacketProtector::open(std::uint64_t packet_number, std::span<const std::byte> header,
                           std::span<std::byte> packet) {
  if (packet.size() < kTagBytes || packet.size() > kSealedPacketBytesMax) return false;
  EVP_CIPHER_CTX* context = context_.get();
  const Nonce packet_nonce = nonce(packet_number);
  const std::span<std::byte> text = packet.first(packet.size() - kTagBytes);
  const std::span<std::byte> tag = packet.last(kTagBytes);
  TUSK_CHECK(EVP_DecryptInit_ex2(context, nullptr, nullptr, as_uchar(packet_nonce.data()), nullptr) == 1);
  TUSK_CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, static_cast<int>(kTagBytes), tag.data()) ==
             1);
  int length = 0;
  if (!header.empty())
    TUSK_CHECK(EVP_DecryptUpdate(context, nullptr, &length, as_uchar(header.data()),
                                 static_cast<int>(header.size())) == 1);
  if (!text.empty())
    TUSK_CHECK(EVP_DecryptUpdate(context, as_uchar(text.data()), &length, as_uchar(text.data()),
                                 static_cast<int>(text.size())) == 1);
  std::byte nothing;
  if (EVP_DecryptFinal_ex(context, as_uchar(&nothing), &length) == 1) return true;
  ERR_clear_error();
  return false;
}

Secret next_traffic_secret(const Secret& traffic_secret) {
  return hkdf_expand_label(traffic_secret, kKeyUpdateLabel);
}

}  // namespace tusk::crypto
