#include "fsserver/located.h"

#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "fsserver/state_file.h"
#include "proto/crypto/identity.h"

namespace tusk::server {
namespace {

std::unexpected<Error> misplaced(const std::filesystem::path& state_dir, const std::string& why) {
  return fail(
      ErrorCode::kBadConfig,
      state_dir.string() + " " + why +
          ": start a server first (tuskd share, or tuskd --config), or name the state directory of the "
          "one that is meant with --state-dir, or its configuration with --config");
}

Result<void> check_state_dir(const std::filesystem::path& state_dir) {
  struct stat status {};
  if (::stat(state_dir.c_str(), &status) != 0) {
    if (errno == ENOENT) return misplaced(state_dir, "does not exist");
    return fail_errno(state_dir.string());
  }
  if (!S_ISDIR(status.st_mode)) return misplaced(state_dir, "is not a directory");
  const std::filesystem::path key = state_dir / crypto::Identity::kFileName;
  if (::stat(key.c_str(), &status) == 0) return {};
  if (errno == ENOENT) return misplaced(state_dir, "holds no server's state");
  return fail_errno(key.string());
}

std::vector<io::Address> addresses_of(const ServerStatus& server) {
  std::vector<io::Address> addresses;
  for (const std::string& text : server.listen)
    if (const auto address = io::parse(text)) addresses.push_back(*address);
  return addresses;
}

// nullptr: there is none of that name.
const auto* export_in(const auto& exports, const std::string& name) {
  const auto found =
      std::ranges::find_if(exports, [&](const auto& exported) { return exported.name == name; });
  return found == exports.end() ? nullptr : &*found;
}

std::string names_of_exports(const Located& located) {
  std::set<std::string> names;
  for (const ServerStatus& server : located.running)
    for (const auto& exported : server.exports) names.insert(exported.name);
  if (located.config)
    for (const ExportSettings& exported : located.config->exports) names.insert(exported.name);
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "'" : ", '") + name + "'";
  return text;
}

}  // namespace

Result<ServerConfig> load_config(const std::string& file, const ExportCheck& check) {
  const auto text = read_state_file(file);
  if (!text) return fail(ErrorCode::kBadConfig, file + ": " + std::string(error_name(text.error().code)));
  if (!*text) return fail(ErrorCode::kBadConfig, file + ": there is no such file");
  auto config = parse_config(**text, check);
  if (!config) return fail(ErrorCode::kBadConfig, to_text(config.error(), file));
  return std::move(*config);
}

Result<Located> locate(const StateArguments& arguments) {
  Located located;
  if (!arguments.config_file.empty()) {
    TUSK_ASSIGN(located.config, load_config(arguments.config_file));
    located.state_dir = located.config->state_dir;
  }
  if (!arguments.state_dir.empty()) located.state_dir = arguments.state_dir;
  if (located.state_dir.empty()) {
    TUSK_ASSIGN(located.state_dir, default_state_dir());
  }
  TUSK_TRY(check_state_dir(located.state_dir));
  TUSK_ASSIGN(located.running, running_servers(located.state_dir));
  return located;
}

Result<Reachable> find_export(const Located& located, const std::string& name) {
  TUSK_TRY(rpc::check_export_name(name));
  std::optional<Reachable> running;  // several may export the same directory: who lets clients write
  for (const ServerStatus& server : located.running)
    if (const auto* exported = export_in(server.exports, name); exported != nullptr)
      if (!running || exported->access > running->access)
        running = Reachable{addresses_of(server), exported->access, ""};
  if (running) return std::move(*running);
  const ExportSettings* const configured =
      located.config ? export_in(located.config->exports, name) : nullptr;
  const bool known = located.config || !located.running.empty();
  if (known && configured == nullptr)
    return fail(ErrorCode::kBadConfig,
                "there is no export named '" + name + "'; there is " + names_of_exports(located));
  Reachable reachable;
  reachable.listen =
      configured != nullptr ? located.config->listen : std::vector{io::Address::any(rpc::kDefaultPort)};
  // What nobody knows is not warned of.
  reachable.access = configured != nullptr ? configured->access : Access::kReadWrite;
  reachable.warning =
      located.running.empty()
          ? "no server is running with " + located.state_dir.string() + "; this works once one exports '" +
                name + "'"
          : "no running server exports '" + name +
                "' yet; this works once it is started, or has reloaded its configuration (SIGHUP)";
  return reachable;
}

}  // namespace tusk::server
