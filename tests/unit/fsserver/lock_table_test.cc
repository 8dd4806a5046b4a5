// Locks among clients, and between clients and programs on the server.
#include <sys/file.h>

#include <csignal>

#include "mounts_with_leases.h"

namespace tusk::server {
namespace {

constexpr FileKey kFile{1, 2};

class Locks : public testing::Test {
 protected:
  Locks() {
    write_file(dir_ / "file", "content");
    node_ = share(Fd(::open((dir_ / "file").c_str(), O_PATH | O_CLOEXEC)));
  }

  static LockWanted wanted(std::uint64_t owner, LockType type, std::uint64_t start = 0,
                           std::uint64_t end = kLockEnd) {
    return {.owner = {.session = owner, .owner = owner},
            .open_id = owner,
            .type = type,
            .start = start,
            .end = end,
            .pid = static_cast<std::uint32_t>(owner)};
  }
  static LockWanted flock_wanted(std::uint64_t owner, LockType type) {
    LockWanted lock = wanted(owner, type);
    lock.kind = LockKind::kFlock;
    return lock;
  }
  // The errno of a lock that does not wait; 0: granted.
  int try_lock(const LockWanted& lock, FileKey file = kFile) {
    int result = -1;
    (void)table_.lock(file, node_of(file), lock, false,
                      [&](Result<void> r) { result = r ? 0 : to_errno(r.error().code); });
    return result;
  }
  // A waiting lock; `result` stays -1 until it is decided.
  LockWaitId wait_lock(const LockWanted& lock, int& result, FileKey file = kFile) {
    result = -1;
    return table_.lock(file, node_of(file), lock, true,
                       [&](Result<void> r) { result = r ? 0 : to_errno(r.error().code); });
  }
  LockType in_the_way(const LockWanted& lock) { return table_.test(kFile, node_, lock).type; }

  SharedFd node_of(FileKey file) { return nodes_.contains(file) ? nodes_[file] : node_; }

