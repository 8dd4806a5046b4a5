#include "fsclient/warm_command.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "fsclient/cli.h"
#include "fsclient/disk_pins.h"
#include "fsclient/mount_table.h"
#include "fsclient/status.h"
#include "fsclient/tree_reader.h"

namespace tusk::client {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookEvery{200};
constexpr std::chrono::seconds kLineEvery{5};      // where nobody watches
constexpr std::chrono::seconds kStoredWithin{60};  // what was read is on the disk

std::atomic<bool> interrupted{false};

// The first one ends the reading in good order; the second one the program, wherever it waits.
void take_interrupts() {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int number : {SIGINT, SIGTERM}) ::sigaction(number, &action, nullptr);
}

std::string in_units(ByteCount bytes) {
  constexpr double kMebi = 1024 * 1024;
  const double mebi = static_cast<double>(bytes) / kMebi;
  return mebi < 10 * 1024 ? fmt::format("{:.1f} MiB", mebi) : fmt::format("{:.1f} GiB", mebi / 1024);
}

// ---------------------------------------------------------------- a path and its mount

struct PathInMount {
  fs::path path;      // absolute
  fs::path socket;    // of the mount's daemon
  std::string below;  // relative to the mount point, "" for itself
};

struct DiskStanding {
  ByteCount max = 0, pending = 0, skipped = 0;
  std::string problem;
};

Result<std::optional<DiskStanding>> disk_of(const fs::path& socket) {
  std::string text;
  TUSK_TRY(control(socket, "status", [&text](std::string_view line) { text += line; }));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return fail(ErrorCode::kMalformed, "the daemon's answer");
  const auto disk = json.find("disk_cache");
  if (disk == json.end() || !disk->is_object()) return std::nullopt;
  return DiskStanding{.max = disk->value("max_bytes", ByteCount{0}),
                      .pending = disk->value("pending_bytes", ByteCount{0}),
                      .skipped = disk->value("skipped_bytes", ByteCount{0}),
                      .problem = disk->value("problem", std::string())};
}

enum class MustExist : bool { kNo, kYes };

// A whole sentence where it cannot be.
Result<PathInMount> locate(const std::string& name, MustExist must_exist) {
  std::error_code failed;
  fs::path path = fs::weakly_canonical(fs::absolute(name, failed), failed);
  if (!failed && must_exist == MustExist::kYes && !fs::exists(path, failed) && !failed)
    failed = std::make_error_code(std::errc::no_such_file_or_directory);
  if (failed) return fail(from_errno(failed.value()), fmt::format("{}: {}", name, failed.message()));
  const std::optional<MountedAt> mount = mount_of(path);
  if (!mount || mount->type != kFilesystemType)
    return fail(ErrorCode::kBadConfig,
                fmt::format("{} is not on a Tusk mount (tusk status lists them)", name));
  if (const Result<void> ours = check_control_directory(); !ours) return std::unexpected(ours.error());
  const std::optional<fs::path> socket = control_socket(mount->mountpoint);
  const std::string place = mount->mountpoint.string();
  if (!socket)
    return fail(ErrorCode::kUnreachable,
                fmt::format("{} is mounted by another user: only that user can do this", place));
  TUSK_ASSIGN(const std::optional<DiskStanding> disk, disk_of(*socket));
  if (!disk)
    return fail(ErrorCode::kBadConfig,
                fmt::format("{} has no disk cache: unmount it and mount it with -o cache=DIR", place));
  const fs::path relative = path.lexically_relative(mount->mountpoint);
  return PathInMount{std::move(path), *socket, relative == "." ? "" : relative.string()};
}

Result<std::vector<PathInMount>> locate_all(const std::vector<std::string>& names, MustExist must_exist) {
  std::vector<PathInMount> located;
  for (const std::string& name : names) {
    TUSK_ASSIGN(PathInMount path, locate(name, must_exist));
    located.push_back(std::move(path));
  }
  return located;
}

Result<void> tell_daemon(const PathInMount& path, std::string_view verb) {
  std::string error = "the daemon ended before it answered";
  TUSK_TRY(
      control(path.socket, fmt::format("{} {}", verb, escape_path(path.below)), [&](std::string_view line) {
        const auto json = nlohmann::json::parse(line, nullptr, false);
        if (json.is_object()) error = json.value("ok", false) ? "" : json.value("error", "it failed");
      }));
  if (!error.empty()) return fail(ErrorCode::kBadConfig, fmt::format("{}: {}", path.path.string(), error));
  return {};
}

// ---------------------------------------------------------------- progress

// A line that is written over on a terminal, else one every few seconds.
class ProgressLine {
 public:
  void show(const TreeReader::Progress& now) {
    const Clock::time_point at = Clock::now();
    const double elapsed = std::chrono::duration<double>(at - looked_).count();
    if (elapsed > 1) {
      rate_ = 0.5 * (rate_ + static_cast<double>(now.bytes_read - bytes_) / elapsed);
      looked_ = at;
      bytes_ = now.bytes_read;
    }
    if (!terminal_ && at - shown_ < kLineEvery) return;
    shown_ = at;
    const std::string text = fmt::format("{} of {}{} files, {} of {}, {:.0f} Mbit/s{}", now.files_read,
                                         now.files_found, now.all_found ? "" : "+", in_units(now.bytes_read),
                                         in_units(now.bytes_found), rate_ * 8 / 1e6, remaining(now));
    fmt::print(stderr, "{}{}{}", terminal_ ? "\r" : "", text, terminal_ ? "\x1b[K" : "\n");
    std::fflush(stderr);
  }
  void end() const {
    if (terminal_) fmt::print(stderr, "\r\x1b[K");
  }

