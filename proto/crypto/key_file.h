// A small secret file in a private directory: read with its permissions checked, written once and
// whole. Knows nothing of what is in the file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "proto/base/result.h"

namespace tusk::crypto {

constexpr std::size_t kKeyFileBytesMax = 4096;

// Makes `dir` (0700) and its parents if missing. kBadConfig if `dir` is no directory, or if others
// could replace files in it: writable by group or all, or owned by another user than root or us.
[[nodiscard]] Result<void> prepare_private_directory(const std::filesystem::path& dir);

// The file's bytes, or nothing if there is no such file. kBadConfig if it is not a regular file, is
// readable by group or all, or is longer than kKeyFileBytesMax.
[[nodiscard]] Result<std::optional<std::string>> read_key_file(const std::filesystem::path& file);

// Creates `file` (0600) with `content`, durable before it is visible under its name. False, and
// nothing changed, if the file exists already.
[[nodiscard]] Result<bool> create_key_file(const std::filesystem::path& file, std::string_view content);

}  // namespace tusk::crypto