  TempDir dir_;
  SharedFd node_;
  std::map<FileKey, SharedFd> nodes_;  // of tests with more than one file
  LockTable table_;
};

constexpr auto kRead = LockType::kRead;
constexpr auto kWrite = LockType::kWrite;
constexpr auto kUnlock = LockType::kUnlock;

TEST_F(Locks, ReadersShareWritersDoNot) {
  EXPECT_EQ(try_lock(wanted(1, kRead)), 0);
  EXPECT_EQ(try_lock(wanted(2, kRead)), 0);
  EXPECT_EQ(try_lock(wanted(3, kWrite)), EAGAIN);
  EXPECT_EQ(try_lock(wanted(1, kWrite)), EAGAIN);
  EXPECT_EQ(try_lock(wanted(2, kUnlock)), 0);
  EXPECT_EQ(try_lock(wanted(1, kWrite)), 0);
  EXPECT_EQ(try_lock(wanted(2, kRead)), EAGAIN);
}

TEST_F(Locks, RangesAreCutSplitAndJoined) {
  EXPECT_EQ(try_lock(wanted(1, kWrite, 0, 99)), 0);
  EXPECT_EQ(try_lock(wanted(1, kUnlock, 40, 59)), 0);
  EXPECT_EQ(table_.held(), 2u);
  EXPECT_EQ(try_lock(wanted(2, kWrite, 40, 59)), 0);
  EXPECT_EQ(try_lock(wanted(2, kWrite, 39, 39)), EAGAIN);
  EXPECT_EQ(try_lock(wanted(2, kWrite, 60, 60)), EAGAIN);
  EXPECT_EQ(try_lock(wanted(2, kWrite, 100, kLockEnd)), 0);
  EXPECT_EQ(try_lock(wanted(2, kUnlock)), 0);
  EXPECT_EQ(try_lock(wanted(1, kWrite, 40, 59)), 0);
  EXPECT_EQ(table_.held(), 1u);
  EXPECT_EQ(try_lock(wanted(1, kRead, 10, 19)), 0);
  EXPECT_EQ(table_.held(), 3u);
  EXPECT_EQ(try_lock(wanted(2, kRead, 10, 19)), 0);
}

TEST_F(Locks, TestNamesTheFirstLockInTheWay) {
  EXPECT_EQ(try_lock(wanted(1, kWrite, 10, 14)), 0);
  EXPECT_EQ(try_lock(wanted(1, kRead, 1, 5)), 0);
  EXPECT_EQ(table_.test(kFile, node_, wanted(2, kWrite)).start, 1u);
  EXPECT_EQ(table_.test(kFile, node_, wanted(2, kWrite, 6)).start, 10u);
  EXPECT_EQ(table_.test(kFile, node_, wanted(2, kRead)).start, 10u);
}

TEST_F(Locks, TestNamesTheHolder) {
  EXPECT_EQ(try_lock(wanted(7, kWrite, 10, 19)), 0);
  const LockWanted holder = table_.test(kFile, node_, wanted(8, kRead, 0, 100));
  EXPECT_EQ(holder.type, kWrite);
  EXPECT_EQ(holder.start, 10u);
  EXPECT_EQ(holder.end, 19u);
  EXPECT_EQ(holder.pid, 7u);
  EXPECT_EQ(in_the_way(wanted(7, kWrite)), kUnlock);
  EXPECT_EQ(in_the_way(wanted(8, kWrite, 20)), kUnlock);
}

TEST_F(Locks, AWaiterGetsTheLockWhenItIsFree) {
  int second = 0, third = 0;
  EXPECT_EQ(try_lock(wanted(1, kWrite)), 0);
  (void)wait_lock(wanted(2, kWrite), second);
  (void)wait_lock(wanted(3, kRead), third);
  EXPECT_EQ(second, -1);
  EXPECT_EQ(table_.waiting(), 2u);
  EXPECT_EQ(try_lock(wanted(1, kUnlock)), 0);
  EXPECT_EQ(second, 0);
  EXPECT_EQ(third, -1);
  EXPECT_EQ(try_lock(wanted(2, kRead)), 0);  // weaker now: readers may come
  EXPECT_EQ(third, 0);
  EXPECT_EQ(table_.waiting(), 0u);
}

TEST_F(Locks, ACancelledWaitIsOver) {
  int second = 0;
  EXPECT_EQ(try_lock(wanted(1, kWrite)), 0);
  const LockWaitId wait = wait_lock(wanted(2, kWrite), second);
  table_.cancel(wait);
  EXPECT_EQ(second, EINTR);
  table_.cancel(wait);
  EXPECT_EQ(try_lock(wanted(1, kUnlock)), 0);
  EXPECT_EQ(table_.held(), 0u);
}

TEST_F(Locks, ADeadlockIsRefused) {
  int first = 0, second = 0;
  EXPECT_EQ(try_lock(wanted(1, kWrite, 0, 9)), 0);
  EXPECT_EQ(try_lock(wanted(2, kWrite, 10, 19)), 0);
  (void)wait_lock(wanted(1, kWrite, 10, 19), first);
  EXPECT_EQ(first, -1);
  (void)wait_lock(wanted(2, kWrite, 0, 9), second);
  EXPECT_EQ(second, EDEADLK);
  EXPECT_EQ(try_lock(wanted(2, kUnlock)), 0);
  EXPECT_EQ(first, 0);
}

TEST_F(Locks, ADeadlockOverThreeFilesIsRefused) {
  const FileKey files[] = {{1, 1}, {1, 2}, {1, 3}};
  for (const auto& key : files) {
    const auto path = dir_ / std::to_string(key.ino);
    write_file(path, "");
    nodes_[key] = share(Fd(::open(path.c_str(), O_PATH | O_CLOEXEC)));
  }
  int results[3];
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(try_lock(wanted(i + 1, kWrite), files[i]), 0);
  (void)wait_lock(wanted(1, kWrite), results[0], files[1]);
  (void)wait_lock(wanted(2, kWrite), results[1], files[2]);
  EXPECT_EQ(results[0], -1);
  EXPECT_EQ(results[1], -1);
  (void)wait_lock(wanted(3, kRead), results[2], files[0]);
  EXPECT_EQ(results[2], EDEADLK);
}

TEST_F(Locks, FlockAndRecordLocksDoNotMeet) {
  EXPECT_EQ(try_lock(wanted(1, kWrite)), 0);
  EXPECT_EQ(try_lock(flock_wanted(2, kWrite)), 0);
  EXPECT_EQ(try_lock(flock_wanted(3, kRead)), EAGAIN);
}

TEST_F(Locks, AreReleasedWithWhatTheyBelongTo) {
  int waiting = 0;
  EXPECT_EQ(try_lock(wanted(1, kWrite)), 0);
  EXPECT_EQ(try_lock(flock_wanted(1, kWrite)), 0);
  (void)wait_lock(flock_wanted(2, kWrite), waiting);
  table_.release_open(kFile, 1, 1);  // close: flock only
  EXPECT_EQ(waiting, 0);
  EXPECT_EQ(try_lock(wanted(2, kRead)), EAGAIN);
  table_.release_file(kFile, 1);
  EXPECT_EQ(try_lock(wanted(2, kRead)), 0);
  int third = 0;
  (void)wait_lock(wanted(3, kWrite), third);
  table_.release_session(3);
  EXPECT_EQ(third, EINTR);
  table_.release_session(2);
  EXPECT_EQ(table_.held(), 0u);
  EXPECT_EQ(table_.waiting(), 0u);
}

TEST_F(Locks, AreLimitedPerFile) {
  for (std::uint64_t i = 0; i < kLocksPerFileMax; ++i)
    ASSERT_EQ(try_lock(wanted(1, kRead, 3 * i, 3 * i)), 0) << i;
  EXPECT_EQ(try_lock(wanted(1, kRead, 1u << 30, 1u << 30)), ENOLCK);
  EXPECT_EQ(try_lock(wanted(1, kUnlock)), 0);
  EXPECT_EQ(table_.held(), 0u);
}

TEST_F(Locks, AreLimitedPerFileAlsoWhenAnUnlockSplitsThem) {
  for (std::uint64_t i = 1; i < kLocksPerFileMax; ++i)
    ASSERT_EQ(try_lock(wanted(1, kRead, 3 * i, 3 * i)), 0) << i;
  constexpr std::uint64_t kFar = 1u << 30;
  EXPECT_EQ(try_lock(wanted(1, kRead, kFar, kFar + 2)), 0);
  EXPECT_EQ(try_lock(wanted(1, kUnlock, kFar + 1, kFar + 1)), ENOLCK);
  EXPECT_EQ(try_lock(wanted(1, kUnlock, kFar, kFar)), 0);
  EXPECT_EQ(table_.held(), kLocksPerFileMax);
}

TEST_F(Locks, WaitsOfOneMountLeaveRoomForOthers) {
  constexpr FileKey kOtherFile{1, 3};
  write_file(dir_ / "other", "");
  nodes_[kOtherFile] = share(Fd(::open((dir_ / "other").c_str(), O_PATH | O_CLOEXEC)));
  for (const bool in_grace : {false, true}) {
    for (const FileKey file : {kFile, kOtherFile}) EXPECT_EQ(try_lock(wanted(9, kWrite), file), 0);
    if (in_grace) table_.begin_grace();
    std::vector<int> results(kLockWaitsPerSessionMax + 1);
    for (std::size_t i = 0; i < results.size(); ++i) {
      LockWanted lock = wanted(1, kWrite);
      lock.owner.owner = i;
      (void)wait_lock(lock, results[i], i % 2 == 0 ? kFile : kOtherFile);
    }
    EXPECT_EQ(std::ranges::count(results, -1), static_cast<std::ptrdiff_t>(kLockWaitsPerSessionMax));
    EXPECT_EQ(results.back(), ENOLCK);
    int other = 0, again = 0;
    const LockWaitId waiting = wait_lock(wanted(2, kWrite), other);
    EXPECT_EQ(other, -1);
    table_.cancel(waiting);
    if (in_grace) table_.end_grace();
    table_.release_session(1);
    EXPECT_EQ(std::ranges::count(results, EINTR), static_cast<std::ptrdiff_t>(kLockWaitsPerSessionMax));
    const LockWaitId anew = wait_lock(wanted(1, kWrite), again);
    EXPECT_EQ(again, -1) << "they are over";
    table_.cancel(anew);
    table_.release_session(9);
    EXPECT_EQ(table_.waiting(), 0u);
  }
}

TEST_F(Locks, AClientPaysForTheFilesThatItLocks) {
  // Room for the three descriptors of one file.
  const auto quota = std::make_shared<Quota>(std::make_shared<QuotaPool>(5));
  const auto paid = [&](FileKey file, const LockWanted& lock) {
    int result = -1;
    (void)table_.lock(
        file, node_, lock, false, [&](Result<void> r) { result = r ? 0 : to_errno(r.error().code); }, quota);
    return result;
  };
  constexpr FileKey kOtherFile{1, 3};
  EXPECT_EQ(paid(kFile, wanted(1, kRead, 0, 1)), 0);
  EXPECT_EQ(paid(kFile, wanted(1, kRead, 5, 6)), 0);
  EXPECT_EQ(paid(kOtherFile, wanted(1, kRead)), ENOLCK);
  EXPECT_EQ(paid(kOtherFile, wanted(1, kUnlock)), 0);
  EXPECT_EQ(paid(kFile, wanted(1, kUnlock)), 0);
  EXPECT_EQ(paid(kOtherFile, wanted(1, kRead)), 0);
}

// A program on the server: OFD locks and flock of a descriptor of its own.
class LocalProgram {
 public:
  explicit LocalProgram(const std::filesystem::path& file) : fd_(::open(file.c_str(), O_RDWR | O_CLOEXEC)) {}
  bool lock(short type, off_t start = 0, off_t length = 0) {
    struct flock native {};
    native.l_type = type;
    native.l_whence = SEEK_SET;
    native.l_start = start;
    native.l_len = length;
    return ::fcntl(fd_.number(), F_OFD_SETLK, &native) == 0;
  }
  bool flock(int operation) { return ::flock(fd_.number(), operation | LOCK_NB) == 0; }

