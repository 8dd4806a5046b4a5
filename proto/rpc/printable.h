// Text of peers, fit for logs and terminals: it cannot begin a line, move the cursor or go on for ever.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace tusk::rpc {

[[nodiscard]] inline std::string printable(std::string_view text, std::size_t size_max = 255) {
  std::string clean(text.substr(0, size_max));
  std::ranges::replace_if(
      clean, [](unsigned char c) { return c < 0x20 || c >= 0x7f; }, '?');
  return clean;
}

}  // namespace tusk::rpc
