// base64url without padding, RFC 4648 §5: bytes as text that survives URLs, shells and file names.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/base/result.h"

namespace tusk::crypto {

[[nodiscard]] std::string base64url_encode(std::span<const std::byte> bytes);

// Strict: exactly what base64url_encode makes and nothing else, so that each value has one text.
// kMalformed for foreign characters, padding, an impossible length or stray bits at the end.
// The result is three quarters of the text: who takes text from outside limits its length first.
[[nodiscard]] Result<std::vector<std::byte>> base64url_decode(std::string_view text);

}  // namespace tusk::crypto
