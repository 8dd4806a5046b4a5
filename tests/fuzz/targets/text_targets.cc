// What users paste, files keep and peers show: base64url, tokens, URLs, messages.
#include <algorithm>

#include "proto/base/check.h"
#include "proto/base/shared_bytes.h"
#include "proto/crypto/address_token.h"
#include "proto/crypto/base64url.h"
#include "proto/rpc/message_codec.h"
#include "proto/rpc/mount_url.h"
#include "tests/fuzz/targets/operations.h"
#include "tests/fuzz/targets/targets.h"
#include "tests/golden/samples/samples.h"

namespace tusk::fuzz {
namespace {

Bytes bytes_of(std::string_view text) {
  const auto bytes = as_byte_span(text);
  return {bytes.begin(), bytes.end()};
}

// ---------------------------------------------------------------- address tokens

constexpr crypto::UnixSeconds kNow(1'700'000'000);

const crypto::AddressTokens& tokens() {
  static const Bytes kKey = golden::counting_bytes(crypto::Secret::kBytes, 7);
  static const crypto::AddressTokens kTokens{
      crypto::Secret(std::span<const std::byte, crypto::Secret::kBytes>(kKey))};
  return kTokens;
}

// The connection id that a token of its kind is bound to.
Bytes id_of(std::optional<crypto::AddressTokenKind> kind) {
  return kind == crypto::AddressTokenKind::kRetry ? golden::counting_bytes(8, 99) : Bytes{};
}

const std::vector<Bytes>& minted_tokens() {
  static const std::vector<Bytes> kMinted = [] {
    const Bytes address = golden::counting_bytes(6);
    std::vector<Bytes> minted;
    for (const auto kind : {crypto::AddressTokenKind::kRetry, crypto::AddressTokenKind::kFuture,
                            crypto::AddressTokenKind::kAdmitted})
      minted.push_back(tokens().mint(kind, address, id_of(kind), kNow));
    return minted;
  }();
  return kMinted;
}

// ---------------------------------------------------------------- messages

template <class Message>
void decode_and_encode(std::span<const std::byte> input) {
  Message message;
  if (!rpc::decode_message(input, message)) return;
  const auto encoded = rpc::encode_message(message);
  if (!encoded) {
    TUSK_CHECK(encoded.error().code == ErrorCode::kLimitExceeded);
    return;
  }
  Message again;
  TUSK_CHECK(rpc::decode_message(encoded->bytes, again));
  TUSK_CHECK(again.SerializeAsString() == message.SerializeAsString());
}

}  // namespace

void run_base64url(std::span<const std::byte> input) {
  if (const auto decoded = crypto::base64url_decode(as_text(input)))
    TUSK_CHECK(crypto::base64url_encode(*decoded) == as_text(input));
  const auto decoded = crypto::base64url_decode(crypto::base64url_encode(input));
  TUSK_CHECK(decoded && std::ranges::equal(*decoded, input));
}

std::vector<Bytes> base64url_seeds() {
  return {bytes_of(""), bytes_of("AA"), bytes_of("AAA"), bytes_of("abcd-_09"),
          bytes_of("n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is0V1sFbDwCgg")};
}

void run_address_tokens(std::span<const std::byte> input) {
  const Bytes id = id_of(crypto::token_kind(input));
  const Bytes address = golden::counting_bytes(6);
  const auto checked = tokens().check(input, address, id, kNow);
  // Nobody else can make one.
  TUSK_CHECK(!checked || std::ranges::any_of(minted_tokens(),
                                             [&](const Bytes& m) { return std::ranges::equal(m, input); }));
  const Bytes elsewhere = golden::counting_bytes(6, 1);
  TUSK_CHECK(!tokens().check(input, elsewhere, id, kNow));
}

std::vector<Bytes> address_token_seeds() { return minted_tokens(); }

void run_mount_url(std::span<const std::byte> input) {
  const auto url = rpc::MountUrl::parse(as_text(input));
  if (!url) {
    TUSK_CHECK(url.error().code == ErrorCode::kBadConfig);
    return;
  }
  TUSK_CHECK(!url->export_name.empty() && url->export_name.size() <= rpc::kExportNameBytesMax);
  TUSK_CHECK(url->export_name.find('/') == std::string::npos &&
             url->export_name.find('\0') == std::string::npos);
  TUSK_CHECK(url->token.empty() || url->token.size() == rpc::kTokenBytes);
  const auto again = rpc::MountUrl::parse(url->to_text());
  TUSK_CHECK(again && *again == *url);
}

std::vector<Bytes> mount_url_seeds() {
  return {
      bytes_of("tusk://host/music"),
      bytes_of("tusk://192.0.2.1:8875/a%20b%C3%A9#AAAAAAAAAAAAAAAAAAAAAA"),
      bytes_of("tusk://[2001:db8::1]:1/x#n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is0V1sFbDwCgg"),
      bytes_of("tusk://files.example.org/home#" + std::string(64, 'A')),
  };
}

void run_message_codec(std::span<const std::byte> input) {
  decode_and_encode<schema::Request>(input);
  decode_and_encode<schema::Reply>(input);
}

std::vector<Bytes> message_codec_seeds() {
  std::vector<Bytes> seeds;
  for (const auto& sample : golden::message_samples()) {
    const auto encoded = rpc::encode_message(sample.request);
    seeds.emplace_back(encoded->bytes.begin(), encoded->bytes.end());
  }
  return seeds;
}

}  // namespace tusk::fuzz
