#include "fsserver/confined.h"

#include <linux/openat2.h>
#include <sys/syscall.h>

#include <string>

namespace tusk::server {
namespace {

constexpr std::uint64_t kConfined = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS;

Result<Fd> open_beneath(const Fd& directory, std::string_view name, int flags, unsigned mode) {
  const std::string path(name);
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags) | O_CLOEXEC | O_NOFOLLOW;
  how.mode = mode;
  how.resolve = kConfined;
  // RESOLVE_BENEATH answers EAGAIN when a rename anywhere raced with it: a bounded number of retries.
  constexpr int kTriesMax = 64;
  for (int tries = 0;; ++tries) {
    const long number = ::syscall(SYS_openat2, directory.number(), path.c_str(), &how, sizeof how);
    if (number >= 0) return Fd(static_cast<int>(number));
    if ((errno != EAGAIN && errno != EINTR) || tries == kTriesMax) return fail_errno(path);
  }
}

}  // namespace

Result<void> check_file_name(std::string_view name) {
  if (name.size() > kFileNameBytesMax) return fail(from_errno(ENAMETOOLONG));
  if (name.empty() || name == "." || name == "..") return fail(from_errno(EINVAL), "not a file's name");
  if (name.find('/') != std::string_view::npos || name.find('\0') != std::string_view::npos)
    return fail(from_errno(EINVAL), "a file's name has no '/' and no NUL");
  return {};
}

Result<Fd> open_child(const Fd& directory, std::string_view name) {
  return open_beneath(directory, name, O_PATH, 0);
}

Result<Fd> create_child(const Fd& directory, std::string_view name, int flags, unsigned mode) {
  return open_beneath(directory, name, flags | O_CREAT | O_EXCL | O_NOCTTY, mode);
}

Result<Fd> reopen(const Fd& node, int flags) {
  const int number = (flags & O_DIRECTORY) ? ::openat(node.number(), ".", flags | O_CLOEXEC | O_NOFOLLOW)
                                           : ::open(proc_path(node).c_str(), flags | O_CLOEXEC | O_NOCTTY);
  if (number < 0) return fail_errno("open");
  return Fd(number);
}

}  // namespace tusk::server
