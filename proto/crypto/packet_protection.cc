#include "proto/crypto/packet_protection.h"

#include <algorithm>

#include "proto/base/check.h"
#include "proto/base/shared_bytes.h"

namespace tusk::crypto {
namespace {

constexpr std::string_view kKeyLabel = "tusk key";
constexpr std::string_view kIvLabel = "tusk iv";
constexpr std::string_view kKeyUpdateLabel = "tusk ku";

// Public by design; a new version of the handshake packets gets a new salt.
constexpr std::string_view kHandshakeSalt = "tusk/1 handshake packets";
constexpr std::string_view kFromClientLabel = "tusk client in";
constexpr std::string_view kFromServerLabel = "tusk server in";

}  // namespace

PacketProtector::PacketProtector(PacketProtector&&) noexcept = default;
PacketProtector& PacketProtector::operator=(PacketProtector&&) noexcept = default;
PacketProtector::~PacketProtector() = default;

PacketProtector::PacketProtector(PacketCipher cipher, const Secret& traffic_secret)
    : aead_(make_aead(cipher, hkdf_expand_label(traffic_secret, kKeyLabel).bytes)) {
  hkdf_expand_label(traffic_secret, kIvLabel, iv_);
}

PacketProtector::PacketProtector(PacketCipher cipher, std::span<const std::byte, kKeyBytes> key,
                                 std::span<const std::byte, kNonceBytes> iv)
    : aead_(make_aead(cipher, key)) {
  std::ranges::copy(iv, iv_.begin());
}

PacketProtector PacketProtector::for_handshake(std::span<const std::byte> client_connection_id,
                                               bool from_client) {
  const Secret root = hkdf_extract(as_byte_span(kHandshakeSalt), client_connection_id);
  return {PacketCipher::kAes256Gcm,
          hkdf_expand_label(root, from_client ? kFromClientLabel : kFromServerLabel)};
}

Aead::Nonce PacketProtector::nonce(std::uint64_t packet_number) const {
  Aead::Nonce nonce = iv_;
  for (std::size_t i = 0; i < sizeof packet_number; ++i)
    nonce[kNonceBytes - 1 - i] ^= static_cast<std::byte>(packet_number >> (8 * i) & 0xff);
  return nonce;
}

void PacketProtector::seal(std::uint64_t packet_number, std::span<const std::byte> header,
                           std::span<std::byte> packet, std::span<const std::byte> tail) {
  TUSK_CHECK(packet.size() >= kTagBytes + tail.size() && packet.size() <= kSealedPacketBytesMax);
  aead_->seal(nonce(packet_number), header, tail, packet);
}

bool PacketProtector::open(std::uint64_t packet_number, std::span<const std::byte> header,
                           std::span<std::byte> packet) {
  if (packet.size() < kTagBytes || packet.size() > kSealedPacketBytesMax) return false;
  return aead_->open(nonce(packet_number), header, packet);
}

Secret next_traffic_secret(const Secret& traffic_secret) {
  return hkdf_expand_label(traffic_secret, kKeyUpdateLabel);
}

}  // namespace tusk::crypto
