#include "fsclient/session_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

#include "fsclient/private_directory.h"
#include "proto/base/shared_bytes.h"
#include "proto/crypto/base64url.h"

namespace tusk::client {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "session-";
constexpr std::size_t kOwnerMax = 4096;  // bytes

bool belongs_to_nobody(const fs::path& path, const std::string& owner) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  // Shared: two that look at the same time must not take each other for its mount.
  if (!file.valid() || ::flock(file.number(), LOCK_SH | LOCK_NB) != 0) return false;
  std::array<char, kOwnerMax> text{};
  const ssize_t got = ::read(file.number(), text.data(), text.size());
  return got >= 0 && std::string_view(text.data(), static_cast<std::size_t>(got)) == owner;
}

std::optional<std::string> id_of(const fs::path& path) {
  const std::string name = path.filename();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const auto id = crypto::base64url_decode(std::string_view(name).substr(kPrefix.size()));
  if (!id || id->size() != SessionFiles::kIdBytes) return std::nullopt;  // just being made, for instance
  return std::string(as_text(*id));
}

}  // namespace

SessionFiles::SessionFiles(fs::path directory, std::string owner)
    : directory_(std::move(directory)), owner_(std::move(owner)) {}

SessionFiles::~SessionFiles() {
  if (lock_.valid() && !left_behind_) ::unlink(own_.c_str());
}

fs::path SessionFiles::file_of(std::string_view id) const {
  return directory_ / (std::string(kPrefix) + crypto::base64url_encode(as_byte_span(id)));
}

std::vector<std::string> SessionFiles::ended() const {
  std::vector<std::string> ids;
  // Somebody else's would be believed, and cleared of files.
  if (!make_private_directory(directory_)) return ids;
  std::error_code failed;
  for (fs::directory_iterator entry(directory_, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::optional<std::string> id = id_of(entry->path());
    if (id && belongs_to_nobody(entry->path(), owner_)) ids.push_back(*id);
    if (ids.size() >= kEndedMax) break;
  }
  return ids;
}

void SessionFiles::forget(const std::vector<std::string>& ids) const {
  for (const std::string& id : ids) ::unlink(file_of(id).c_str());
}

Result<void> SessionFiles::begin(std::string_view id) {
  if (owner_.size() > kOwnerMax) return fail(from_errno(ENAMETOOLONG), "session file");
  TUSK_TRY(make_private_directory(directory_));
  const fs::path wanted = file_of(id);
  // Under its name only once it is locked: until then it looks like one that was left behind.
  const fs::path unfinished = wanted.string() + std::string(kUnfinished);
  Fd file(::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return fail_errno("write " + unfinished.string());
  if (::flock(file.number(), LOCK_EX | LOCK_NB) != 0 ||
      ::write(file.number(), owner_.data(), owner_.size()) != static_cast<ssize_t>(owner_.size()) ||
      ::rename(unfinished.c_str(), wanted.c_str()) != 0) {
    const auto error = fail_errno("write " + unfinished.string());
    ::unlink(unfinished.c_str());
    return error;
  }
  own_ = wanted;
  lock_ = std::move(file);
  return {};
}

}  // namespace tusk::client
