// The functions behind the list in fuzz_target.cc, one file a module under test.
#pragma once

#include <span>
#include <vector>

#include "tests/fuzz/targets/fuzz_target.h"

namespace tusk::fuzz {

// wire_targets.cc
void run_packet_headers(std::span<const std::byte> input);
std::vector<Bytes> packet_header_seeds();
void run_frames(std::span<const std::byte> input);
std::vector<Bytes> frame_seeds();

// text_targets.cc
void run_base64url(std::span<const std::byte> input);
std::vector<Bytes> base64url_seeds();
void run_address_tokens(std::span<const std::byte> input);
std::vector<Bytes> address_token_seeds();
void run_mount_url(std::span<const std::byte> input);
std::vector<Bytes> mount_url_seeds();
void run_message_codec(std::span<const std::byte> input);
std::vector<Bytes> message_codec_seeds();

// handshake_target.cc
void run_handshake(std::span<const std::byte> input);
std::vector<Bytes> handshake_seeds();

// exchanges_target.cc
void run_exchanges(std::span<const std::byte> input);
std::vector<Bytes> exchanges_seeds();

// connection_target.cc
void run_connection(std::span<const std::byte> input);
std::vector<Bytes> connection_seeds();

// secure_connection_target.cc
void run_secure_connection(std::span<const std::byte> input);
std::vector<Bytes> secure_connection_seeds();

// requests_target.cc
void run_requests(std::span<const std::byte> input);
std::vector<Bytes> requests_seeds();

// replies_target.cc
void run_replies(std::span<const std::byte> input);
std::vector<Bytes> replies_seeds();

}  // namespace tusk::fuzz
