#include "proto/crypto/key_file.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace tusk::crypto {
namespace {

constexpr mode_t kPrivateDirectoryMode = 0700;
constexpr mode_t kReadableByOthers = 0077;
constexpr mode_t kWritableByOthers = 0022;

class FileDescriptor {
 public:
  explicit FileDescriptor(int number) : number_(number) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (number_ >= 0) ::close(number_);
  }

  [[nodiscard]] bool valid() const { return number_ >= 0; }
  [[nodiscard]] int number() const { return number_; }

 private:
  int number_;
};

std::string octal(mode_t mode) {
  char text[8];
  std::snprintf(text, sizeof text, "%04o", static_cast<unsigned>(mode & 07777));
  return text;
}

Result<void> write_all(int fd, std::string_view content, const std::string& name) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return fail_errno("write " + name);
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fsync(fd) != 0) return fail_errno("fsync " + name);
  return {};
}

// False if `to` exists. File systems without RENAME_NOREPLACE (some network ones) get a check and a
// plain rename: the race of two first starts is then decided by the later one.
Result<bool> rename_without_replacing(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno == EEXIST) return false;
  if (errno != EINVAL && errno != ENOSYS) return fail_errno("rename " + from + " to " + to);
  if (::access(to.c_str(), F_OK) == 0) return false;
  if (::rename(from.c_str(), to.c_str()) != 0) return fail_errno("rename " + from + " to " + to);
  return true;
}

Result<void> sync_directory(const std::filesystem::path& dir) {
  const FileDescriptor fd(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return fail_errno("open " + dir.string());
  // EINVAL: a file system that cannot sync directories; its renames are as durable as it makes them.
  if (::fsync(fd.number()) != 0 && errno != EINVAL) return fail_errno("fsync " + dir.string());
  return {};
}

// The file is whole and on disk before it gets its name, so no crash leaves half a key under it.
Result<bool> write_and_rename(int fd, const std::string& temporary, const std::filesystem::path& file,
                              std::string_view content) {
  TUSK_TRY(write_all(fd, content, temporary));
  TUSK_ASSIGN(const bool created, rename_without_replacing(temporary, file.string()));
  if (!created) return false;
  TUSK_TRY(sync_directory(file.parent_path()));
  return true;
}

// Those that are missing. Whatever the umask, nobody else may write there.
Result<void> make_directories(const std::filesystem::path& path) {
  constexpr mode_t kParentMode = 0755;
  struct stat status {};
  if (path.empty() || ::stat(path.c_str(), &status) == 0) return {};
  if (path.has_relative_path()) TUSK_TRY(make_directories(path.parent_path()));
  if (::mkdir(path.c_str(), kParentMode) != 0 && errno != EEXIST)
    return fail_errno("create " + path.string());
  return {};
}

// That of the user's name, without other members: many systems give every user one, and umask 002.
bool is_private_group(gid_t gid, uid_t uid) {
  std::array<char, 16 * 1024> of_group{}, of_user{};
  group group_entry{};
  passwd user_entry{};
  group* found_group = nullptr;
  passwd* found_user = nullptr;
  if (::getgrgid_r(gid, &group_entry, of_group.data(), of_group.size(), &found_group) != 0) return false;
  if (::getpwuid_r(uid, &user_entry, of_user.data(), of_user.size(), &found_user) != 0) return false;
  if (found_group == nullptr || found_user == nullptr) return false;
  const std::string_view user = user_entry.pw_name;
  if (user_entry.pw_gid != gid || group_entry.gr_name != user) return false;
  for (char** member = group_entry.gr_mem; *member != nullptr; ++member)
    if (*member != user) return false;
  return true;
}

// Who may rename in the parent may put another directory in the place of this one.
Result<void> check_parent(const std::filesystem::path& dir, uid_t self) {
  const std::filesystem::path parent = std::filesystem::absolute(dir).lexically_normal().parent_path();
  struct stat status {};
  if (::stat(parent.c_str(), &status) != 0) return fail_errno("stat " + parent.string());
  const bool anybodys = (status.st_mode & S_IWOTH) != 0 && (status.st_mode & S_ISVTX) == 0;
  const bool a_groups = (status.st_mode & S_IWGRP) != 0 && (status.st_mode & S_ISVTX) == 0 &&
                        !is_private_group(status.st_gid, status.st_uid);
  const bool foreign = status.st_uid != self && status.st_uid != 0;
  if (!anybodys && !a_groups && !foreign) return {};
  return fail(ErrorCode::kBadConfig, parent.string() + " lets others replace " + dir.string() + " (mode " +
                                         octal(status.st_mode) + ", uid " + std::to_string(status.st_uid) +
                                         "): choose a state directory elsewhere");
}

}  // namespace

