// Small text files in the client's state directory with one line a server: "HOST:PORT WORDS". Other mounts
// use them at the same time: who replaces a line last, wins.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "proto/base/result.h"

namespace tusk::client {

struct StateLine {
  std::size_t number = 0;  // from 1
  std::string words;
};

// Lines further down are not looked at.
constexpr std::size_t kStateLinesMax = 100'000;

// nullopt: no such line, or no such file. A comment's first word is no server.
[[nodiscard]] std::optional<StateLine> find_state_line(const std::filesystem::path& file,
                                                       const std::string& server);
// Atomic, and not beside another mount's; the file is 0600. May block for a second.
[[nodiscard]] Result<void> replace_state_line(const std::filesystem::path& file, const std::string& server,
                                              const std::string& words);

}  // namespace tusk::client
