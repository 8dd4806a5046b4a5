// A directory that only its user may enter.
#pragma once

#include <filesystem>
#include <string_view>

#include "proto/base/result.h"

namespace tusk::client {

// Makes it, or finds that it is one already. Its parent must exist. An errno with a sentence if it is
// somebody else's, or others may enter it.
[[nodiscard]] Result<void> make_private_directory(const std::filesystem::path& directory);

// That it is one: as above, without making it. ENOENT where there is none.
[[nodiscard]] Result<void> check_private_directory(const std::filesystem::path& directory);

// What is put there gets its name once it is complete, by a rename; until then it is called so. Who does it
// is done within milliseconds, unless it is killed.
constexpr std::string_view kUnfinished = ".new";
// Removes what was left behind so.
void remove_unfinished(const std::filesystem::path& directory);

}  // namespace tusk::client
