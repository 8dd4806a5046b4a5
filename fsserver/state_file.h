// Small files of the state directory: read whole, written whole and atomically, watched for changes.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "fsserver/fd.h"
#include "proto/base/result.h"

namespace tusk::server {

constexpr std::size_t kStateFileBytesMax = 8 << 20;

// Nothing if there is no such file. EFBIG beyond `bytes_max`.
[[nodiscard]] Result<std::optional<std::string>> read_state_file(const std::filesystem::path& file,
                                                                 std::size_t bytes_max = kStateFileBytesMax);

// 0600, durable, and never half there.
[[nodiscard]] Result<void> write_state_file(const std::filesystem::path& file, std::string_view content);
// The same; the descriptor writes behind it.
[[nodiscard]] Result<Fd> write_open_state_file(const std::filesystem::path& file, std::string_view content);

// As write_state_file(), but locked (flock) before it has its name: nobody else gets that lock as long as the
// descriptor is open, which ends with this process at the latest. Not durable: what it says ends with the
// process.
[[nodiscard]] Result<Fd> write_locked_state_file(const std::filesystem::path& file, std::string_view content);

// Twelve random characters, for the names of files that must not meet others.
[[nodiscard]] std::string unique_suffix();

// Holds off other tuskd commands that change the directory, as long as it lives. Waits.
[[nodiscard]] Result<Fd> lock_state_dir(const std::filesystem::path& dir);

// $STATE_DIRECTORY (systemd), /var/lib/tusk for root, else $XDG_STATE_HOME/tusk or ~/.local/state/tusk.
// kBadConfig when there is no home to put it in.
[[nodiscard]] Result<std::filesystem::path> default_state_dir();

// Tells whether a file is another one than when it was last asked about.
class WatchedFile {
 public:
  explicit WatchedFile(std::filesystem::path path) : path_(std::move(path)) {}

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  // True the first time, and whenever the file was written, replaced, made or removed since.
  [[nodiscard]] bool changed();
  // The next changed() is true.
  void distrust() { known_ = false; }

 private:
  std::filesystem::path path_;
  bool known_ = false;
  struct stat seen_ {};
};

}  // namespace tusk::server
