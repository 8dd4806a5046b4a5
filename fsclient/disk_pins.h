// Which paths of a mount are pinned in its disk cache: all files below them stay there. Kept in a text file,
// a line each. Paths are relative to the mount, "" is all of it; none lies below another.
//
// Not thread-safe; what changes the file waits for the disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fsclient/disk_index.h"
#include "proto/base/result.h"

namespace tusk::client {

// So that a path is one word of one line: blanks, control characters and '%' become %XX.
[[nodiscard]] std::string escape_path(std::string_view path);
// kMalformed for what escape_path() does not make.
[[nodiscard]] Result<std::string> unescape_path(std::string_view text);

class DiskPins {
 public:
  using PinId = DiskIndex::PinId;
  static constexpr std::size_t kPinsMax = 64;  // each has a segment of its own that is being filled

  // Lines that make no sense are left out.
  [[nodiscard]] static DiskPins load(std::filesystem::path file);

  // Returns the pins below `path` that it takes the place of, with what they are now.
  struct Moved {
    std::vector<PinId> from;
    PinId to = 0;  // 0: not pinned any more
  };
  [[nodiscard]] Result<Moved> pin(const std::string& path);
  // All pins at `path` or below. ENOENT when there are none; the context names the pin it is part of.
  [[nodiscard]] Result<Moved> unpin(const std::string& path);

  // 0: not pinned.
  [[nodiscard]] PinId pin_of(std::string_view path) const;
  [[nodiscard]] bool has(PinId id) const;
  [[nodiscard]] bool empty() const { return pins_.empty(); }
  [[nodiscard]] std::vector<std::string> paths() const;

 private:
  explicit DiskPins(std::filesystem::path file) : file_(std::move(file)) {}
  [[nodiscard]] std::vector<PinId> take_below(std::string_view path);
  [[nodiscard]] Result<void> save() const;

  std::filesystem::path file_;
  std::map<std::string, PinId, std::less<>> pins_;
  PinId next_ = 1;
};

}  // namespace tusk::client
