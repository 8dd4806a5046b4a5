// What is left to a process in the sandbox. Each probe is a child process: nobody leaves it again.
#include "fsserver/sandbox.h"

#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/landlock.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <thread>

#include "tests/support/temp_dir.h"

namespace tusk::server {
namespace {

using support::TempDir;
using support::write_file;
using testing::HasSubstr;

using Probe = std::function<bool()>;

// The errno of `probe` within the sandbox; 0: it succeeded.
int outcome(const SandboxWish& wish, const Probe& probe) {
  const pid_t child = ::fork();
  if (child == 0) {
    (void)enter_sandbox(wish);
    errno = 0;
    ::_exit(probe() ? 0 : errno);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

bool has_landlock() {
  return ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) >= 2;
}

Probe opens(const std::filesystem::path& path, int flags) {
  return [=] { return ::open(path.c_str(), flags | O_CLOEXEC, 0600) >= 0; };
}

TEST(Sandbox, ForbidsWhatNoFileServerDoes) {
  const SandboxWish wish{.system_calls = true};
  const std::pair<const char*, Probe> forbidden[] = {
      {"execve", [] { return ::execl("/bin/true", "true", nullptr) == 0; }},
      {"mount", [] { return ::mount("none", "/mnt", "tmpfs", 0, nullptr) == 0; }},
      {"umount2", [] { return ::umount2("/none", 0) == 0; }},
      {"chroot", [] { return ::chroot("/") == 0; }},
      {"ptrace", [] { return ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0; }},
      {"a namespace", [] { return ::unshare(CLONE_NEWNS) == 0; }},
      {"a user namespace", [] { return ::unshare(CLONE_NEWUSER) == 0; }},
      {"a clock's namespace", [] { return ::unshare(CLONE_NEWTIME) == 0; }},
      {"another's descriptor", [] { return ::syscall(SYS_pidfd_getfd, -1, 0, 0) >= 0; }},
      {"a mount's attributes", [] { return ::syscall(SYS_mount_setattr, -1, "", 0, nullptr, 0) >= 0; }},
      {"quotas", [] { return ::syscall(SYS_quotactl_fd, -1, 0, 0, nullptr) >= 0; }},
      {"bpf", [] { return ::syscall(SYS_bpf, 0, nullptr, 0) >= 0; }},
      {"io_uring", [] { return ::syscall(SYS_io_uring_setup, 1, nullptr) >= 0; }},
      {"a key", [] { return ::syscall(SYS_add_key, "user", "x", "y", 1, -2) >= 0; }},
  };
  for (const auto& [name, probe] : forbidden) EXPECT_EQ(outcome(wish, probe), EPERM) << name;
  EXPECT_EQ(outcome(wish, [] { return ::socket(AF_PACKET, SOCK_RAW, 0) >= 0; }), EAFNOSUPPORT);
}

TEST(Sandbox, LeavesWhatAFileServerDoes) {
  const SandboxWish wish{.system_calls = true};
  const std::pair<const char*, Probe> allowed[] = {
      {"threads", [] { return std::thread([] {}).join(), true; }},
      {"a umask of the thread's own", [] { return ::unshare(CLONE_FS) == 0; }},
      {"UDP", [] { return ::socket(AF_INET6, SOCK_DGRAM, 0) >= 0; }},
      {"sd_notify", [] { return ::socket(AF_UNIX, SOCK_DGRAM, 0) >= 0; }},
      {"addresses of interfaces", [] { return ::socket(AF_NETLINK, SOCK_RAW, 0) >= 0; }},
      {"any file", opens("/etc/hostname", O_RDONLY)},
  };
  for (const auto& [name, probe] : allowed) EXPECT_EQ(outcome(wish, probe), 0) << name;
}

TEST(Sandbox, NobodyLooksIntoTheProcess) {
  EXPECT_EQ(outcome({.system_calls = true}, [] { return ::prctl(PR_GET_DUMPABLE) == 0; }), 0);
}

class FilesOfASandbox : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_landlock()) GTEST_SKIP() << "skipped, because this kernel has no Landlock";
    for (const char* name : {"export", "export/a", "export/b", "state", "outside", "urls"})
      std::filesystem::create_directory(dir_ / name);
    for (const char* name : {"export/a/file", "state/key", "outside/secret", "urls/url"})
      write_file(dir_ / name, "bytes");
  }
  SandboxWish wish(bool read_only) {
    SandboxWish wish{.files = true};
    (read_only ? wish.read_only : wish.read_write).push_back(dir_ / "export");
    wish.read_write.push_back(dir_ / "state");
    wish.new_files.push_back(dir_ / "urls");
    return wish;
  }
  [[nodiscard]] std::string at(const char* name) const { return (dir_ / name).string(); }

