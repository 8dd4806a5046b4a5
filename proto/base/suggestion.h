// The word that somebody meant who wrote one that there is not.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tusk {

// The one of `known` most like `word`: a few letters wrong, or some left out ("mnt"). "" if none is close.
[[nodiscard]] std::string_view closest_word(std::string_view word, std::span<const std::string_view> known);

// A sentence about a command that there is not: which was meant, or which there are.
[[nodiscard]] std::string no_such_command(std::string_view word, std::span<const std::string> known);

}  // namespace tusk