Result<void> prepare_private_directory(const std::filesystem::path& dir) {
  if (dir.empty()) return fail(ErrorCode::kBadConfig, "the state directory has no name");
  TUSK_TRY(make_directories(dir.parent_path()));
  if (::mkdir(dir.c_str(), kPrivateDirectoryMode) != 0 && errno != EEXIST)
    return fail_errno("create " + dir.string());

  struct stat status {};
  if (::stat(dir.c_str(), &status) != 0) return fail_errno("stat " + dir.string());
  if (!S_ISDIR(status.st_mode)) return fail(ErrorCode::kBadConfig, dir.string() + " is not a directory");
  if (status.st_mode & kWritableByOthers)
    return fail(ErrorCode::kBadConfig,
                dir.string() + " is writable by others (mode " + octal(status.st_mode) +
                    "), who could replace the key in it; run: chmod 700 " + dir.string());
  const uid_t self = ::geteuid();
  TUSK_TRY(check_parent(dir, self));
  if (status.st_uid != self && status.st_uid != 0)
    return fail(ErrorCode::kBadConfig, dir.string() + " belongs to another user (uid " +
                                           std::to_string(status.st_uid) +
                                           "), who could replace the key in it");
  return {};
}

Result<std::optional<std::string>> read_key_file(const std::filesystem::path& file) {
  // O_NONBLOCK: a FIFO in the key's place must not hang the start.
  const FileDescriptor fd(::open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid() && errno == ENOENT) return std::nullopt;
  if (!fd.valid() && errno == ELOOP)
    return fail(ErrorCode::kBadConfig, file.string() + " is a symbolic link, not a key file");
  if (!fd.valid()) return fail_errno("open " + file.string());

  struct stat status {};
  if (::fstat(fd.number(), &status) != 0) return fail_errno("stat " + file.string());
  if (!S_ISREG(status.st_mode)) return fail(ErrorCode::kBadConfig, file.string() + " is not a regular file");
  if (status.st_mode & kReadableByOthers)
    return fail(ErrorCode::kBadConfig, file.string() + " can be read by others (mode " +
                                           octal(status.st_mode) + "); run: chmod 600 " + file.string());

  std::string content(kKeyFileBytesMax + 1, '\0');
  std::size_t length = 0;
  while (length < content.size()) {
    const ssize_t got = ::read(fd.number(), content.data() + length, content.size() - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno("read " + file.string());
    if (got == 0) break;
    length += static_cast<std::size_t>(got);
  }
  if (length > kKeyFileBytesMax)
    return fail(ErrorCode::kBadConfig, file.string() + " is too long to be a key");
  content.resize(length);
  return content;
}

Result<bool> create_key_file(const std::filesystem::path& file, std::string_view content) {
  std::string temporary = file.string() + ".XXXXXX";
  const FileDescriptor fd(::mkostemp(temporary.data(), O_CLOEXEC));  // mode 0600
  if (!fd.valid()) return fail_errno("create " + temporary);
  Result<bool> created = write_and_rename(fd.number(), temporary, file, content);
  if (!created || !*created) ::unlink(temporary.c_str());
  return created;
}

}  // namespace tusk::crypto
