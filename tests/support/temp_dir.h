// Files for a test: a directory of its own, what is written there, what is found.
#pragma once

#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "proto/base/check.h"

namespace tusk::support {

// A new directory that is removed at the end.
class TempDir {
 public:
  TempDir() {
    std::string name = std::filesystem::temp_directory_path() / "tusk-test-XXXXXX";
    TUSK_CHECK(::mkdtemp(name.data()) != nullptr);
    // Other users take part in some tests.
    TUSK_CHECK(::chmod(name.c_str(), 0755) == 0);
    path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& file, std::string_view content) {
  std::ofstream(file, std::ios::binary) << content;
}

[[nodiscard]] inline std::string read_file(const std::filesystem::path& file) {
  std::ostringstream out;
  out << std::ifstream(file, std::ios::binary).rdbuf();
  return out.str();
}

}  // namespace tusk::support
