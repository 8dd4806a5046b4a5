// Text of peers, users and file names on its way to terminals, logs and shells.
#pragma once

#include <string>
#include <string_view>

namespace tusk {

constexpr std::size_t kPrintableBytesMax = 255;

// The first `size_max` bytes, with '?' for every byte that is no part of printable UTF-8: such text cannot
// begin a line, move a cursor or colour a terminal.
[[nodiscard]] std::string printable(std::string_view text, std::size_t size_max = kPrintableBytesMax);

// ASCII's control characters, and those of Latin-1 (U+0080 to U+009F) in UTF-8.
[[nodiscard]] bool has_control_characters(std::string_view text);

// One word for a POSIX shell, in quotes only where it needs them.
[[nodiscard]] std::string shell_word(std::string_view text);

}  // namespace tusk
