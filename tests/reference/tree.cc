#include "tree.h"

#include <sys/stat.h>
#include <sys/xattr.h>

#include <fstream>
#include <map>
#include <sstream>

namespace tusk::test {
namespace {

std::string content_of(const std::filesystem::path& file) {
  std::ostringstream out;
  out << std::ifstream(file, std::ios::binary).rdbuf();
  return out.str();
}

std::string colour_of(const std::filesystem::path& file) {
  char value[256];
  const ssize_t size = ::lgetxattr(file.c_str(), "user.colour", value, sizeof value);
  return size < 0 ? "" : std::string(value, static_cast<std::size_t>(size));
}

// Everything that can be compared, by what it is called.
std::map<std::string, std::string> describe(const std::filesystem::path& path) {
  struct stat st {};
  std::map<std::string, std::string> facts;
  if (::lstat(path.c_str(), &st) != 0) return {{"lstat", "fails"}};
  facts["mode"] = std::to_string(st.st_mode);
  facts["owner"] = std::to_string(st.st_uid) + ":" + std::to_string(st.st_gid);
  if (st.st_mtim.tv_sec < kSetTimesEnd)
    facts["mtime"] = std::to_string(st.st_mtim.tv_sec) + "." + std::to_string(st.st_mtim.tv_nsec);
  if (S_ISREG(st.st_mode)) {
    facts["links"] = std::to_string(st.st_nlink);
    facts["size"] = std::to_string(st.st_size);
    facts["content"] = content_of(path);
    facts["colour"] = colour_of(path);
  }
  if (S_ISLNK(st.st_mode)) facts["target"] = std::filesystem::read_symlink(path).string();
  return facts;
}

std::map<std::string, std::map<std::string, std::string>> tree_of(const std::filesystem::path& root) {
  std::map<std::string, std::map<std::string, std::string>> tree;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root))
    tree[entry.path().lexically_relative(root).string()] = describe(entry.path());
  return tree;
}

constexpr std::size_t kToldMax = 200;

}  // namespace

std::vector<std::string> differences(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::vector<std::string> found;
  const auto tree_a = tree_of(a);
  const auto tree_b = tree_of(b);
  for (const auto& [name, facts] : tree_a) {
    const auto other = tree_b.find(name);
    if (other == tree_b.end()) {
      found.push_back(name + " is missing in " + b.string());
      continue;
    }
    for (const auto& [what, value] : facts) {
      const auto theirs = other->second.find(what);
      const std::string found_there = theirs == other->second.end() ? "nothing" : theirs->second;
      if (found_there != value) {
        const bool tell = value.size() + found_there.size() < kToldMax;
        found.push_back(name + " differs in its " + what + (tell ? ": " + value + ", " + found_there : ""));
      }
    }
  }
  for (const auto& [name, facts] : tree_b)
    if (!tree_a.contains(name)) found.push_back(name + " is missing in " + a.string());
  return found;
}

}  // namespace tusk::test
