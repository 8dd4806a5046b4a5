// A directory that only its user may enter.
#pragma once

#include <filesystem>

#include "proto/base/result.h"

namespace tusk::client {

// Makes it, or finds that it is one already. Its parent must exist. An errno with a sentence if it is
// somebody else's, or others may enter it.
[[nodiscard]] Result<void> make_private_directory(const std::filesystem::path& directory);

}  // namespace tusk::client
