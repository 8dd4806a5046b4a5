#include "proto/crypto/fingerprint.h"

#include <algorithm>

#include "proto/crypto/base64url.h"

namespace tusk::crypto {

std::string Fingerprint::to_text() const { return base64url_encode(bytes); }

Result<Fingerprint> Fingerprint::parse(std::string_view text) {
  if (text.size() != kTextLength)
    return fail(ErrorCode::kMalformed, "a key fingerprint has " + std::to_string(kTextLength) +
                                           " characters, not " + std::to_string(text.size()));
  TUSK_ASSIGN(const std::vector<std::byte> bytes, base64url_decode(text));
  Fingerprint fingerprint;
  std::ranges::copy(bytes, fingerprint.bytes.begin());
  return fingerprint;
}

}  // namespace tusk::crypto
