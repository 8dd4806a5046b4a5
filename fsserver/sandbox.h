// What a tuskd that an attacker has taken over can still do: less. docs/decisions/0022-sandbox.md says what
// is allowed and why.
//
// Both filters hold for the calling thread and for threads that it starts: enter the sandbox before the
// others. Neither can be left or widened.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "proto/base/result.h"

namespace tusk::server {

struct SandboxWish {
  bool system_calls = false;  // seccomp(2), and no core dumps or debuggers (PR_SET_DUMPABLE)
  // Landlock, where `files` is set: no other files are reached from then on.
  bool files = false;
  std::vector<std::filesystem::path> read_only;   // directories
  std::vector<std::filesystem::path> read_write;  // directories
  std::vector<std::filesystem::path> new_files;   // directories in which files are made, and none are read
};

// Enters it as far as this kernel can. What is in force, for the log and `tuskd clients`: "system calls
// (seccomp), files (Landlock 7)", with the reason for what is not; "none".
[[nodiscard]] std::string enter_sandbox(const SandboxWish& wish);

}  // namespace tusk::server
