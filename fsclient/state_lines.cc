#include "fsclient/state_lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace tusk::client {

std::optional<StateLine> find_state_line(const std::filesystem::path& file, const std::string& server) {
  std::ifstream stream(file);
  std::string line;
  for (std::size_t number = 1; std::getline(stream, line) && number <= kStateLinesMax; ++number) {
    std::istringstream words(line);
    std::string name, rest;
    if (!(words >> name) || name.starts_with('#') || name != server) continue;
    std::getline(words >> std::ws, rest);
    return StateLine{.number = number, .words = rest};
  }
  return std::nullopt;
}

Result<void> replace_state_line(const std::filesystem::path& file, const std::string& server,
                                const std::string& words) {
  std::string text;
  {
    std::ifstream stream(file);
    for (std::string line; std::getline(stream, line);)
      if (!line.starts_with(server + " ")) text += line + "\n";
  }
  text += server + " " + words + "\n";
  const std::string fresh = file.string() + "." + std::to_string(::getpid());
  const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return fail_errno("write " + fresh);
  const bool written =
      ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(fd) == 0;
  ::close(fd);
  if (!written || ::rename(fresh.c_str(), file.c_str()) != 0) {
    const auto error = fail_errno("write " + file.string());
    ::unlink(fresh.c_str());
    return error;
  }
  return {};
}

}  // namespace tusk::client
