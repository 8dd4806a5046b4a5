#include "fsclient/state_lines.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

namespace tusk::client {

namespace {

std::string first_word(const std::string& line) {
  std::string word;
  std::istringstream(line) >> word;
  return word;
}

// Held by whoever reads a file in order to replace it: a lock of its directory. What cannot be locked within
// a second is replaced all the same, since a line that is lost is made good at the next mount.
class StateLock {
 public:
  explicit StateLock(const std::filesystem::path& file)
      : fd_(::open(file.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    for (int left = kAttempts; fd_ >= 0 && ::flock(fd_, LOCK_EX | LOCK_NB) != 0 && left > 0; --left)
      std::this_thread::sleep_for(kBetween);
  }
  StateLock(const StateLock&) = delete;
  StateLock& operator=(const StateLock&) = delete;
  ~StateLock() {
    if (fd_ >= 0) ::close(fd_);
  }

 private:
  static constexpr int kAttempts = 50;
  static constexpr auto kBetween = std::chrono::milliseconds(20);

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
