#include "fsclient/known_servers.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace tusk::client {

Result<std::optional<crypto::Fingerprint>> KnownServers::find(const std::string& server) const {
  std::ifstream file(file_);
  std::string line;
  for (std::size_t number = 1; std::getline(file, line) && number <= kServersMax; ++number) {
    std::istringstream words(line);
    std::string name, key;
    if (!(words >> name) || name.starts_with('#')) continue;
    if (name != server) continue;
    words >> key;
    const Result<crypto::Fingerprint> fingerprint = crypto::Fingerprint::parse(key);
    if (!fingerprint)
      return fail(ErrorCode::kBadConfig,
                  file_.string() + " line " + std::to_string(number) + ": no fingerprint");
    return *fingerprint;
  }
  return std::nullopt;
}

Result<void> KnownServers::remember(const std::string& server, const crypto::Fingerprint& key) const {
  std::string text;
  {
    std::ifstream file(file_);
    for (std::string line; std::getline(file, line);)
      if (!line.starts_with(server + " ")) text += line + "\n";
  }
  text += server + " " + key.to_text() + "\n";
  const std::string fresh = file_.string() + "." + std::to_string(::getpid());
  const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return fail_errno("write " + fresh);
  const bool written =
      ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(fd) == 0;
  ::close(fd);
  if (!written || ::rename(fresh.c_str(), file_.c_str()) != 0) {
    const auto error = fail_errno("write " + file_.string());
    ::unlink(fresh.c_str());
    return error;
  }
  return {};
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