 private:
  Fd fd_;
};

TEST_F(Locks, KeepOutProgramsOnTheServer) {
  LocalProgram program(dir_ / "file");
  EXPECT_EQ(try_lock(wanted(1, kRead, 0, 9)), 0);
  EXPECT_EQ(try_lock(wanted(2, kRead, 5, 14)), 0);
  EXPECT_FALSE(program.lock(F_WRLCK, 0, 1));
  EXPECT_TRUE(program.lock(F_RDLCK, 0, 1));
  EXPECT_TRUE(program.lock(F_WRLCK, 20, 1));
  EXPECT_TRUE(program.lock(F_UNLCK));
  EXPECT_EQ(try_lock(wanted(1, kUnlock)), 0);
  EXPECT_TRUE(program.lock(F_WRLCK, 0, 5));
  EXPECT_FALSE(program.lock(F_WRLCK, 5, 1));  // the second client's is left
  EXPECT_EQ(try_lock(wanted(2, kUnlock)), 0);
  EXPECT_TRUE(program.lock(F_WRLCK));
}

// Does this process have it open for writing? Then the kernel executes it for nobody.
bool open_for_writing(const std::filesystem::path& file) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the iterator's own
    const int number = std::stoi(entry.path().filename());
    if (std::filesystem::read_symlink(entry.path(), gone) != file) continue;
    if ((::fcntl(number, F_GETFL) & O_ACCMODE) != O_RDONLY) return true;
  }
  return false;
}

