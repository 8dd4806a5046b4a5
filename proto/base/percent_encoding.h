// Percent-encoding (RFC 3986 §2.1): any bytes as text without spaces or control characters.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tusk {

// Every byte but the unreserved characters (§2.3) and those of `keep`.
[[nodiscard]] std::string percent_encode(std::string_view text, std::string_view keep = {});
// nullopt: a percent sign without two hexadecimal digits after it.
[[nodiscard]] std::optional<std::string> percent_decode(std::string_view text);

}  // namespace tusk
