#include "fsserver/state_file.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "proto/crypto/base64url.h"
#include "proto/crypto/primitives.h"

namespace tusk::server {
namespace {

Result<void> write_all(const Fd& fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t size = ::write(fd.number(), content.data(), content.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return fail_errno("write");
    content.remove_prefix(static_cast<std::size_t>(size));
  }
  return {};
}

Result<void> lock(const Fd& fd) {
  int result = 0;
  do result = ::flock(fd.number(), LOCK_EX);
  while (result != 0 && errno == EINTR);
  if (result != 0) return fail_errno("lock");
  return {};
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

enum class Locked : bool { kNo, kYes };

Result<Fd> write_whole(const std::filesystem::path& file, std::string_view content, Locked locked) {
  Fd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return fail_errno("");
  TUSK_TRY(write_all(fd, content));
  if (locked == Locked::kYes)
    TUSK_TRY(lock(fd));
  else if (::fsync(fd.number()) != 0)
    return fail_errno("fsync");
  return fd;
}

Result<Fd> replace_file(const std::filesystem::path& file, std::string_view content, Locked locked) {
  const std::string temporary = file.string() + ".new-" + unique_suffix();
  auto fd = write_whole(temporary, content, locked);
  if (fd && ::rename(temporary.c_str(), file.c_str()) != 0) fd = fail_errno("");
  if (!fd) {
    ::unlink(temporary.c_str());
    return fail(fd.error().code, "cannot write " + file.string());
  }
  if (locked == Locked::kYes) return fd;
  const std::filesystem::path parent =
      file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  const Fd directory(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.valid()) (void)::fsync(directory.number());
  return fd;
}

}  // namespace

std::string unique_suffix() {
  std::array<std::byte, 9> bytes{};
  crypto::random_bytes(bytes);
  return crypto::base64url_encode(bytes);
}

Result<std::optional<std::string>> read_state_file(const std::filesystem::path& file, std::size_t bytes_max) {
  const Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid() && errno == ENOENT) return std::nullopt;
  if (!fd.valid()) return fail_errno(file.string());
  std::string content;
  char buffer[16 * 1024];
  while (true) {
    const ssize_t size = ::read(fd.number(), buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return fail_errno(file.string());
    if (size == 0) return content;
    content.append(buffer, static_cast<std::size_t>(size));
    if (content.size() > bytes_max) return fail(from_errno(EFBIG), file.string());
  }
}

Result<void> write_state_file(const std::filesystem::path& file, std::string_view content) {
  TUSK_TRY(replace_file(file, content, Locked::kNo));
  return {};
}

Result<Fd> write_open_state_file(const std::filesystem::path& file, std::string_view content) {
  return replace_file(file, content, Locked::kNo);
}

Result<Fd> write_locked_state_file(const std::filesystem::path& file, std::string_view content) {
  return replace_file(file, content, Locked::kYes);
}

Result<Fd> lock_state_dir(const std::filesystem::path& dir) {
  const std::filesystem::path file = dir / "lock";
  Fd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) return fail_errno(file.string());
  if (const auto locked = lock(fd); !locked) return fail(locked.error().code, file.string());
  return fd;
}

Result<std::filesystem::path> default_state_dir() {
  if (const std::string given = environment("STATE_DIRECTORY"); !given.empty())
    return std::filesystem::path(given.substr(0, given.find(':')));
  if (::geteuid() == 0) return std::filesystem::path("/var/lib/tusk");
  if (const std::string state = environment("XDG_STATE_HOME"); !state.empty())
    return std::filesystem::path(state) / "tusk";
  std::string home = environment("HOME");
  if (home.empty())
    if (const passwd* user = ::getpwuid(::geteuid()); user != nullptr && user->pw_dir != nullptr)
      home = user->pw_dir;
  if (home.empty())
    return fail(ErrorCode::kBadConfig, "no home directory for Tusk's state: pass --state-dir DIR");
  return std::filesystem::path(home) / ".local" / "state" / "tusk";
}

bool WatchedFile::changed() {
  struct stat now {};
  if (::stat(path_.c_str(), &now) != 0) now = {};
  const bool same = known_ && now.st_ino == seen_.st_ino && now.st_dev == seen_.st_dev &&
                    now.st_size == seen_.st_size && now.st_mtim.tv_sec == seen_.st_mtim.tv_sec &&
                    now.st_mtim.tv_nsec == seen_.st_mtim.tv_nsec;
  seen_ = now;
  known_ = true;
  return !same;
}

}  // namespace tusk::server
