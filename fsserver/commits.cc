#include "fsserver/commits.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <set>
#include <sstream>

#include "fsserver/acting.h"
#include "fsserver/attributes.h"
#include "fsserver/mount_points.h"
#include "proto/crypto/primitives.h"

#ifndef STATX_MNT_ID_UNIQUE
#define STATX_MNT_ID_UNIQUE 0x00004000U  // Linux 6.8
#endif

namespace tusk::server {
namespace {

// The first byte of a note.
constexpr char kAllOnDisk = 'c';
constexpr char kIdle = 'i';
constexpr char kSyncing = 's';  // an error may have been told to nobody but to this process

std::string kernel_boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  crypto::random_bytes(std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

// Unlike a device's number, a mount's is never used again. Nothing: unknown.
std::string mount_number(int directory, const char* path) {
  struct statx status {};
  constexpr int kHow = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC;
  if (::statx(directory, path, kHow, STATX_MNT_ID_UNIQUE, &status) != 0) return {};
  if ((status.stx_mask & STATX_MNT_ID_UNIQUE) == 0) return {};
  return std::to_string(status.stx_mnt_id);
}

// Of the root's file system and of those inside; empty: unknown.
std::string mount_numbers(const Fd& root) {
  std::string numbers = mount_number(root.number(), "");
  const auto path = path_of(root);
  const auto inside = path ? mount_points_beneath(*path) : std::unexpected(path.error());
  if (numbers.empty() || !inside) return {};
  for (const MountPoint& mount : *inside) {
    const std::string number = mount_number(AT_FDCWD, mount.path.c_str());
    if (number.empty()) return {};
    numbers += '-' + number;
  }
  return numbers;
}

// FUSE answers syncfs(2) without asking its daemon, whose own files are somewhere else on this machine.
bool is_fuse(const Fd& fd) {
  struct statfs facts {};
  return ::fstatfs(fd.number(), &facts) != 0 || facts.f_type == FUSE_SUPER_MAGIC;
}

// False: only sync(2) reaches it, which tells no errors.
Result<bool> sync_mounted(const MountPoint& mount) {
  const Fd fd(::open(mount.path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!fd.valid() && errno == ENOENT) return true;  // unmounted meanwhile, which syncs
  if (!fd.valid() && (errno == EACCES || errno == EPERM || errno == ENXIO)) return false;
  if (!fd.valid()) return fail_errno(mount.path);
  if (::syncfs(fd.number()) != 0) return fail_errno("syncfs of " + mount.path);
  return !is_fuse(fd);
}

bool of_the_disk(const Error& error) {
  constexpr std::array kErrors{EIO, ENOSPC, EDQUOT, ENODEV, ENXIO, EROFS, EUCLEAN, ESHUTDOWN, ETIMEDOUT};
  return std::ranges::any_of(kErrors, [&](int number) { return error.code == from_errno(number); });
}

}  // namespace

Result<void> sync_file_systems(const Fd& root) {
  const ActingAsServer privileged;
  Result<void> result;
  if (::syncfs(root.number()) != 0) result = fail_errno("syncfs");
  bool reached = !is_fuse(root);
  TUSK_ASSIGN(const Status status, status_of(root));
  TUSK_ASSIGN(const std::string path, path_of(root));
  TUSK_ASSIGN(const auto mounts, mount_points_beneath(path));
  std::set<std::uint64_t> devices{device_of(status)};
  for (const MountPoint& mount : mounts) {
    if (mount.type == "autofs" || !devices.insert(mount.device).second) continue;
    const auto synced = sync_mounted(mount);
    if (!synced && result) result = std::unexpected(synced.error());
    reached = reached && synced.value_or(true);
  }
  if (!reached) ::sync();
  return result;
}

Result<void> sync_file(const Fd& file, bool data_only) {
  if ((data_only ? ::fdatasync(file.number()) : ::fsync(file.number())) != 0) return fail_errno("fsync");
  return {};
}

Commits::Commits(SharedFd root, const std::filesystem::path& note, DiskSync disk)
    : root_(std::move(root)), disk_(std::move(disk)), boot_(kernel_boot_id()), base_(random_number()) {
  if (!note.empty() && !boot_.empty()) open_note(note);
}

// "STATE BOOT MOUNTS BASE FAILURES".
void Commits::open_note(const std::filesystem::path& file) {
  mounts_ = mount_numbers(*root_);
  std::error_code ignored;
  std::filesystem::create_directories(file.parent_path(), ignored);
  Fd note(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!note.valid())
    return spdlog::warn("mounts make their last changes again when tuskd restarts: cannot write {}",
                        file.string());
  // Another server exports the same directory under the same name: it has a verifier of its own.
  if (::flock(note.number(), LOCK_EX | LOCK_NB) != 0) return;
  std::string text(4096, '\0');
  const ssize_t size = ::pread(note.number(), text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  std::istringstream fields(text);
  char state = 0;
  std::string boot, mounts;
  std::uint64_t base = 0, failures = 0;
  const bool whole = static_cast<bool>(fields >> state >> boot >> mounts >> base >> failures);
  const bool same_mounts = !mounts_.empty() && mounts == mounts_;
  if (whole && boot == boot_ && (state == kAllOnDisk || (state == kIdle && same_mounts))) {
    base_ = base;
    failures_ = failures;
  }
  note_ = std::move(note);
  write_note(kIdle);
}

void Commits::write_note(char state) const {
  if (!note_.valid()) return;
  std::ostringstream text;
  text << state << ' ' << boot_ << ' ' << (mounts_.empty() ? "unknown" : mounts_) << ' ' << base_ << ' '
       << failures_ << '\n';
  const std::string bytes = std::move(text).str();
  // In one call: a process is not killed within it.
  if (::pwrite(note_.number(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size())) return;
  (void)!::ftruncate(note_.number(), 0);
}

std::uint64_t Commits::verifier() const {
  const std::uint64_t value = base_ ^ (failures_ * 0x9e3779b97f4a7c15);
  return value != 0 ? value : 1;
}

Commits::Mark Commits::mark() const {
  const std::lock_guard lock(mutex_);
  return {verifier(), failures_};
}

void Commits::begin_sync() {
  if (++syncing_ == 1) write_note(kSyncing);
}

void Commits::end_sync() {
  if (--syncing_ == 0) write_note(kIdle);
}

void Commits::note_failure(const Error& error) {
  ++failures_;
  error_ = error;
  spdlog::error("what clients have changed may be lost: {}", error.message());
}

Result<void> Commits::untold(std::uint64_t told) const {
  if (failures_ <= told) return {};
  return std::unexpected(error_);
}

Result<void> Commits::all(std::uint64_t told) {
  std::unique_lock lock(mutex_);
  const std::uint64_t wanted = runs_begun_ + 1;  // one that has begun already may have missed something
  while (runs_ended_ < wanted) {
    if (running_) {
      ended_.wait(lock);
      continue;
    }
    running_ = true;
    ++runs_begun_;
    begin_sync();
    lock.unlock();
    const bool changed = changed_.exchange(false);
    const auto result = disk_.all(*root_);
    lock.lock();
    if (!result) {
      if (changed) changed_ = true;
      note_failure(result.error());
    }
    end_sync();
    running_ = false;
    runs_ended_ = runs_begun_;
    ended_.notify_all();
  }
  return untold(told);
}

Result<void> Commits::file(const Fd& file, bool data_only, std::uint64_t told) {
  {
    const std::lock_guard lock(mutex_);
    begin_sync();
  }
  auto result = disk_.file(file, data_only);
  const std::lock_guard lock(mutex_);
  if (!result && of_the_disk(result.error())) note_failure(result.error());
  end_sync();
  if (!result) return result;
  return untold(told);
}

void Commits::end() {
  const auto told = mark().failures;
  if (changed_ && !all(told)) return;
  const std::lock_guard lock(mutex_);
  if (syncing_ == 0 && failures_ == told) write_note(kAllOnDisk);
}

}  // namespace tusk::server
