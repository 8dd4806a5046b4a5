#include "proto/crypto/packet_keys.h"

#include <algorithm>
#include <utility>

#include "proto/base/check.h"

namespace tusk::crypto {

SendKeys::SendKeys(PacketCipher cipher, const Secret& traffic_secret, const KeyLimits& limits)
    : cipher_(cipher), limits_(limits), secret_(traffic_secret), protector_(cipher, traffic_secret) {}

void SendKeys::seal(std::uint64_t packet_number, std::span<const std::byte> header,
                    std::span<std::byte> packet, std::span<const std::byte> tail) {
  TUSK_CHECK(!exhausted());
  TUSK_CHECK(packet_number >= next_packet_number_);
  if (sealed_ == 0) first_of_generation_ = packet_number;
  next_packet_number_ = packet_number + 1;
  ++sealed_;
  protector_.seal(packet_number, header, packet, tail);
}

void SendKeys::handle_acknowledged(std::uint64_t packet_number) {
  if (sealed_ > 0 && packet_number >= first_of_generation_) acknowledged_ = true;
}

void SendKeys::update() {
  TUSK_CHECK(may_update());
  secret_ = next_traffic_secret(secret_);
  protector_ = PacketProtector(cipher_, secret_);
  ++generation_;
  sealed_ = 0;
  acknowledged_ = false;
}

ReceiveKeys::ReceiveKeys(PacketCipher cipher, const Secret& traffic_secret, const KeyLimits& limits)
    : cipher_(cipher),
      limits_(limits),
      next_secret_(next_traffic_secret(traffic_secret)),
      current_(cipher, traffic_secret),
      next_(cipher, next_secret_) {}

// A phase bit other than the current one means the generation before or the one after. Every packet
// of the one before has a lower number than any of the current one, so the number tells which.
bool ReceiveKeys::open(std::uint64_t packet_number, bool key_phase, std::span<const std::byte> header,
                       std::span<std::byte> packet) {
  if (integrity_limit_reached()) return false;
  const bool current_phase = (generation_ & 1) != 0;
  if (key_phase == current_phase) {
    if (!opens(current_, packet_number, header, packet)) return false;
    lowest_of_current_ = std::min(lowest_of_current_, packet_number);
    return true;
  }
  if (generation_ > 0 && packet_number < lowest_of_current_)
    return previous_ && opens(*previous_, packet_number, header, packet);
  if (!opens(next_, packet_number, header, packet)) return false;
  advance(packet_number);
  return true;
}

bool ReceiveKeys::opens(PacketProtector& protector, std::uint64_t packet_number,
                        std::span<const std::byte> header, std::span<std::byte> packet) {
  if (protector.open(packet_number, header, packet)) return true;
  ++failed_opens_;
  return false;
}

void ReceiveKeys::advance(std::uint64_t packet_number) {
  next_secret_ = next_traffic_secret(next_secret_);
  previous_ = std::exchange(current_, std::exchange(next_, PacketProtector(cipher_, next_secret_)));
  ++generation_;
  lowest_of_current_ = packet_number;
}

}  // namespace tusk::crypto