TEST_F(Locks, OpenTheFileForWritingOnlyWhenTheyMust) {
  EXPECT_EQ(try_lock(wanted(1, kRead, 0, 9)), 0);
  EXPECT_EQ(try_lock(wanted(2, kRead, 20, 29)), 0);
  EXPECT_EQ(try_lock(flock_wanted(1, kWrite)), 0);
  EXPECT_FALSE(open_for_writing(dir_ / "file"));

  // What was locked stays so on the way.
  EXPECT_EQ(try_lock(wanted(3, kWrite, 10, 19)), 0);
  EXPECT_TRUE(open_for_writing(dir_ / "file"));
  LocalProgram program(dir_ / "file");
  for (const off_t at : {0, 9, 10, 19, 20, 29}) EXPECT_FALSE(program.lock(F_WRLCK, at, 1)) << at;
  EXPECT_TRUE(program.lock(F_WRLCK, 30, 1));
  EXPECT_FALSE(program.lock(F_RDLCK, 10, 1));
  EXPECT_TRUE(program.lock(F_RDLCK, 0, 10));
  EXPECT_FALSE(program.flock(LOCK_SH));
}

TEST_F(Locks, RespectProgramsOnTheServer) {
  LocalProgram program(dir_ / "file");
  ASSERT_TRUE(program.lock(F_WRLCK, 0, 10));
  EXPECT_EQ(try_lock(wanted(1, kRead)), EAGAIN);
  EXPECT_EQ(in_the_way(wanted(1, kRead)), kWrite);
  EXPECT_EQ(try_lock(wanted(1, kRead, 10)), 0);
  int waiting = 0;
  (void)wait_lock(wanted(2, kWrite, 0, 5), waiting);
  EXPECT_TRUE(table_.retry());
  EXPECT_EQ(waiting, -1);
  ASSERT_TRUE(program.lock(F_UNLCK));
  EXPECT_FALSE(table_.retry());
  EXPECT_EQ(waiting, 0);
}

class LocksAndLeases : public Locks {
 protected:
  void SetUp() override {
    if (!lease(F_RDLCK)) GTEST_SKIP() << "there are no leases here";
  }
  ~LocksAndLeases() override { ::signal(SIGIO, handler_); }
  bool lease(int type) { return ::fcntl(program_.number(), F_SETLEASE, type) == 0; }
  // Whether it gets one; it does not keep it.
  bool program_gets_a_lock() {
    struct flock native {};
    native.l_type = F_RDLCK;
    const bool got = ::fcntl(program_.number(), F_OFD_SETLK, &native) == 0;
    native.l_type = F_UNLCK;
    (void)::fcntl(program_.number(), F_OFD_SETLK, &native);
    return got;
  }

  sighandler_t handler_ = ::signal(SIGIO, SIG_IGN);  // by it the kernel asks for the lease
  Fd program_{::open((dir_ / "file").c_str(), O_RDONLY | O_CLOEXEC)};
};

