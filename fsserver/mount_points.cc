#include "fsserver/mount_points.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace tusk::server {
namespace {

// The kernel writes space, tab, newline and backslash as \\ooo.
std::string unescape(std::string_view text) {
  const auto octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view code = text.substr(i, 4);
    if (code.size() < 4 || code[0] != '\\' || !std::ranges::all_of(code.substr(1), octal)) {
      plain += text[i];
      continue;
    }
    plain += static_cast<char>((code[1] - '0') << 6 | (code[2] - '0') << 3 | (code[3] - '0'));
    i += 3;
  }
  return plain;
}

// "ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAGS] - TYPE ...".
MountPoint parse(const std::string& line) {
  std::istringstream fields(line);
  std::string id, parent, inner, point, field;
  std::uint64_t major = 0, minor = 0;
  char colon = 0;
  MountPoint mount;
  fields >> id >> parent >> major >> colon >> minor >> inner >> point;
  mount.device = major << 32 | minor;
  mount.path = unescape(point);
  while (fields >> field && field != "-") {
  }
  fields >> mount.type;
  return mount;
}

}  // namespace

Result<std::string> path_of(const Fd& fd) {
  std::string path(PATH_MAX, '\0');
  const ssize_t length = ::readlink(proc_path(fd).c_str(), path.data(), path.size());
  if (length < 0) return fail_errno("readlink");
  path.resize(static_cast<std::size_t>(length));
  return path;
}

bool lies_beneath(std::string_view path, std::string_view root) {
  if (root == "/") return path.starts_with('/');
  return path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/');
}

Result<std::vector<MountPoint>> mount_points_beneath(std::string_view root) {
  std::ifstream mounts("/proc/self/mountinfo");
  if (!mounts) return fail_errno("/proc/self/mountinfo");
  std::vector<MountPoint> found;
  for (std::string line; std::getline(mounts, line);)
    if (MountPoint mount = parse(line); lies_beneath(mount.path, root)) found.push_back(std::move(mount));
  if (mounts.bad()) return fail(from_errno(EIO), "/proc/self/mountinfo");
  return found;
}

}  // namespace tusk::server
