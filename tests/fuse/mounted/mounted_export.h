// A directory that is exported and mounted within this process: real server, real FUSE, no network.
//
// Tests that need it derive from MountedTest, which skips where FUSE cannot be used and tears a stuck
// mount down by aborting its connection.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "fsclient/filesystem.h"
#include "fsclient/mount.h"
#include "fsserver/file_service.h"
#include "proto/base/random.h"
#include "tests/support/loopback_caller.h"
#include "tests/support/temp_dir.h"

namespace tusk::test {

using support::read_file;
using support::TempDir;
using support::write_file;

// lstat(2), which must work.
[[nodiscard]] struct stat status(const std::string& path);

struct ExportSetup {
  std::filesystem::path exported;  // empty: a temporary directory
  bool read_only = false;
  bool setuid = false;               // of the export
  std::string source = "tusk-test";  // as the mount table shows it
  LoopbackOptions loopback;
  std::optional<Duration> lifetime;  // of cached facts, instead of the server's
  ByteCount cache_bytes = 64 * 1024 * 1024;
  std::optional<client::IdentityMap::User> as_user;  // instead of identity=real
  bool disk_cache = false;                           // file data is kept in a temporary directory, too
  std::filesystem::path disk_folder;                 // there instead, so that the next mount finds it
  bool leases = false;  // with changes on the server, those of this process included, seen by inotify
  // With leases: on every file, as where fanotify watches. Only what clients change is noticed.
  bool lease_all = false;
  std::size_t descriptors_max = 262'144;      // of all clients
  std::function<rpc::PathStats()> path = {};  // what the mount believes of its path; null: all is well
};

class MountedExport {
 public:
  explicit MountedExport(ExportSetup setup = {});
  // Another client's mount of the same export, which must outlive it.
  MountedExport(MountedExport& beside, ExportSetup setup);
  ~MountedExport();
  MountedExport(const MountedExport&) = delete;
  MountedExport& operator=(const MountedExport&) = delete;

  // Where programs see the files, and where the server keeps them.
  [[nodiscard]] const std::filesystem::path& path() const { return mountpoint_.path(); }
  [[nodiscard]] const std::filesystem::path& exported() const { return exported_; }
  [[nodiscard]] std::filesystem::path operator/(std::string_view name) const { return path() / name; }

  [[nodiscard]] LoopbackCaller& caller() { return *caller_; }
  [[nodiscard]] client::Filesystem& filesystem() { return *filesystem_; }
  [[nodiscard]] client::Mount& mount() { return *mount_; }
  [[nodiscard]] server::FileService& server() { return *server_; }

 private:
  void serve(const ExportSetup& setup);
  void mount(ExportSetup setup, char session);

  TempDir own_export_;
  TempDir mountpoint_;
  std::filesystem::path exported_;
  std::shared_ptr<LoopbackClients> pushes_;
  std::shared_ptr<server::FileService> server_;
  std::unique_ptr<LoopbackCaller> caller_;
  std::unique_ptr<client::ThreadScheduler> scheduler_;
  TempDir disk_folder_;
  std::unique_ptr<client::DiskCache> disk_cache_;
  std::unique_ptr<client::ThreadScheduler> disk_scheduler_;
  std::unique_ptr<client::Mount> mount_;
  std::unique_ptr<client::Filesystem> filesystem_;
};

// Why FUSE cannot be used here; nullopt if it can.
[[nodiscard]] std::optional<std::string> no_fuse();

class MountedTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = no_fuse()) GTEST_SKIP() << "skipped, because " << *reason;
    mounted_.emplace(setup());
  }
  virtual ExportSetup setup() { return {}; }

  // A path in the mount, and the same file on the server.
  [[nodiscard]] std::string in_mount(std::string_view name) { return (*mounted_ / name).string(); }
  [[nodiscard]] std::string on_server(std::string_view name) {
    return (mounted_->exported() / name).string();
  }

  std::optional<MountedExport> mounted_;
};

// An open file; the test fails where it cannot be opened.
class Fd {
 public:
  Fd(const std::string& path, int flags, mode_t mode = 0);
  ~Fd();
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

// Of a child that must end within seconds (it is killed then): its exit code, or minus its signal.
[[nodiscard]] int exit_code(pid_t child);

// Runs `work` in another process; its exit code is what it returns. Threads of ours may have held the
// allocator's lock at this moment, which nobody frees in the child: `work` must not allocate.
template <class Work>
[[nodiscard]] pid_t in_child(Work work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  return child;
}

// Becomes true within some seconds: for what happens on its own on other threads or with lifetimes.
[[nodiscard]] bool eventually(const std::function<bool()>& condition);

// `size` bytes that differ everywhere, the same for a seed.
[[nodiscard]] std::string noise(std::size_t size, std::uint64_t seed = 1);

}  // namespace tusk::test