TEST_F(LocksAndLeases, DoNotWaitForOneAnother) {
  EXPECT_EQ(try_lock(wanted(1, kRead)), 0);
  int waiting = 0;
  (void)wait_lock(wanted(1, kWrite), waiting);
  EXPECT_TRUE(table_.retry());
  EXPECT_EQ(waiting, -1);
  int reading = 0;
  (void)wait_lock(wanted(1, kRead), reading);
  EXPECT_EQ(reading, 0) << "held back by who waits to write";
  ASSERT_TRUE(lease(F_UNLCK));
  EXPECT_FALSE(table_.retry());
  EXPECT_EQ(waiting, 0);
  EXPECT_FALSE(LocalProgram(dir_ / "file").lock(F_RDLCK));
}

TEST_F(LocksAndLeases, ALockThatDoesNotWaitIsGrantedWhenTheLeaseComesBackSoon) {
  int decided = -1;
  const auto decide = [&](Result<void> r) { decided = r ? 0 : to_errno(r.error().code); };
  (void)table_.lock(kFile, node_, wanted(1, kWrite), false, decide);
  EXPECT_TRUE(table_.retry());
  EXPECT_EQ(decided, -1);
  ASSERT_TRUE(lease(F_UNLCK));
  EXPECT_FALSE(table_.retry());
  EXPECT_EQ(decided, 0);
}

TEST_F(LocksAndLeases, ALockThatDoesNotWaitIsRefusedWhenTheLeaseStays) {
  int decided = -1, behind_a_lock = -1;
  (void)table_.lock(kFile, node_, wanted(1, kWrite), false,
                    [&](Result<void> r) { decided = r ? 0 : to_errno(r.error().code); });
  (void)table_.lock(kFile, node_, wanted(2, kWrite, 10, 20), false,
                    [&](Result<void> r) { behind_a_lock = r ? 0 : to_errno(r.error().code); });
  EXPECT_EQ(try_lock(wanted(3, kRead, 10, 10)), 0);
  (void)table_.retry();
  EXPECT_EQ(behind_a_lock, EAGAIN) << "it waits for a lock";
  for (int i = 2; i < kLeaseTries; ++i) (void)table_.retry();
  EXPECT_EQ(decided, EAGAIN) << "it waits for a lock, too";
  EXPECT_EQ(table_.waiting(), 0u);
  (void)table_.lock(kFile, node_, wanted(1, kWrite, 30, 40), false,
                    [&](Result<void> r) { decided = r ? 0 : to_errno(r.error().code); });
  decided = -1;
  for (int i = 1; i < kLeaseTries; ++i) EXPECT_TRUE(table_.retry());
  EXPECT_EQ(decided, -1);
  EXPECT_FALSE(table_.retry());
  EXPECT_EQ(decided, EAGAIN);
  EXPECT_EQ(table_.waiting(), 0u);
}

TEST_F(LocksAndLeases, WhatIsLeasedForWritingIsNotSaidToBeFree) {
  program_ = Fd();
  program_ = Fd(::open((dir_ / "file").c_str(), O_RDWR | O_CLOEXEC));
  if (!lease(F_WRLCK)) GTEST_SKIP() << "there are no leases for writing here";
  EXPECT_EQ(in_the_way(wanted(1, kRead)), kWrite);
  ASSERT_TRUE(lease(F_UNLCK));
  EXPECT_EQ(in_the_way(wanted(1, kRead)), kUnlock);
}

TEST_F(LocksAndLeases, ALockOfBeforeARestartIsKeptAndTakenOnTheServerWhenTheLeaseIsBack) {
  table_.begin_grace();
  EXPECT_TRUE(table_.reclaim(kFile, node_, wanted(1, kWrite), nullptr));
  EXPECT_TRUE(table_.reclaim(kFile, node_, flock_wanted(1, kWrite), nullptr));
  EXPECT_EQ(table_.reclaim(kFile, node_, wanted(2, kWrite), nullptr).error().code, from_errno(EAGAIN));
  table_.end_grace();
  EXPECT_TRUE(table_.holds(kFile, wanted(1, kWrite)));
  EXPECT_EQ(try_lock(wanted(2, kRead)), EAGAIN);
  EXPECT_TRUE(table_.retry());
  EXPECT_TRUE(program_gets_a_lock());
  ASSERT_TRUE(lease(F_UNLCK));
  EXPECT_FALSE(table_.retry());
  EXPECT_FALSE(program_gets_a_lock());
  EXPECT_NE(::flock(program_.number(), LOCK_SH | LOCK_NB), 0);
  EXPECT_EQ(try_lock(wanted(1, kUnlock)), 0);
  EXPECT_TRUE(program_gets_a_lock());
}

