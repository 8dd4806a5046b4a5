// In processes of their own, which have no privilege: an ordinary user's server.
#include "fsserver/owner_rights.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "tests/support/temp_dir.h"

namespace tusk::server {
namespace {

using support::TempDir;
using support::write_file;

constexpr uid_t kUser = 65534;

// What `work` says, as kUser; 77 where no user may make a namespace.
int as_user(const std::function<int(OwnerRights&)>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    const bool root = ::geteuid() == 0;
    if (root && (::setgroups(0, nullptr) != 0 || ::setresgid(kUser, kUser, kUser) != 0 ||
                 ::setresuid(kUser, kUser, kUser) != 0 || ::prctl(PR_SET_DUMPABLE, 1) != 0))
      ::_exit(99);
    const auto rights = OwnerRights::start({.system_calls = true});
    ::_exit(rights ? work(**rights) : 77);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

class OwnerRightsOf : public testing::Test {
 protected:
  std::string file(const char* name, mode_t mode, uid_t owner = kUser) {
    const std::string path = (dir_ / name).string();
    write_file(path, "before");
    if (::geteuid() == 0) EXPECT_EQ(::chown(path.c_str(), owner, owner), 0);
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  void SetUp() override { ASSERT_EQ(::chmod(dir_.path().c_str(), 0755), 0); }
  TempDir dir_;
};

TEST_F(OwnerRightsOf, AUsersOwnFileOpensAndStaysAsItIs) {
  const std::string path = file("closed", 0);
  struct stat before {};
  ASSERT_EQ(::stat(path.c_str(), &before), 0);
  const int said = as_user([&](OwnerRights& rights) {
    const Fd node(::open(path.c_str(), O_PATH | O_CLOEXEC));
    if (::open(path.c_str(), O_RDONLY | O_CLOEXEC) >= 0) return 1;
    for (const int access : {O_RDONLY, O_WRONLY, O_RDWR}) {
      const auto opened = rights.reopen(node, access);
      if (!opened || (::fcntl(opened->number(), F_GETFL) & O_ACCMODE) != access) return 2;
    }
    return 0;
  });
  if (said == 77) GTEST_SKIP() << "skipped, because no user may make a namespace here";
  EXPECT_EQ(said, 0);
  struct stat after {};
  ASSERT_EQ(::stat(path.c_str(), &after), 0);
  EXPECT_EQ(after.st_mode, before.st_mode);
  EXPECT_EQ(after.st_ctim.tv_nsec, before.st_ctim.tv_nsec);
}

TEST_F(OwnerRightsOf, AProgramsLeaseStopsOnlyWhoWantsItsFile) {
  const std::string path = file("leased", 0600);
  const std::string free = file("free", 0);
  const int said = as_user([&](OwnerRights& rights) {
    (void)::signal(SIGIO, SIG_IGN);
    Fd holder(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (::fcntl(holder.number(), F_SETLEASE, F_WRLCK) != 0) return 77;
    const Fd node(::open(path.c_str(), O_PATH | O_CLOEXEC));
    std::atomic<bool> opened{false};
    std::jthread waiting([&] { opened = rights.reopen(node, O_RDONLY).has_value(); });
    while (::fcntl(holder.number(), F_GETLEASE) == F_WRLCK) std::this_thread::yield();  // until it is broken
    const auto other = rights.reopen(Fd(::open(free.c_str(), O_PATH | O_CLOEXEC)), O_RDONLY);
    if (!other || (::fcntl(other->number(), F_GETFL) & O_NONBLOCK) != 0 || opened) return 1;
    holder = Fd();
    waiting.join();
    return opened ? 0 : 2;
  });
  if (said == 77) GTEST_SKIP() << "skipped, because no user may make a namespace here";
  EXPECT_EQ(said, 0);
}

TEST_F(OwnerRightsOf, FilesOfOthersStayClosed) {
  if (::geteuid() != 0) GTEST_SKIP() << "skipped, because it needs root";
  const std::string path = file("another", 0600, 12'345);
  const int said = as_user([&](OwnerRights& rights) {
    const auto opened = rights.reopen(Fd(::open(path.c_str(), O_PATH | O_CLOEXEC)), O_RDONLY);
    return opened ? 1 : opened.error().code == from_errno(EACCES) ? 0 : 2;
  });
  if (said == 77) GTEST_SKIP() << "skipped, because no user may make a namespace here";
  EXPECT_EQ(said, 0);
}

}  // namespace
}  // namespace tusk::server