 private:
  [[nodiscard]] std::string remaining(const TreeReader::Progress& now) const {
    if (!now.all_found || rate_ < 1 || now.bytes_read >= now.bytes_found) return "";
    const auto seconds =
        static_cast<std::uint64_t>(static_cast<double>(now.bytes_found - now.bytes_read) / rate_);
    return fmt::format(", {}:{:02}:{:02} to go", seconds / 3600, seconds / 60 % 60, seconds % 60);
  }

  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  Clock::time_point shown_ = Clock::now();
  Clock::time_point looked_ = Clock::now();
  ByteCount bytes_ = 0;
  double rate_ = 0;
};

// What was read may still be on its way to the disk. Returns how it stands then.
DiskStanding wait_until_stored(const fs::path& socket) {
  const Clock::time_point deadline = Clock::now() + kStoredWithin;
  DiskStanding standing;
  do {
    const auto asked = disk_of(socket);
    if (!asked || !*asked) break;
    standing = **asked;
    if (standing.pending == 0) break;
    std::this_thread::sleep_for(kLookEvery);
  } while (Clock::now() < deadline && !interrupted);
  return standing;
}

int report(const TreeReader::Progress& read, const DiskStanding& before, const DiskStanding& after,
           double seconds) {
  fmt::print("{} files, {} in {:.1f} s ({:.0f} Mbit/s)\n", read.files_read, in_units(read.bytes_read),
             seconds, static_cast<double>(read.bytes_read) * 8 / 1e6 / std::max(seconds, 0.001));
  if (interrupted) return complain(kPartlyDone, "interrupted: call it again to go on from here");
  if (read.failures > 0)
    return complain(kPartlyDone,
                    fmt::format("{} could not be read, the last one: {}", read.failures, read.last_failure));
  if (!after.problem.empty()) return complain(kPartlyDone, "not all of it is stored: " + after.problem);
  if (after.skipped > before.skipped)
    return complain(kPartlyDone,
                    fmt::format("{} are not stored, since the disk was too slow: call it again to go on",
                                in_units(after.skipped - before.skipped)));
  if (read.bytes_read > after.max)
    return complain(kPartlyDone,
                    fmt::format("that is more than cache_size ({}): what was read first is not there any "
                                "more",
                                in_units(after.max)));
  return 0;
}

TreeReader::Progress read_once(const std::vector<fs::path>& roots) {
  TreeReader reader(roots);
  ProgressLine line;
  while (!reader.wait(kLookEvery) && !interrupted) line.show(reader.progress());
  line.end();
  return reader.progress();
}

int read_all(const std::vector<PathInMount>& paths) {
  take_interrupts();
  const auto standing = disk_of(paths.front().socket);
  if (!standing || !*standing) return complain(kMountFailed, "the mount's daemon does not answer any more");
  std::vector<fs::path> roots;
  roots.reserve(paths.size());
  for (const PathInMount& path : paths) roots.push_back(path.path);
  const Clock::time_point started = Clock::now();
  TreeReader::Progress read = read_once(roots);
  DiskStanding before = **standing;
  DiskStanding after = wait_until_stored(paths.front().socket);
  // A line that is faster than the disk: what is stored is not fetched again, so that each time less is left.
  for (ByteCount left = after.skipped - before.skipped; left > 0 && !interrupted && after.problem.empty();) {
    fmt::print(stderr, "{} are not stored yet, the disk is slower than the line: once more\n",
               in_units(left));
    before = after;
    const ByteCount most = read.bytes_read;
    read = read_once(roots);  // what could not be read this time is not stored
    read.bytes_read = std::max(read.bytes_read, most);
    after = wait_until_stored(paths.front().socket);
    const ByteCount still_left = after.skipped - before.skipped;
    if (still_left >= left) break;
    left = still_left;
  }
  return report(read, before, after, std::chrono::duration<double>(Clock::now() - started).count());
}

Result<void> tell_daemons(const std::vector<PathInMount>& paths, std::string_view verb) {
  for (const PathInMount& path : paths) TUSK_TRY(tell_daemon(path, verb));
  return {};
}

}  // namespace

int warm_paths(const std::vector<std::string>& paths) {
  const auto located = locate_all(paths, MustExist::kYes);
  if (!located) return complain(kMountFailed, located.error().context);
  return read_all(*located);
}

int pin_paths(const std::vector<std::string>& paths) {
  const auto located = locate_all(paths, MustExist::kYes);
  if (!located) return complain(kMountFailed, located.error().context);
  if (const auto pinned = tell_daemons(*located, "pin"); !pinned)
    return complain(kMountFailed, pinned.error().context);
  return read_all(*located);
}

int unpin_paths(const std::vector<std::string>& paths) {
  const auto located = locate_all(paths, MustExist::kNo);
  if (!located) return complain(kMountFailed, located.error().context);
  if (const auto unpinned = tell_daemons(*located, "unpin"); !unpinned)
    return complain(kMountFailed, unpinned.error().context);
  return 0;
}

}  // namespace tusk::client