TEST_F(LocksAndLeases, ALockOfBeforeARestartIsLostToAProgramThatIsQuickerWhenTheLeaseIsBack) {
  table_.begin_grace();
  EXPECT_TRUE(table_.reclaim(kFile, node_, wanted(1, kWrite, 0, 9), nullptr));
  EXPECT_TRUE(table_.reclaim(kFile, node_, wanted(1, kRead, 50, 59), nullptr));
  EXPECT_TRUE(table_.reclaim(kFile, node_, wanted(2, kWrite, 20, 29), nullptr));
  table_.end_grace();
  int waiting = 0;
  (void)wait_lock(wanted(3, kWrite, 50, 59), waiting);
  EXPECT_TRUE(table_.retry());
  ASSERT_TRUE(lease(F_UNLCK));
  LocalProgram quicker(dir_ / "file");
  ASSERT_TRUE(quicker.lock(F_WRLCK, 5, 1));
  EXPECT_FALSE(table_.retry());
  EXPECT_FALSE(table_.holds(kFile, wanted(1, kWrite, 0, 9)));
  EXPECT_FALSE(table_.holds(kFile, wanted(1, kRead, 50, 59))) << "part of its locks would protect nothing";
  EXPECT_EQ(waiting, 0);
  EXPECT_TRUE(table_.holds(kFile, wanted(2, kWrite, 20, 29)));
  EXPECT_TRUE(quicker.lock(F_WRLCK, 0, 10)) << "taken there and not given back";
  EXPECT_FALSE(quicker.lock(F_WRLCK, 20, 1));
}

TEST_F(Locks, ShareFlockWithProgramsOnTheServer) {
  LocalProgram program(dir_ / "file");
  ASSERT_TRUE(program.flock(LOCK_SH));
  EXPECT_EQ(try_lock(flock_wanted(1, kRead)), 0);
  EXPECT_EQ(try_lock(flock_wanted(1, kWrite)), EAGAIN);
  EXPECT_FALSE(program.flock(LOCK_EX));  // the refused upgrade has not lost the shared lock
  ASSERT_TRUE(program.flock(LOCK_UN));
  EXPECT_EQ(try_lock(flock_wanted(1, kWrite)), 0);
  EXPECT_FALSE(program.flock(LOCK_SH));
  table_.release_open(kFile, 1, 1);
  EXPECT_TRUE(program.flock(LOCK_EX));
}

// Through the service: the call waits, not a thread.
class LockCalls : public testing::Test {
 protected:
  LockCalls()
      : server_(dir_.path()), one_(server_), two_(server_, {.session = std::string(kSessionIdBytes, '2')}) {
    write_file(dir_ / "file", "content");
    file_ = one_.handle("file");
  }
  schema::Request lock(LockType type, bool wait = false, std::uint64_t open_id = 0, bool flock = false) {
    schema::Request request;
    schema::LockRequest& lock = *request.mutable_lock();
    lock.set_handle(file_);
    lock.set_open_id(open_id);
    lock.set_flock(flock);
    lock.set_owner(1);
    lock.set_type(static_cast<std::uint32_t>(type));
    lock.set_end(kLockEnd);
    lock.set_wait(wait);
    return request;
  }

  TempDir dir_;
  Server server_;
  Mount one_;
  Mount two_;
  std::string file_;
};

TEST_F(LockCalls, WaitUntilAnotherMountUnlocks) {
  EXPECT_OK(one_.call(lock(kWrite)));
  EXPECT_ERROR(two_.call(lock(kWrite)), err(EAGAIN));
  const auto waiting = two_.start(lock(kWrite, true));
  EXPECT_OK(one_.call(lock(kUnlock)));
  EXPECT_OK(waiting->wait());
}

TEST_F(LockCalls, EndWhenTheCallerGivesUp) {
  EXPECT_OK(one_.call(lock(kWrite)));
  const auto waiting = two_.start(lock(kWrite, true));
  EXPECT_TRUE(server_.service().drain(5s));  // the wait holds no thread
  EXPECT_FALSE(waiting->answered());
  waiting->cancel();
  EXPECT_ERROR(waiting->wait(), err(EINTR));
}

TEST_F(LockCalls, AreGoneWhenTheSessionEnds) {
  EXPECT_OK(one_.call(lock(kWrite)));
  const auto waiting = two_.start(lock(kWrite, true));
  one_.disconnect(true);
  EXPECT_OK(waiting->wait());
}

TEST_F(LockCalls, OfAMountThatIsAwayGoToWhoWaitsForThemAfterAWhile) {
  EXPECT_OK(one_.call(lock(kWrite)));
  const auto waiting = two_.start(lock(kWrite, true));
  one_.disconnect();
  server_.housekeep_after(kLockKeepDefault - 1s);
  EXPECT_FALSE(waiting->answered());
  server_.housekeep_after(kLockKeepDefault + 1s);
  EXPECT_OK(waiting->wait());
}

