// Two directory trees, and what is different about them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tusk::test {

// One line for every difference in names, types, modes, owners, sizes, content, link counts, targets of
// symlinks, and user attributes; of times only those that were set to before kSetTimesEnd.
[[nodiscard]] std::vector<std::string> differences(const std::filesystem::path& a,
                                                   const std::filesystem::path& b);

// Times that a test sets lie in the 1970s, times of the clock do not.
constexpr long kSetTimesEnd = 300'000'000;

}  // namespace tusk::test
