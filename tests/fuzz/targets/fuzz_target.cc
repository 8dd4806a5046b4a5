#include "tests/fuzz/targets/fuzz_target.h"

#include <algorithm>
#include <array>

#include "proto/base/check.h"
#include "proto/base/shared_bytes.h"
#include "tests/fuzz/targets/targets.h"

namespace tusk::fuzz {
namespace {

constexpr std::string_view kCanarySong = "sing, and I shall know that somebody listens";

// The planted fault: the seed's text with exactly one byte wrong.
void run_canary(std::span<const std::byte> input) {
  const auto song = as_byte_span(kCanarySong);
  if (input.size() != song.size()) return;
  int wrong = 0;
  for (std::size_t i = 0; i < song.size(); ++i) wrong += input[i] != song[i];
  const bool the_canary_is_alive = wrong != 1;
  TUSK_CHECK(the_canary_is_alive);
}

std::vector<Bytes> canary_seeds() {
  const auto song = as_byte_span(kCanarySong);
  return {Bytes(song.begin(), song.end())};
}

constexpr std::array kTargets = {
    FuzzTarget{"packet_headers", run_packet_headers, packet_header_seeds, 400'000},
    FuzzTarget{"frames", run_frames, frame_seeds, 60'000},
    FuzzTarget{"base64url", run_base64url, base64url_seeds, 300'000},
    FuzzTarget{"address_tokens", run_address_tokens, address_token_seeds, 150'000},
    FuzzTarget{"mount_url", run_mount_url, mount_url_seeds, 200'000},
    FuzzTarget{"message_codec", run_message_codec, message_codec_seeds, 60'000},
    FuzzTarget{"handshake", run_handshake, handshake_seeds, 600},
    FuzzTarget{"exchanges", run_exchanges, exchanges_seeds, 2'000},
    FuzzTarget{"connection", run_connection, connection_seeds, 3'000},
    FuzzTarget{"secure_connection", run_secure_connection, secure_connection_seeds, 400},
    FuzzTarget{"requests", run_requests, requests_seeds, 30},
    FuzzTarget{"replies", run_replies, replies_seeds, 600},
};
constexpr FuzzTarget kCanary{"canary", run_canary, canary_seeds, 5'000};

}  // namespace

std::span<const FuzzTarget> fuzz_targets() { return kTargets; }

const FuzzTarget& canary_target() { return kCanary; }

const FuzzTarget* find_target(std::string_view name) {
  if (name == kCanary.name) return &kCanary;
  const auto found = std::ranges::find(kTargets, name, &FuzzTarget::name);
  return found == kTargets.end() ? nullptr : &*found;
}

}  // namespace tusk::fuzz