TEST_F(LockCalls, AreGoneWhenTheFileIsClosed) {
  const std::uint64_t open_id = EXPECT_OK(one_.open(file_, O_RDWR)).reply.open().open_id();
  EXPECT_OK(one_.call(lock(kWrite, false, open_id, true)));
  EXPECT_OK(one_.call(lock(kWrite, false, open_id)));
  EXPECT_ERROR(two_.call(lock(kRead, false, 0, true)), err(EAGAIN));
  EXPECT_OK(one_.close(open_id));
  EXPECT_OK(two_.call(lock(kWrite, false, 0, true)));
  EXPECT_OK(two_.call(lock(kWrite)));
}

TEST_F(LockCalls, ForWritingNeedAFileThatIsOpenForWriting) {
  const std::uint64_t reading = EXPECT_OK(one_.open(file_)).reply.open().open_id();
  EXPECT_ERROR(one_.call(lock(kWrite, false, reading)), err(EBADF));
  EXPECT_OK(one_.call(lock(kWrite, false, reading, true)));  // flock(2) asks for no right
  Mount reader(server_, {.session = std::string(kSessionIdBytes, 'r'), .read_only = true});
  EXPECT_ERROR(reader.call(lock(kWrite)), err(EBADF));
  EXPECT_OK(reader.call(lock(kRead)));
  EXPECT_OK(reader.call(lock(kUnlock)));
  const std::uint64_t writing = EXPECT_OK(one_.open(file_, O_WRONLY)).reply.open().open_id();
  EXPECT_OK(one_.call(lock(kWrite, false, writing)));
}

TEST_F(LockCalls, OfAMountThatIsAwayForLongGoToWhoWantsThem) {
  EXPECT_OK(one_.call(lock(kWrite)));
  one_.disconnect();
  server_.housekeep_after(kLockKeepDefault - 1s);
  EXPECT_ERROR(two_.call(lock(kRead)), err(EAGAIN));
  server_.housekeep_after(kLockKeepDefault + 1s);
  EXPECT_OK(two_.call(lock(kRead)));

  Mount late(server_, {.locks = {lock(kWrite).lock()}});  // the session of one_
  EXPECT_TRUE(late.attached().resumed());
  EXPECT_EQ(late.attached().locks_kept_size(), 0);
}

TEST_F(LockCalls, OfAMountThatIsAwayStayWhileNobodyWantsThem) {
  EXPECT_OK(one_.call(lock(kWrite)));
  one_.disconnect();
  server_.housekeep_after(kLockKeepDefault + 1s);
  Mount back(server_, {.locks = {lock(kWrite).lock()}});
  EXPECT_EQ(back.attached().locks_kept_size(), 1);
  EXPECT_ERROR(two_.call(lock(kRead)), err(EAGAIN));
}

// The transport notices only after its idle timeout that nobody is there any more.
TEST_F(LockCalls, OfAMountThatIsAwayAreKeptForAsLongSinceItWasLastHeard) {
  const auto heard = std::make_shared<std::atomic<TimePoint>>(io::now());
  Mount killed(server_, {.session = std::string(kSessionIdBytes, 'k'), .heard = heard});
  EXPECT_OK(killed.call(lock(kWrite)));
  const auto waiting = two_.start(lock(kWrite, true));
  heard->store(io::now() - (kLockKeepDefault - 2s));
  killed.disconnect();
  server_.housekeep_after(0s);
  EXPECT_FALSE(waiting->answered());
  server_.housekeep_after(3s);
  EXPECT_OK(waiting->wait());
}

// Two servers, one after the other, with what the first one has written down.
class LocksAcrossARestart : public LockCalls {
 protected:
  LocksAcrossARestart() {
    setup_.lockers_dir = dir_ / "lockers";
    Server first(dir_.path(), setup_);
    Mount holder(first, {.session = std::string(kSessionIdBytes, 'h')});
    file_ = holder.handle("file");
    EXPECT_OK(holder.call(lock(kWrite)));
  }
  MountSetup holder(std::vector<schema::LockRequest> locks) {
    return {.session = std::string(kSessionIdBytes, 'h'), .locks = std::move(locks)};
  }

  ServerSetup setup_;
};

TEST_F(LocksAcrossARestart, AreGivenAgainBeforeAnybodyElseGetsAny) {
  Server second(dir_.path(), setup_);
  Mount other(second, {.session = std::string(kSessionIdBytes, 'o')});
  const auto now = other.start(lock(kWrite));
  const auto given_up = other.start(lock(kRead, true));
  EXPECT_TRUE(second.service().drain(5s));
  EXPECT_FALSE(now->answered());
  given_up->cancel();
  EXPECT_ERROR(given_up->wait(), err(EINTR));
}

