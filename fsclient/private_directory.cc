#include "fsclient/private_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

namespace tusk::client {
namespace {

constexpr std::time_t kUnfinishedSecondsMax = 60;

}  // namespace

Result<void> make_private_directory(const std::filesystem::path& directory) {
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return fail_errno("make " + directory.string());
  return check_private_directory(directory);
}

Result<void> check_private_directory(const std::filesystem::path& directory) {
  struct stat st {};
  if (::lstat(directory.c_str(), &st) != 0) return fail_errno(directory.string());
  if (S_ISDIR(st.st_mode) && st.st_uid == ::geteuid() && (st.st_mode & 0077) == 0) return {};
  const std::string whose =
      st.st_uid == ::geteuid() ? "" : " It belongs to another user (uid " + std::to_string(st.st_uid) + ").";
  return fail(from_errno(EPERM),
              directory.string() + " must be a directory of yours with mode 0700." + whose);
}

void remove_unfinished(const std::filesystem::path& directory) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    struct stat st {};
    const bool unfinished =
        entry.path().extension() == kUnfinished && ::lstat(entry.path().c_str(), &st) == 0;
    if (unfinished && ::time(nullptr) - st.st_mtime > kUnfinishedSecondsMax) ::unlink(entry.path().c_str());
  }
}

}  // namespace tusk::client
