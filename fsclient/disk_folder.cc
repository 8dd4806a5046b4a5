#include "fsclient/disk_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>

#include "fsclient/disk_record.h"

namespace tusk::client {
namespace {

namespace fs = std::filesystem;

// Without it a folder that is not empty is somebody's who means something else.
constexpr const char* kMarker = "tusk-disk-cache";

std::unexpected<Error> unusable(const fs::path& directory, std::string_view why) {
  return fail(ErrorCode::kBadConfig, fmt::format("cache={}: {}", directory.string(), why));
}

Result<void> make_private(const fs::path& directory) {
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return unusable(directory, fmt::format("it cannot be made: {}", std::strerror(errno)));
  struct stat st {};
  if (::lstat(directory.c_str(), &st) != 0) return unusable(directory, std::strerror(errno));
  if (!S_ISDIR(st.st_mode)) return unusable(directory, "it is not a directory");
  if (st.st_uid != ::geteuid())
    return unusable(directory,
                    fmt::format("it belongs to another user (uid {}): choose one of your own", st.st_uid));
  if ((st.st_mode & 0077) != 0)
    return unusable(directory,
                    "other users may enter it, and it would hold file data in clear: chmod 700 it");
  return {};
}

Result<void> check_for_other_things(const fs::path& directory) {
  std::error_code failed;
  if (fs::exists(directory / kMarker, failed) || !fs::is_directory(fs::symlink_status(directory, failed)))
    return {};
  if (!fs::is_empty(directory, failed) || failed)
    return unusable(directory, "it holds other things: name an empty folder, or one that does not exist");
  return {};
}

Result<void> mark(const fs::path& directory) {
  std::error_code failed;
  if (fs::exists(directory / kMarker, failed)) return {};
  const int fd = ::open((directory / kMarker).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return unusable(directory, std::strerror(errno));
  ::close(fd);
  return {};
}

// The export's name for people, then what it is.
std::string folder_name(std::string_view server_key, std::string_view export_name) {
  std::string name(export_name.substr(0, 32));
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)) && c != '-'; }, '_');
  const std::string whole = fmt::format("{}/{}", server_key, export_name);
  const DiskChecksum hash = disk_checksum(std::as_bytes(std::span(whole)));
  return fmt::format("{}-{:016x}", name, hash[0]);
}

}  // namespace

Result<std::unique_ptr<DiskFolder>> DiskFolder::open(const Path& directory, std::string_view server_key,
                                                     std::string_view export_name) {
  TUSK_TRY(check_for_other_things(directory));  // first: nobody shall be told to change what is not for us
  TUSK_TRY(make_private(directory));
  TUSK_TRY(mark(directory));
  const Path folder = directory / folder_name(server_key, export_name);
  TUSK_TRY(make_private(folder));
  const int lock = ::open((folder / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock < 0) return unusable(folder, std::strerror(errno));
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    const int why = errno;
    ::close(lock);
    if (why == EWOULDBLOCK)
      return fail(
          from_errno(EBUSY),
          fmt::format("another mount of this export uses {}: this one goes on without a disk cache (give it "
                      "a folder of its own)",
                      folder.string()));
    return unusable(folder, std::strerror(why));
  }
  return std::unique_ptr<DiskFolder>(new DiskFolder(folder, lock));
}

DiskFolder::~DiskFolder() { ::close(lock_); }

ByteCount DiskFolder::default_size() const {
  constexpr ByteCount kMost = 10ull << 30;
  struct statvfs room {};
  if (::statvfs(path_.c_str(), &room) != 0) return kBytesMin;
  ByteCount available = static_cast<ByteCount>(room.f_bavail) * room.f_frsize;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path_, ignored)) {
    const auto size = entry.file_size(ignored);
    if (!ignored) available += size;
  }
  return std::clamp(available / 10, kBytesMin, kMost);
}

}  // namespace tusk::client
