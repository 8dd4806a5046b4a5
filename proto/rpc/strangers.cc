#include "proto/rpc/strangers.h"

#include "proto/rpc/client_route.h"

namespace tusk::rpc {
namespace {

constexpr ByteCount kAmplificationMax = ClientRoute<int>::kAmplificationMax;

}  // namespace

Stranger judge_stranger(std::span<const std::byte> datagram) {
  Stranger stranger;
  if (const auto parsed = wire::parse_short_header(datagram)) {
    stranger.to = parsed->header.to;
    // Also to the smallest packets: who waits for an answer sends nothing else. RFC 9000 §10.3.3 wants a
    // reset smaller than its cause, so that no two servers answer each other for ever: there it looks like
    // any short packet. Ours is a long packet, which is never answered with one; three times is the limit for
    // addresses.
    if (kAmplificationMax * datagram.size() >= wire::long_header_size(wire::kResetTokenSize))
      stranger.wants = Stranger::Wants::kReset;
    return stranger;
  }
  const auto parsed = wire::parse_long_header(datagram);
  // First flights are full-size: a small packet must not make us work or answer.
  if (!parsed || parsed->header.type != wire::LongType::kHandshake ||
      datagram.size() < wire::kDatagramSizeMin)
    return stranger;
  stranger.header = parsed->header;
  stranger.wants = stranger.header.version == wire::kVersion ? Stranger::Wants::kConnection
                                                             : Stranger::Wants::kAnotherVersion;
  return stranger;
}

wire::LongHeader another_version(const wire::LongHeader& asked) {
  wire::LongHeader answer;
  answer.type = wire::LongType::kVersionNegotiation;
  answer.to = asked.from;
  answer.from = asked.to;
  return answer;
}

wire::LongHeader retry_with(const wire::LongHeader& asked, std::span<const std::byte> token) {
  wire::LongHeader retry;
  retry.type = wire::LongType::kRetry;
  retry.to = asked.from;
  retry.from = asked.to;
  retry.token = token;
  return retry;
}

wire::LongHeader reset_of(const wire::ConnectionIdBytes& unknown, std::span<const std::byte> token) {
  wire::LongHeader reset;
  reset.type = wire::LongType::kReset;
  reset.from = unknown;
  reset.token = token;
  return reset;
}

}  // namespace tusk::rpc
