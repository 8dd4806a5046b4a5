// What a command such as `tuskd token` is about: a state directory, the servers that run on it, and the
// configuration if one was named. Changes nothing.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "fsserver/cli.h"
#include "fsserver/config.h"
#include "fsserver/status_file.h"
#include "proto/base/result.h"
#include "proto/io/address.h"

namespace tusk::server {

struct Located {
  std::filesystem::path state_dir;
  std::vector<ServerStatus> running;
  std::optional<ServerConfig> config;
};

// kBadConfig when no server has ever made its state there: a mistyped directory must not become a new one.
[[nodiscard]] Result<Located> locate(const StateArguments& arguments);

// Where clients reach an export: of the server that has it, else as configured. A name that nobody exports is
// refused with those that there are, as far as they are known.
struct Reachable {
  std::vector<io::Address> listen;
  Access access = Access::kReadOnly;  // of the export: nobody has more
  std::string warning;                // when no server exports it yet
};
[[nodiscard]] Result<Reachable> find_export(const Located& located, const std::string& name);

// kBadConfig, naming the file, and each line of it that is wrong.
[[nodiscard]] Result<ServerConfig> load_config(const std::string& file, const ExportCheck& check = {});

}  // namespace tusk::server
