// Locks between processes, which the server keeps.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "tests/fuse/mounted/mounted_export.h"

namespace tusk::test {
namespace {

using Locks = MountedTest;

int record_lock(int fd, short type, off_t start, off_t length, bool wait) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = start;
  lock.l_len = length;
  return ::fcntl(fd, wait ? F_SETLKW : F_SETLK, &lock);
}

TEST_F(Locks, ARecordLockKeepsOthersOut) {
  write_file(in_mount("a"), "0123456789");
  const Fd fd(in_mount("a"), O_RDWR);
  ASSERT_EQ(record_lock(fd.get(), F_WRLCK, 0, 5, false), 0);
  const pid_t child = in_child([path = in_mount("a")] {
    const int theirs = ::open(path.c_str(), O_RDWR);
    if (record_lock(theirs, F_WRLCK, 4, 2, false) != -1 || errno != EAGAIN) return 1;
    if (record_lock(theirs, F_WRLCK, 5, 5, false) != 0) return 2;
    struct flock test {};
    test.l_type = F_RDLCK;
    test.l_whence = SEEK_SET;
    test.l_len = 3;
    if (::fcntl(theirs, F_GETLK, &test) != 0) return 3;
    return test.l_type == F_WRLCK && test.l_start == 0 && test.l_len == 5 ? 0 : 4;
  });
  EXPECT_EQ(exit_code(child), 0);
}

TEST_F(Locks, ClosingReleasesRecordLocks) {
  write_file(in_mount("a"), "x");
  {
    const Fd fd(in_mount("a"), O_RDWR);
    ASSERT_EQ(record_lock(fd.get(), F_WRLCK, 0, 0, false), 0);
  }
  const pid_t child = in_child([path = in_mount("a")] {
    const int theirs = ::open(path.c_str(), O_RDWR);
    return record_lock(theirs, F_WRLCK, 0, 0, false);
  });
  EXPECT_EQ(exit_code(child), 0);
}

TEST_F(Locks, AWaiterGetsTheLockWhenItIsFree) {
  write_file(in_mount("a"), "x");
  const Fd fd(in_mount("a"), O_RDWR);
  ASSERT_EQ(record_lock(fd.get(), F_WRLCK, 0, 0, false), 0);
  const pid_t child = in_child([path = in_mount("a")] {
    const int theirs = ::open(path.c_str(), O_RDWR);
    return record_lock(theirs, F_WRLCK, 0, 0, true);
  });
  EXPECT_TRUE(eventually([&] { return mounted_->caller().calls(schema::Request::kLock) >= 2; }));
  EXPECT_EQ(::waitpid(child, nullptr, WNOHANG), 0);
  ASSERT_EQ(record_lock(fd.get(), F_UNLCK, 0, 0, false), 0);
  EXPECT_EQ(exit_code(child), 0);
}

TEST_F(Locks, AWaiterCanBeInterrupted) {
  write_file(in_mount("a"), "x");
  const Fd fd(in_mount("a"), O_RDWR);
  ASSERT_EQ(record_lock(fd.get(), F_WRLCK, 0, 0, false), 0);
  const pid_t child = in_child([path = in_mount("a")] {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    ::sigaction(SIGUSR1, &action, nullptr);  // without SA_RESTART
    const int theirs = ::open(path.c_str(), O_RDWR);
    return record_lock(theirs, F_WRLCK, 0, 0, true) == -1 && errno == EINTR ? 0 : 1;
  });
  EXPECT_TRUE(eventually([&] { return mounted_->caller().calls(schema::Request::kLock) >= 2; }));
  ::kill(child, SIGUSR1);
  EXPECT_EQ(exit_code(child), 0);
}

TEST_F(Locks, AKilledWaiterLeavesNoLockBehind) {
  write_file(in_mount("a"), "x");
  const Fd fd(in_mount("a"), O_RDWR);
  ASSERT_EQ(::flock(fd.get(), LOCK_EX), 0);
  const pid_t child = in_child([path = in_mount("a")] {
    const int theirs = ::open(path.c_str(), O_RDWR);
    return ::flock(theirs, LOCK_EX);
  });
  EXPECT_TRUE(eventually([&] { return mounted_->caller().calls(schema::Request::kLock) >= 2; }));
  ::kill(child, SIGKILL);
  EXPECT_EQ(exit_code(child), -SIGKILL);
  ASSERT_EQ(::flock(fd.get(), LOCK_UN), 0);
  EXPECT_TRUE(eventually([&] { return ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0; }));
}

TEST_F(Locks, FlockSharedAndExclusive) {
  write_file(in_mount("a"), "x");
  const Fd fd(in_mount("a"), O_RDWR);
  ASSERT_EQ(::flock(fd.get(), LOCK_SH), 0);
  const pid_t child = in_child([path = in_mount("a")] {
    const int theirs = ::open(path.c_str(), O_RDWR);
    if (::flock(theirs, LOCK_SH | LOCK_NB) != 0) return 1;
    return ::flock(theirs, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK ? 0 : 2;
  });
  EXPECT_EQ(exit_code(child), 0);
  EXPECT_TRUE(eventually([&] { return ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0; }));
}

TEST_F(Locks, ClosingReleasesFlock) {
  write_file(in_mount("a"), "x");
  {
    const Fd fd(in_mount("a"), O_RDWR);
    ASSERT_EQ(::flock(fd.get(), LOCK_EX), 0);
  }
  const Fd other(in_mount("a"), O_RDWR);
  EXPECT_TRUE(eventually([&] { return ::flock(other.get(), LOCK_EX | LOCK_NB) == 0; }));
}

TEST_F(Locks, WhoGetsALockSeesWhatTheLastHolderWrote) {
  write_file(in_mount("a"), "before");
  const Fd fd(in_mount("a"), O_RDWR);
  char bytes[6];
  ASSERT_EQ(::pread(fd.get(), bytes, sizeof bytes, 0), 6);  // cached
  write_file(on_server("a"), "AFTER!");                     // another client, holding the lock
  ASSERT_EQ(record_lock(fd.get(), F_RDLCK, 0, 0, true), 0);
  ASSERT_EQ(::pread(fd.get(), bytes, sizeof bytes, 0), 6);
  EXPECT_EQ(std::string_view(bytes, 6), "AFTER!");
}

}  // namespace
}  // namespace tusk::test
