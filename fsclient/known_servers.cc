#include "fsclient/known_servers.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

#include "fsclient/state_lines.h"

namespace tusk::client {

Result<std::optional<crypto::Fingerprint>> KnownServers::find(const std::string& server) const {
  const std::optional<StateLine> line = find_state_line(file_, server);
  if (!line) return std::nullopt;
  const Result<crypto::Fingerprint> fingerprint =
      crypto::Fingerprint::parse(line->words.substr(0, line->words.find_first_of(" \t\r")));
  if (!fingerprint)
    return fail(ErrorCode::kBadConfig,
                file_.string() + " line " + std::to_string(line->number) + ": no fingerprint");
  return *fingerprint;
}

Result<void> KnownServers::remember(const std::string& server, const crypto::Fingerprint& key) const {
  return replace_state_line(file_, server, key.to_text());
}

std::filesystem::path default_state_directory() {
  const auto absolute = [](const char* path) { return path != nullptr && *path == '/'; };
  if (const char* config = std::getenv("XDG_CONFIG_HOME"); absolute(config))
    return std::filesystem::path(config) / "tusk";
  if (const char* home = std::getenv("HOME"); absolute(home))
    return std::filesystem::path(home) / ".config/tusk";
  if (::geteuid() == 0) return "/etc/tusk";
  const passwd* user = ::getpwuid(::geteuid());
  if (user != nullptr && absolute(user->pw_dir)) return std::filesystem::path(user->pw_dir) / ".config/tusk";
  return "/tmp/tusk-" + std::to_string(::geteuid()) + "/config";
}

}  // namespace tusk::client
