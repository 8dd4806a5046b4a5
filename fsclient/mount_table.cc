#include "fsclient/mount_table.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <ranges>
#include <sstream>

namespace tusk::client {
namespace {

// Blanks, tabs, newlines and backslashes come as \ooo.
std::string unescape(std::string_view text) {
  constexpr std::size_t kDigits = 3;
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape =
        text[i] == '\\' && i + kDigits < text.size() &&
        std::ranges::all_of(text.substr(i + 1, kDigits), [](char c) { return c >= '0' && c <= '7'; });
    if (!escape) {
      plain += text[i];
      continue;
    }
    plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
    i += kDigits;
  }
  return plain;
}

}  // namespace

std::vector<MountedAt> parse_mount_table(std::string_view text) {
  std::vector<MountedAt> table;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    // id parent MAJOR:MINOR root mountpoint options [optional fields] - type source super-options
    std::istringstream words(line);
    const std::vector<std::string> fields{std::istream_iterator<std::string>(words), {}};
    const auto dash = std::ranges::find(fields, "-");
    constexpr std::ptrdiff_t kBeforeDash = 6;
    constexpr std::ptrdiff_t kAfterDash = 3;
    if (dash - fields.begin() < kBeforeDash || fields.end() - dash < kAfterDash) continue;
    table.push_back({unescape(fields[4]), fields[2], dash[1], unescape(dash[2])});
  }
  return table;
}

std::optional<MountedAt> mounted_at(const std::filesystem::path& path) {
  std::ifstream file("/proc/self/mountinfo");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::vector<MountedAt> table = parse_mount_table(text);
  for (const MountedAt& mount : table | std::views::reverse)
    if (mount.mountpoint == path && mount.type != "autofs") return mount;
  return std::nullopt;
}

std::optional<MountedAt> mount_of(const std::filesystem::path& path) {
  for (std::filesystem::path place = path;; place = place.parent_path()) {
    if (auto mount = mounted_at(place)) return mount;
    if (!place.has_relative_path()) return std::nullopt;
  }
}

namespace {

std::filesystem::path resolve(const std::filesystem::path& path, int links_left) {
  std::error_code ignored;
  std::filesystem::path whole = std::filesystem::absolute(path, ignored).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  if (!whole.has_filename()) return whole;  // "/"
  std::filesystem::path parent = std::filesystem::canonical(whole.parent_path(), ignored);
  if (ignored) parent = whole.parent_path();
  std::filesystem::path resolved = parent / whole.filename();
  if (links_left == 0 || mounted_at(resolved)) return resolved;
  const std::filesystem::path target = std::filesystem::read_symlink(resolved, ignored);
  return ignored ? resolved : resolve(parent / target, links_left - 1);
}

}  // namespace

std::filesystem::path resolve_mountpoint(const std::filesystem::path& path) {
  constexpr int kLinksMax = 40;  // path_resolution(7)
  return resolve(path, kLinksMax);
}

}  // namespace tusk::client
