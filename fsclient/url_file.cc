#include "fsclient/url_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "proto/io/fd.h"

namespace tusk::client {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kUrlStart = "tusk://";
constexpr std::size_t kLineMax = 2 * rpc::kMountUrlBytesMax;

std::unexpected<Error> bad(std::string what) { return fail(ErrorCode::kBadConfig, std::move(what)); }

// Up to the first newline behind something else.
Result<std::string> read_line(int fd, const std::string& name) {
  std::string text;
  while (text.size() <= kLineMax) {
    char buffer[512];
    const ssize_t size = ::read(fd, buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return bad(fmt::format("{}: {}", name, std::strerror(errno)));
    text.append(buffer, static_cast<std::size_t>(size));
    const std::size_t begin = text.find_first_not_of(kBlanks);
    const std::size_t end = begin == std::string::npos ? begin : text.find('\n', begin);
    if (size != 0 && end == std::string::npos) continue;
    if (begin == std::string::npos) return bad(fmt::format("{} is empty: it should hold a URL", name));
    std::string line = text.substr(begin, end == std::string::npos ? end : end - begin);
    line.resize(line.find_last_not_of(kBlanks) + 1);
    return line;
  }
  return bad(fmt::format("{} holds no URL, but a longer line", name));
}

bool names_the_same(const rpc::MountUrl& one, const rpc::MountUrl& other) {
  return one.host == other.host && one.port == other.port && one.export_name == other.export_name &&
         (!one.fingerprint || !other.fingerprint || one.fingerprint == other.fingerprint);
}

}  // namespace

Result<std::string> read_url_file(const std::string& file) {
  if (file == kStandardInput) return read_line(STDIN_FILENO, "standard input");
  const Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat st {};
  if (!fd.valid() || ::fstat(fd.number(), &st) != 0)
    return bad(fmt::format("{}: {}", file, std::strerror(errno)));
  constexpr mode_t kOthers = 0077;
  if ((st.st_mode & kOthers) != 0)
    return bad(fmt::format(
        "{} can be read or changed by others (mode {:04o}), and a URL is a password: run chmod 600 {}", file,
        st.st_mode & 07777, file));
  return read_line(fd.number(), file);
}

Result<MountWords> mount_words(const std::optional<std::string>& first,
                               const std::optional<std::string>& second, bool has_url_file) {
  if (!first) return bad("URL and MOUNTPOINT are missing: tusk mount URL MOUNTPOINT");
  if (second && !first->starts_with(kUrlStart) && second->starts_with(kUrlStart))
    return bad("the URL comes first, then the directory: tusk mount URL MOUNTPOINT");
  const bool only_place = !second && has_url_file && !first->starts_with(kUrlStart);
  if (!second && !only_place) return bad("MOUNTPOINT is missing: tusk mount URL MOUNTPOINT");
  const std::string& place = only_place ? *first : *second;
  if (place.empty()) return bad("MOUNTPOINT is empty");
  return MountWords{only_place ? "" : *first, place};
}

Result<rpc::MountUrl> mount_url(const std::string& url, const std::string& url_file) {
  if (url_file.empty()) {
    if (url != kStandardInput) return rpc::MountUrl::parse(url);
    return mount_url("", url);
  }
  TUSK_ASSIGN(const std::string line, read_url_file(url_file));
  auto parsed = rpc::MountUrl::parse(line);
  const std::string_view name = url_file == kStandardInput ? "standard input" : std::string_view(url_file);
  if (!parsed) return bad(fmt::format("{}: {}", name, parsed.error().context));
  if (url.empty()) return parsed;
  TUSK_ASSIGN(const rpc::MountUrl beside, rpc::MountUrl::parse(url));
  if (!beside.token.empty()) return bad("the token of the URL belongs into the file and nowhere else");
  if (!names_the_same(beside, *parsed))
    return bad(fmt::format("{} names another server or export than the URL beside it", name));
  return parsed;
}

}  // namespace tusk::client
