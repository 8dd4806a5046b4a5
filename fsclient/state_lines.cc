#include "fsclient/state_lines.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace tusk::client {

namespace {

std::string first_word(const std::string& line) {
  std::string word;
  std::istringstream(line) >> word;
  return word;
}

// Held by whoever reads the file in order to replace it; what cannot be locked is replaced all the same.
class StateLock {
 public:
  explicit StateLock(const std::filesystem::path& file)
      : fd_(::open((file.string() + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (fd_ >= 0) (void)::flock(fd_, LOCK_EX);
  }
  StateLock(const StateLock&) = delete;
  StateLock& operator=(const StateLock&) = delete;
  ~StateLock() {
    if (fd_ >= 0) ::close(fd_);
  }

 private:
  const int fd_;
};

}  // namespace

std::optional<StateLine> find_state_line(const std::filesystem::path& file, const std::string& server) {
  std::ifstream stream(file);
  std::string line;
  for (std::size_t number = 1; std::getline(stream, line) && number <= kStateLinesMax; ++number) {
    if (first_word(line) != server) continue;
    std::istringstream words(line);
    std::string name, rest;
    words >> name >> std::ws;
    std::getline(words, rest);
    return StateLine{.number = number, .words = rest};
  }
  return std::nullopt;
}

Result<void> replace_state_line(const std::filesystem::path& file, const std::string& server,
                                const std::string& words) {
  const StateLock lock(file);
  std::string text;
  {
    std::ifstream stream(file);
    for (std::string line; std::getline(stream, line);)
      if (first_word(line) != server) text += line + "\n";
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
