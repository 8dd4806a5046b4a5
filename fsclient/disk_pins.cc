#include "fsclient/disk_pins.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "proto/base/percent_encoding.h"

namespace tusk::client {
namespace {

bool at_or_below(std::string_view path, std::string_view folder) {
  if (folder.empty() || path == folder) return true;
  return path.starts_with(folder) && path[folder.size()] == '/';
}

std::string shown(std::string_view path) { return path.empty() ? "the whole mount" : std::string(path); }

}  // namespace

std::string escape_path(std::string_view path) { return percent_encode(path, "/"); }

Result<std::string> unescape_path(std::string_view text) {
  auto path = percent_decode(text);
  if (!path) return fail(ErrorCode::kMalformed, "an escape in a path");
  return std::move(*path);
}

DiskPins DiskPins::load(std::filesystem::path file) {
  DiskPins pins(std::move(file));
  std::ifstream lines(pins.file_);
  for (std::string line; std::getline(lines, line) && pins.pins_.size() < kPinsMax;) {
    std::istringstream words(line);
    PinId id = 0;
    std::string text;
    if (!(words >> id) || id == 0) continue;
    words >> text;  // none: the whole mount
    const Result<std::string> path = unescape_path(text);
    if (!path) continue;
    pins.pins_[*path] = id;
    pins.next_ = std::max(pins.next_, id + 1);
  }
  return pins;
}

std::vector<DiskPins::PinId> DiskPins::take_below(std::string_view path) {
  std::vector<PinId> taken;
  std::erase_if(pins_, [&](const auto& pin) {
    const bool below = at_or_below(pin.first, path);
    if (below) taken.push_back(pin.second);
    return below;
  });
  return taken;
}

Result<DiskPins::Moved> DiskPins::pin(const std::string& path) {
  if (const PinId covers = pin_of(path); covers != 0) return Moved{{}, covers};
  const auto before = pins_;
  Moved moved{take_below(path), next_++};
  if (pins_.size() == kPinsMax) {
    pins_ = before;
    return fail(ErrorCode::kLimitExceeded,
                fmt::format("at most {} paths can be pinned: pin a folder", kPinsMax));
  }
  pins_[path] = moved.to;
  if (Result<void> saved = save(); !saved) {
    pins_ = before;
    return std::unexpected(std::move(saved).error());
  }
  return moved;
}

Result<DiskPins::Moved> DiskPins::unpin(const std::string& path) {
  const auto before = pins_;
  Moved moved{take_below(path), 0};
  if (moved.from.empty()) {
    for (const auto& [pinned, id] : pins_)
      if (at_or_below(path, pinned))
        return fail(from_errno(ENOENT), fmt::format("it is pinned with {}: unpin that", shown(pinned)));
    return fail(from_errno(ENOENT), "it is not pinned");
  }
  if (Result<void> saved = save(); !saved) {
    pins_ = before;
    return std::unexpected(std::move(saved).error());
  }
  return moved;
}

DiskPins::PinId DiskPins::pin_of(std::string_view path) const {
  for (const auto& [pinned, id] : pins_)
    if (at_or_below(path, pinned)) return id;
  return 0;
}

bool DiskPins::has(PinId id) const {
  for (const auto& [path, known] : pins_)
    if (known == id) return true;
  return false;
}

std::vector<std::string> DiskPins::paths() const {
  std::vector<std::string> paths;
  paths.reserve(pins_.size());
  for (const auto& [path, id] : pins_) paths.push_back(path);
  return paths;
}

// Whole and on the disk before it takes the old one's place.
Result<void> DiskPins::save() const {
  std::string text;
  for (const auto& [path, id] : pins_) text += fmt::format("{} {}\n", id, escape_path(path));
  const std::filesystem::path fresh = file_.string() + ".new";
  const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return fail_errno(fresh.string());
  const bool written =
      ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(fd) == 0;
  const auto error = fail_errno(fresh.string());
  ::close(fd);
  if (!written) return error;
  if (::rename(fresh.c_str(), file_.c_str()) != 0) return fail_errno(file_.string());
  return {};
}

}  // namespace tusk::client