  TempDir dir_;
};

TEST_F(FilesOfASandbox, AreThoseOfTheExportAndTheState) {
  const SandboxWish rw = wish(false);
  EXPECT_EQ(outcome(rw, opens(at("export/a/file"), O_RDWR)), 0);
  EXPECT_EQ(outcome(rw, opens(at("export/new"), O_RDWR | O_CREAT)), 0);
  EXPECT_EQ(outcome(rw, opens(at("export"), O_RDONLY | O_DIRECTORY)), 0);
  EXPECT_EQ(outcome(rw, opens(at("state/new"), O_RDWR | O_CREAT)), 0);
  EXPECT_EQ(outcome(rw, opens("/proc/self/mountinfo", O_RDONLY)), 0);
  EXPECT_EQ(outcome(rw, opens("/proc/sys/kernel/random/boot_id", O_RDONLY)), 0);
  for (const char* name : {"outside/secret", "outside", "urls/url"})
    EXPECT_EQ(outcome(rw, opens(at(name), O_RDONLY)), EACCES) << name;
  EXPECT_EQ(outcome(rw, opens(at("outside/new"), O_RDWR | O_CREAT)), EACCES);
  EXPECT_EQ(outcome(rw, opens("/root", O_RDONLY | O_DIRECTORY)), EACCES);
  EXPECT_EQ(outcome(rw, opens("/proc/1/status", O_RDONLY)), EACCES);
  EXPECT_EQ(outcome(rw, opens("/etc/new", O_RDWR | O_CREAT)), EACCES);
  EXPECT_EQ(outcome(rw, opens(at("urls/new"), O_WRONLY | O_CREAT)), 0);
}

TEST_F(FilesOfASandbox, MoveAndAreLinkedWithinTheExport) {
  const SandboxWish rw = wish(false);
  EXPECT_EQ(
      outcome(rw, [&] { return ::link(at("export/a/file").c_str(), at("export/b/link").c_str()) == 0; }), 0);
  EXPECT_EQ(
      outcome(rw, [&] { return ::rename(at("export/a/file").c_str(), at("export/b/file").c_str()) == 0; }),
      0);
  EXPECT_EQ(outcome(rw, [&] { return ::truncate(at("export/b/file").c_str(), 1) == 0; }), 0);
  EXPECT_NE(
      outcome(rw, [&] { return ::rename(at("export/b/file").c_str(), at("outside/file").c_str()) == 0; }), 0);
}

TEST_F(FilesOfASandbox, OfAReadOnlyExportAreOnlyRead) {
  const SandboxWish ro = wish(true);
  EXPECT_EQ(outcome(ro, opens(at("export/a/file"), O_RDONLY)), 0);
  for (const int flags : {O_RDWR, O_WRONLY, O_RDONLY | O_TRUNC})
    EXPECT_EQ(outcome(ro, opens(at("export/a/file"), flags)), EACCES) << flags;
  EXPECT_EQ(outcome(ro, [&] { return ::mkdir(at("export/new").c_str(), 0700) == 0; }), EACCES);
  EXPECT_EQ(outcome(ro, [&] { return ::unlink(at("export/a/file").c_str()) == 0; }), EACCES);
}

// As the server opens every file again: by the link in /proc of a descriptor that names the inode.
TEST_F(FilesOfASandbox, AreOpenedAgainByTheirDescriptors) {
  EXPECT_EQ(outcome(wish(false),
                    [&] {
                      const int named = ::open(at("export/a/file").c_str(), O_PATH | O_CLOEXEC);
                      return ::open(("/proc/self/fd/" + std::to_string(named)).c_str(), O_RDWR) >= 0;
                    }),
            0);
}

TEST_F(FilesOfASandbox, WhatIsInForceIsSaid) {
  EXPECT_EQ(enter_sandbox({}), "none");
  const auto said = [](const SandboxWish& wish, const char* text) {
    return outcome(wish, [&] { return testing::Matches(HasSubstr(text))(enter_sandbox(wish)); });
  };
  EXPECT_EQ(said({.system_calls = true}, "system calls (seccomp)"), 0);
  EXPECT_EQ(said(wish(false), "files (Landlock "), 0);
  SandboxWish missing = wish(false);
  missing.read_only.emplace_back(dir_ / "not there");
  EXPECT_EQ(said(missing, "no limit on files: "), 0);
}

}  // namespace
}  // namespace tusk::server