TEST_F(LocksAcrossARestart, AreTheirsWhoComeBack) {
  Server second(dir_.path(), setup_);
  Mount other(second, {.session = std::string(kSessionIdBytes, 'o')});
  const auto now = other.start(lock(kWrite));
  schema::LockRequest missing = lock(kWrite).lock();
  missing.set_handle("no such file");
  Mount back(second, holder({missing, lock(kWrite).lock()}));
  EXPECT_FALSE(back.attached().resumed());
  ASSERT_EQ(back.attached().locks_kept_size(), 1);
  EXPECT_EQ(back.attached().locks_kept(0), 1u);
  EXPECT_ERROR(now->wait(), err(EAGAIN));

  // It was taken through an open file that this server knows nothing of: closing another one leaves it.
  const std::uint64_t open_id = EXPECT_OK(back.open(file_)).reply.open().open_id();
  EXPECT_OK(back.close(open_id));
  EXPECT_ERROR(other.call(lock(kWrite)), err(EAGAIN));
  EXPECT_OK(back.call(lock(kUnlock)));
  EXPECT_OK(other.call(lock(kWrite)));
}

TEST_F(LocksAcrossARestart, AreWaitedForSoLongAndOnce) {
  {
    Server second(dir_.path(), setup_);
    Mount other(second, {.session = std::string(kSessionIdBytes, 'o')});
    const auto waiting = other.start(lock(kWrite, true));
    second.housekeep_after(kLockGraceDefault - 1s);
    EXPECT_FALSE(waiting->answered());
    second.housekeep_after(kLockGraceDefault + 1s);
    EXPECT_OK(waiting->wait());
    Mount late(second, holder({lock(kWrite).lock()}));
    EXPECT_EQ(late.attached().locks_kept_size(), 0);
    other.disconnect(true);
    EXPECT_TRUE(second.service().drain(5s));
  }
  EXPECT_TRUE(std::filesystem::is_empty(setup_.lockers_dir));
  Server third(dir_.path(), setup_);
  Mount other(third, {.session = std::string(kSessionIdBytes, 'o')});
  EXPECT_OK(other.call(lock(kWrite)));
}

TEST_F(LocksAcrossARestart, ThatAProgramTakesAfterItsLeaseAreToldToBeLost) {
  const auto handler = ::signal(SIGIO, SIG_IGN);
  const Fd program(::open((dir_ / "file").c_str(), O_RDONLY | O_CLOEXEC));
  if (::fcntl(program.number(), F_SETLEASE, F_RDLCK) != 0) GTEST_SKIP() << "there are no leases here";
  Pushes clients;
  Server second(dir_.path(), setup_);
  second.service().reach_clients_by(&clients);
  Mount back(second, holder({lock(kWrite).lock()}));
  ASSERT_EQ(back.attached().locks_kept_size(), 1);
  second.housekeep_after(1s);
  EXPECT_TRUE(clients.cut.empty());
  ASSERT_EQ(::fcntl(program.number(), F_SETLEASE, F_UNLCK), 0);
  LocalProgram quicker(dir_ / "file");
  ASSERT_TRUE(quicker.lock(F_WRLCK));
  second.housekeep_after(1s);
  EXPECT_EQ(clients.cut, (std::vector{back.connection()}));
  back.reconnect();
  back.attach();
  EXPECT_TRUE(back.attached().resumed());
  EXPECT_EQ(back.attached().locks_kept_size(), 0);
  second.service().reach_clients_by(nullptr);
  ::signal(SIGIO, handler);
}

TEST_F(LocksAcrossARestart, OfOneWhoNeverHadAnyAreNotGiven) {
  Server second(dir_.path(), setup_);
  Mount liar(second, {.session = std::string(kSessionIdBytes, 'l'), .locks = {lock(kWrite).lock()}});
  EXPECT_EQ(liar.attached().locks_kept_size(), 0);
  Mount back(second, holder({lock(kWrite).lock()}));
  EXPECT_EQ(back.attached().locks_kept_size(), 1);
}

TEST_F(LockCalls, TestAndBadOnes) {
  EXPECT_OK(one_.call(lock(kWrite)));
  schema::Request test = lock(kRead);
  test.mutable_lock()->set_test(true);
  EXPECT_EQ(EXPECT_OK(two_.call(test)).reply.lock().type(), static_cast<std::uint32_t>(kWrite));
  EXPECT_EQ(EXPECT_OK(one_.call(test)).reply.lock().type(), static_cast<std::uint32_t>(kUnlock));
  schema::Request bad = lock(kRead);
  bad.mutable_lock()->set_type(9);
  EXPECT_ERROR(one_.call(bad), err(EINVAL));
  bad = lock(kRead);
  bad.mutable_lock()->set_start(10);
  bad.mutable_lock()->set_end(9);
  EXPECT_ERROR(one_.call(bad), err(EINVAL));
  bad = lock(kRead);
  bad.mutable_lock()->set_handle(one_.root());
  EXPECT_ERROR(one_.call(bad), err(EISDIR));
}

}  // namespace
}  // namespace tusk::server
