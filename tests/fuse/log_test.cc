// What a mount answers by itself in directories that are its own, and how it gets to the server.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>

#include "fsclient/write_behind.h"
#include "tests/fuse/mounted/mounted_export.h"

namespace tusk::test {
namespace {

using schema::Request;

std::string content_of(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "errno " + std::to_string(errno);
  std::string bytes(200'000, '\0');
  const ssize_t size = ::read(fd, bytes.data(), bytes.size());
  ::close(fd);
  bytes.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
  return bytes;
}

void flush(MountedExport& mounted) {
  std::promise<void> flushed;
  mounted.filesystem().flush_all([&](const Result<void>&) { flushed.set_value(); });
  flushed.get_future().get();
}

// What stat tells and programs remember.
std::map<std::string, std::int64_t> facts(const std::string& path) {
  const struct stat st = status(path);
  return {{"ino", static_cast<std::int64_t>(st.st_ino)},
          {"mode", st.st_mode},
          {"size", S_ISREG(st.st_mode) ? st.st_size : 0},
          {"mtime", st.st_mtim.tv_sec * 1'000'000'000 + st.st_mtim.tv_nsec},
          {"ctime", st.st_ctim.tv_sec * 1'000'000'000 + st.st_ctim.tv_nsec}};
}

class Logged : public MountedTest {
 protected:
  ExportSetup setup() override {
    return {.lifetime = std::chrono::hours(1), .leases = true, .lease_all = true};
  }
  void SetUp() override {
    MountedTest::SetUp();
    // The first change asks, and gets the new directory as this mount's own.
    if (!mounted_) return;
    ASSERT_EQ(::mkdir(in_mount("d").c_str(), 0755), 0);
  }
  // Until it is gone nothing reaches the server.
  struct OutOfReach {
    explicit OutOfReach(LoopbackCaller& of) : caller(of) { caller.hold_back(); }
    ~OutOfReach() { caller.go_on(); }
    LoopbackCaller& caller;
  };
};

TEST_F(Logged, ChangesInADirectoryOfOnesOwnNeedNoServer) {
  {
    const OutOfReach out(mounted_->caller());
    write_file(in_mount("d/a"), "hello");
    EXPECT_EQ(content_of(in_mount("d/a")), "hello");
    EXPECT_EQ(::chmod(in_mount("d/a").c_str(), 0640), 0);
    const timespec times[2] = {{1'000'000'000, 1}, {1'100'000'000, 123'456'789}};
    EXPECT_EQ(::utimensat(AT_FDCWD, in_mount("d/a").c_str(), times, 0), 0);
    EXPECT_EQ(::mkdir(in_mount("d/e").c_str(), 0700), 0);
    write_file(in_mount("d/e/b"), "inside");
    EXPECT_EQ(::symlink("../a", in_mount("d/e/l").c_str()), 0);
    EXPECT_EQ(content_of(in_mount("d/e/l")), "hello");
    write_file(in_mount("d/x"), "to be renamed");
    EXPECT_EQ(::rename(in_mount("d/x").c_str(), in_mount("d/e/y").c_str()), 0);
    write_file(in_mount("d/z"), "to be removed");
    EXPECT_EQ(::unlink(in_mount("d/z").c_str()), 0);
    EXPECT_EQ(::mkdir(in_mount("d/g").c_str(), 0700), 0);
    EXPECT_EQ(::rmdir(in_mount("d/g").c_str()), 0);
    EXPECT_EQ(::rmdir(in_mount("d/e").c_str()), -1);
    EXPECT_FALSE(std::filesystem::exists(on_server("d/a")));
    EXPECT_GT(mounted_->filesystem().pending_bytes(), 0u);
  }
  flush(*mounted_);
  // The kernel tells of the end of an open when the program that closed it has gone on.
  EXPECT_TRUE(eventually([&] { return mounted_->filesystem().pending_bytes() == 0; }));
  EXPECT_EQ(content_of(on_server("d/a")), "hello");
  const struct stat st = status(on_server("d/a"));
  EXPECT_EQ(st.st_mode & 07777, 0640u);
  EXPECT_EQ(st.st_mtim.tv_sec, 1'100'000'000);
  EXPECT_EQ(st.st_mtim.tv_nsec, 123'456'789);
  EXPECT_EQ(content_of(on_server("d/e/b")), "inside");
  EXPECT_EQ(std::filesystem::read_symlink(on_server("d/e/l")), "../a");
  EXPECT_EQ(content_of(on_server("d/e/y")), "to be renamed");
  EXPECT_FALSE(std::filesystem::exists(on_server("d/z")));
  EXPECT_FALSE(std::filesystem::exists(on_server("d/g")));
  EXPECT_EQ(mounted_->filesystem().last_error().value().second, 0u)
      << mounted_->filesystem().last_error().value().first;
}

TEST_F(Logged, WhatProgramsWereShownStaysSo) {
  std::map<std::string, std::map<std::string, std::int64_t>> before;
  const std::vector<std::string> names = {"d/plain", "d/set", "d/link", "d/dir"};
  {
    const OutOfReach out(mounted_->caller());
    write_file(in_mount("d/plain"), "bytes");
    write_file(in_mount("d/set"), "more");
    EXPECT_EQ(::chmod(in_mount("d/set").c_str(), 0600), 0);
    EXPECT_EQ(::symlink("plain", in_mount("d/link").c_str()), 0);
    EXPECT_EQ(::mkdir(in_mount("d/dir").c_str(), 0755), 0);
    for (const std::string& name : names) before[name] = facts(in_mount(name));
  }
  flush(*mounted_);
  for (const std::string& name : names) EXPECT_EQ(facts(in_mount(name)), before[name]) << name;
  // Where the server can keep it, it does.
  EXPECT_EQ(facts(on_server("d/plain"))["mtime"], before["d/plain"]["mtime"]);
}

// tar says of a directory whose times or links change while it reads it that the directory did.
TEST_F(Logged, DirectoriesGoOnShowingTheTimesOfTheirNames) {
  const std::vector<std::string> names = {"d", "d/dir", "d/dir/inner"};
  const auto shown = [&](const std::string& name) {
    struct statx st {};
    EXPECT_EQ(::statx(AT_FDCWD, in_mount(name).c_str(), AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &st), 0);
    return std::vector<std::int64_t>{st.stx_mode,          st.stx_nlink,        st.stx_mtime.tv_sec,
                                     st.stx_mtime.tv_nsec, st.stx_ctime.tv_sec, st.stx_ctime.tv_nsec};
  };
  std::map<std::string, std::vector<std::int64_t>> before;
  {
    const OutOfReach out(mounted_->caller());
    EXPECT_EQ(::mkdir(in_mount("d/dir").c_str(), 0755), 0);
    EXPECT_EQ(::mkdir(in_mount("d/dir/inner").c_str(), 0755), 0);
    EXPECT_EQ(::mkdir(in_mount("d/dir/gone").c_str(), 0755), 0);
    EXPECT_EQ(::rmdir(in_mount("d/dir/gone").c_str()), 0);
    write_file(in_mount("d/dir/inner/file"), "bytes");
    for (const std::string& name : names) before[name] = shown(name);
  }
  flush(*mounted_);
  EXPECT_TRUE(eventually([&] { return mounted_->filesystem().pending_bytes() == 0; }));
  for (const std::string& name : names) EXPECT_EQ(shown(name), before[name]) << name << ", settled";
  // The server tells of d: nobody has changed it since.
  EXPECT_GT(std::ranges::distance(std::filesystem::directory_iterator(in_mount(""))), 0);
  EXPECT_EQ(shown("d"), before["d"]) << "told";
  // A change beside the log is shown as the server made it.
  EXPECT_EQ(::link(in_mount("d/dir/inner/file").c_str(), in_mount("d/dir/other").c_str()), 0);
  const struct stat after = status(on_server("d/dir"));
  EXPECT_EQ(shown("d/dir")[2], after.st_mtim.tv_sec);
  EXPECT_EQ(shown("d/dir")[3], after.st_mtim.tv_nsec);
}

// As editors and git do for each file: they write it under another name, move it, and look at it.
TEST_F(Logged, WhatWasMovedIsKnownWhenTheServerHasIt) {
  write_file(in_mount("d/new~"), "bytes");
  EXPECT_EQ(::rename(in_mount("d/new~").c_str(), in_mount("d/new").c_str()), 0);
  const auto before = facts(in_mount("d/new"));
  flush(*mounted_);
  EXPECT_TRUE(eventually([&] { return mounted_->filesystem().pending_bytes() == 0; }));
  const OutOfReach out(mounted_->caller());
  EXPECT_EQ(facts(in_mount("d/new")), before);
  EXPECT_EQ(content_of(in_mount("d/new")), "bytes");
}

// cp -p and its like set the ACL of each file, which says what its mode says, and drop the default ACL of
// each directory.
TEST_F(Logged, AnAclThatSaysNoMoreThanTheModeIsAMode) {
  const char acl[] = "\2\0\0\0\1\0\6\0\xff\xff\xff\xff\4\0\4\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff";
  write_file(on_server("probe"), "");
  if (::setxattr(on_server("probe").c_str(), "system.posix_acl_access", acl, sizeof acl - 1, 0) != 0)
    GTEST_SKIP() << "skipped, because there are no ACLs here";
  {
    const OutOfReach out(mounted_->caller());
    write_file(in_mount("d/a"), "hello");
    ASSERT_EQ(::setxattr(in_mount("d/a").c_str(), "system.posix_acl_access", acl, sizeof acl - 1, 0), 0);
    EXPECT_EQ(status(in_mount("d/a")).st_mode & 07777, 0640u);
    EXPECT_EQ(::removexattr(in_mount("d").c_str(), "system.posix_acl_default"), 0);
  }
  flush(*mounted_);
  EXPECT_EQ(status(on_server("d/a")).st_mode & 07777, 0640u);
  EXPECT_EQ(status(in_mount("d/a")).st_mode & 07777, 0640u);
}

TEST_F(Logged, AWriteIsLaterThanTheTimesThatWereSetBefore) {
  write_file(in_mount("d/a"), "bytes");
  const timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, in_mount("d/a").c_str(), times, 0), 0);
  flush(*mounted_);
  const Fd fd(in_mount("d/a"), O_WRONLY);
  {
    const OutOfReach out(mounted_->caller());
    EXPECT_EQ(::write(fd.get(), "other", 5), 5);
    EXPECT_EQ(::chmod(in_mount("d/a").c_str(), 0600), 0);
    EXPECT_GT(status(in_mount("d/a")).st_mtim.tv_sec, 1'000'000'000);
  }
  flush(*mounted_);
  EXPECT_GT(status(in_mount("d/a")).st_mtim.tv_sec, 1'000'000'000);
}

// The answer to its making tells of a link.
TEST_F(Logged, AFileThatWasReplacedWhileItWasBeingMadeHasNoLink) {
  write_file(in_mount("d/b"), "bytes");
  std::optional<Fd> fd;
  {
    const OutOfReach out(mounted_->caller());
    fd.emplace(in_mount("d/a"), O_CREAT | O_RDWR, 0644);
    EXPECT_EQ(::rename(in_mount("d/b").c_str(), in_mount("d/a").c_str()), 0);
  }
  flush(*mounted_);
  struct stat st {};
  ASSERT_EQ(::fstat(fd->get(), &st), 0);
  EXPECT_EQ(st.st_nlink, 0u);
  EXPECT_EQ(status(in_mount("d/a")).st_nlink, 1u);
}

// A program on the server was faster.
TEST_F(Logged, WhatOthersHaveMadeMeanwhileStaysAndItsWritersAreTold) {
  std::optional<Fd> fd;
  {
    const OutOfReach out(mounted_->caller());
    fd.emplace(in_mount("d/a"), O_CREAT | O_TRUNC | O_RDWR, 0644);
    EXPECT_EQ(::write(fd->get(), "ours", 4), 4);
    write_file(on_server("d/a"), "theirs");
  }
  flush(*mounted_);
  EXPECT_EQ(content_of(on_server("d/a")), "theirs");
  char byte = 0;
  EXPECT_EQ(::pread(fd->get(), &byte, 1, 100'000), -1);
  EXPECT_EQ(::pwrite(fd->get(), "more", 4, 0), -1);
  EXPECT_EQ(::pwrite(fd->get(), "more", 4, 0), -1) << "and again";
  EXPECT_NE(::fsync(fd->get()), 0);
  fd.reset();
  EXPECT_GT(mounted_->filesystem().last_error().value().second, 0u);
  EXPECT_TRUE(eventually([&] { return content_of(in_mount("d/a")) == "theirs"; }));
}

TEST_F(Logged, AFileThatWasMovedAwayIsNotChangedBehindOthers) {
  ExportSetup there = setup();
  there.loopback.seed = 5;
  MountedExport other(*mounted_, there);
  for (const bool link : {false, true}) {
    const std::string name = link ? "linked" : "moved";
    ASSERT_EQ(::mkdir(in_mount(name).c_str(), 0755), 0);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(other / name), {}), 0);
    write_file(in_mount("d/f"), "one");
    const std::string to = in_mount(name + "/f");
    ASSERT_EQ(
        link ? ::link(in_mount("d/f").c_str(), to.c_str()) : ::rename(in_mount("d/f").c_str(), to.c_str()), 0)
        << name << ": " << std::strerror(errno);
    const std::string seen = (other / (name + "/f")).string();
    for (int round = 0; round < 20; ++round) {
      const std::string content = "round " + std::to_string(round);
      {
        const Fd fd(to, O_WRONLY);
        EXPECT_EQ(::pwrite(fd.get(), content.data(), content.size(), 0),
                  static_cast<ssize_t>(content.size()));
      }
      EXPECT_EQ(content_of(seen), content);
      EXPECT_EQ(::chmod(to.c_str(), 0600 + static_cast<mode_t>(round)), 0);
      EXPECT_EQ(status(seen).st_mode & 0777, 0600u + static_cast<mode_t>(round));
    }
  }
}

TEST_F(Logged, WhatIsWrittenUnderALockIsThereBeforeTheLockIsGivenBack) {
  const Fd fd(in_mount("d/a"), O_CREAT | O_RDWR, 0644);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  ASSERT_EQ(::fcntl(fd.get(), F_SETLK, &lock), 0);
  EXPECT_EQ(::write(fd.get(), "locked", 6), 6);
  // This close gives up the locks of the whole program.
  EXPECT_EQ(::close(::dup(fd.get())), 0);
  EXPECT_EQ(content_of(on_server("d/a")), "locked");
}

// SQLite makes a journal, sets its mode, writes to it, syncs it and looks how long it is.
TEST_F(Logged, AnAnswerToWhatWasDoneBeforeAWriteDoesNotUndoIt) {
  LoopbackCaller& caller = mounted_->caller();
  caller.keep_answers(Request::kLog);
  const Fd fd(in_mount("d/journal"), O_CREAT | O_RDWR, 0644);
  ASSERT_TRUE(eventually([&] { return caller.answers_kept() == 1; }));
  ASSERT_EQ(::fchmod(fd.get(), 0600), 0);
  ASSERT_TRUE(eventually([&] { return caller.answers_kept() == 2; }));
  ASSERT_EQ(::write(fd.get(), "thirty bytes that stay thirty.", 30), 30);
  // Known by its handle now, it is written to beside the log; the change of its mode is told afterwards.
  caller.let_answer_through();
  ASSERT_TRUE(eventually([&] { return content_of(on_server("d/journal")).size() == 30; }));
  ASSERT_TRUE(eventually([&] { return mounted_->filesystem().counters().sent == 30; }));
  caller.keep_answers(Request::OPERATION_NOT_SET);
  ASSERT_EQ(::fsync(fd.get()), 0);
  struct statx st {};
  ASSERT_EQ(::statx(fd.get(), "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &st), 0);
  EXPECT_EQ(st.stx_size, 30u);
  EXPECT_EQ(st.stx_mode & 07777, 0600);
  ASSERT_EQ(::pwrite(fd.get(), "30", 2, 0), 2);
  EXPECT_EQ(status(in_mount("d/journal")).st_size, 30);
}

TEST_F(Logged, FsyncMeansTheServer) {
  const Fd fd(in_mount("d/a"), O_CREAT | O_WRONLY, 0644);
  EXPECT_EQ(::write(fd.get(), "safe", 4), 4);
  EXPECT_EQ(::fsync(fd.get()), 0);
  EXPECT_EQ(read_file(on_server("d/a")), "safe");
  EXPECT_EQ(mounted_->caller().calls(Request::kWrite), 0u) << "a round trip behind the log";
}

// D2
// D7: also attributes of a file in it, whose name the server has known before.
TEST_F(Logged, FsyncOfADirectoryWaitsForAttributesOfItsFiles) {
  write_file(in_mount("d/a"), "");
  flush(*mounted_);
  mounted_->caller().keep_answers(Request::kLog);
  const Fd directory(in_mount("d"), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::chmod(in_mount("d/a").c_str(), 0600), 0);
  auto synced = std::async(std::launch::async, [&] { return ::fsync(directory.get()); });
  ASSERT_TRUE(eventually([&] { return mounted_->caller().answers_kept() == 1; }));
  EXPECT_EQ(synced.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  mounted_->caller().keep_answers(Request::OPERATION_NOT_SET);
  EXPECT_EQ(synced.get(), 0);
}

TEST_F(Logged, PhotographsNeedNoServerEither) {
  const auto name = [](int i) { return "d/photo" + std::to_string(i); };
  const auto content = [](int i) {
    return std::string(100'000 + static_cast<std::size_t>(i) * 20'000, static_cast<char>('a' + i));
  };
  {
    const OutOfReach out(mounted_->caller());
    for (int i = 0; i < 10; ++i) {
      write_file(in_mount(name(i)), content(i));
      const timespec times[2] = {{1'000'000'000, 1}, {1'100'000'000, i}};
      EXPECT_EQ(::utimensat(AT_FDCWD, in_mount(name(i)).c_str(), times, 0), 0);
      EXPECT_TRUE(read_file(in_mount(name(i))) == content(i));
    }
    EXPECT_EQ(::rename(in_mount(name(3)).c_str(), in_mount("d/moved").c_str()), 0);
    EXPECT_FALSE(std::filesystem::exists(on_server(name(0))));
  }
  flush(*mounted_);
  for (int i = 0; i < 10; ++i) {
    const std::string there = on_server(i == 3 ? "d/moved" : name(i));
    EXPECT_TRUE(read_file(there) == content(i));
    EXPECT_EQ(status(there).st_mtim.tv_nsec, i);
  }
}

// Its first blocks go behind its making, not a round trip later (D1).
class LargeNew : public Logged {
 protected:
  static constexpr ByteCount kAhead = client::WriteBehind::kAheadMin;  // nothing is known of the line

  // The file at the end of an answer-less time, written in pieces that are not blocks.
  std::unique_ptr<Fd> write_out_of_reach(
      const std::string& content, const std::function<void()>& then = [] {}) {
    const OutOfReach out(mounted_->caller());
    auto fd = std::make_unique<Fd>(in_mount("d/large"), O_CREAT | O_RDWR, 0644);
    for (std::size_t at = 0; at < content.size(); at += client::kBlockSize / 2) {
      const auto piece = std::string_view(content).substr(at, client::kBlockSize / 2);
      EXPECT_EQ(::write(fd->get(), piece.data(), piece.size()), static_cast<ssize_t>(piece.size()));
    }
    then();
    return fd;
  }
};

TEST_F(LargeNew, ItsBeginningNeedsNoAnswerToItsMaking) {
  // Its making takes of what goes ahead, too.
  const std::string content = noise(kAhead - client::kBlockSize);
  const auto fd = write_out_of_reach(content);
  EXPECT_EQ(::fsync(fd->get()), 0);
  EXPECT_TRUE(read_file(on_server("d/large")) == content);
  EXPECT_EQ(mounted_->caller().calls(Request::kWrite), 0u);
}

// D2, and nothing of it is asked for to be read again.
TEST_F(LargeNew, ItIsThereWhenItsCloseReturnsThoughItWentTwoWays) {
  const std::string content = noise(client::WriteBehind::kLoggedMin + 1000);
  auto fd = write_out_of_reach(content);
  fd.reset();
  EXPECT_TRUE(read_file(on_server("d/large")) == content);
  const auto written = mounted_->caller().calls(Request::kWrite);
  EXPECT_GT(written, 0u);
  // One block less went ahead, because of its making; and the end of the file is no full block.
  EXPECT_LE(written, (content.size() - kAhead) / client::kBlockSize + 2);
  EXPECT_TRUE(read_file(in_mount("d/large")) == content);
  EXPECT_EQ(mounted_->caller().calls(Request::kRead), 0u);
}

TEST_F(LargeNew, WhatOthersHaveMadeMeanwhileStaysAndItsWriterIsTold) {
  auto fd = write_out_of_reach(noise(kAhead + 2 * client::kBlockSize),
                               [this] { write_file(on_server("d/large"), "theirs"); });
  EXPECT_EQ(::fsync(fd->get()), -1);
  fd.reset();
  EXPECT_EQ(content_of(on_server("d/large")), "theirs");
  EXPECT_TRUE(eventually([&] { return content_of(in_mount("d/large")) == "theirs"; }));
  EXPECT_TRUE(eventually([&] { return mounted_->filesystem().pending_bytes() == 0; }));
}

TEST_F(LargeNew, ItsWriterIsToldOnceThatItsBeginningCouldNotBeWritten) {
  mounted_->caller().inject([](const Request& request) {
    const bool writes =
        std::ranges::any_of(request.log().entries(), [](const Request& entry) { return entry.has_write(); });
    return writes ? std::optional(Error{from_errno(EDQUOT), "injected"}) : std::nullopt;
  });
  const auto fd = write_out_of_reach(noise(kAhead - client::kBlockSize));
  EXPECT_EQ(::fsync(fd->get()), -1);
  EXPECT_EQ(errno, EDQUOT);
  EXPECT_EQ(::fsync(fd->get()), 0);
  EXPECT_EQ(status(in_mount("d/large")).st_size, 0);
}

class Alone : public Logged {
 protected:
  void SetUp() override { MountedTest::SetUp(); }
};

TEST_F(Alone, AMountThatIsAloneMakesItsFirstFileWithoutAsking) {
  std::promise<void> answered;
  mounted_->filesystem().acquire_root([&] { answered.set_value(); });
  answered.get_future().get();
  struct stat st {};
  EXPECT_EQ(::stat(in_mount("first").c_str(), &st), -1);  // as cp does: the root is not listed yet here
  write_file(in_mount("first"), "bytes");
  flush(*mounted_);
  EXPECT_EQ(mounted_->caller().calls(Request::kCreate), 0u);
  EXPECT_EQ(read_file(on_server("first")), "bytes");
}

// D7: an editor saves, and nobody waited for what could not be written.
TEST_F(Logged, AFileThatLostItsBytesDoesNotReplaceAGoodOne) {
  write_file(in_mount("d/good"), "good");
  flush(*mounted_);
  const auto writes = [](const Request& request) {
    return std::ranges::any_of(request.log().entries(), [](const Request& r) { return r.has_write(); });
  };
  {
    const Fd fd(in_mount("d/new"), O_CREAT | O_WRONLY, 0644);
    EXPECT_TRUE(eventually([&] { return std::filesystem::exists(on_server("d/new")); }));
    mounted_->caller().inject([writes](const Request& request) {
      return writes(request) ? std::optional(Error{from_errno(EDQUOT), "injected"}) : std::nullopt;
    });
    const std::string much(100'000, 'n');
    ASSERT_EQ(::write(fd.get(), much.data(), much.size()), 100'000);
  }
  EXPECT_TRUE(eventually([&] { return mounted_->filesystem().last_error().value().second > 0; }));
  mounted_->caller().inject(nullptr);
  EXPECT_EQ(::rename(in_mount("d/new").c_str(), in_mount("d/good").c_str()), -1);
  EXPECT_EQ(errno, EDQUOT);
  EXPECT_EQ(content_of(in_mount("d/good")), "good");
  // Who goes on writing is told: no close answers early now.
  write_file(in_mount("d/next"), std::string(100'000, 'x'));
  EXPECT_TRUE(read_file(on_server("d/next")) == std::string(100'000, 'x'));
}

// D2
TEST_F(Logged, AFileThatIsNoLittleOneIsThereWhenItsCloseReturns) {
  const std::string content(client::WriteBehind::kLoggedMax + 1, 'b');
  write_file(in_mount("d/big"), content);
  EXPECT_TRUE(read_file(on_server("d/big")) == content);
}

TEST_F(Logged, AWriterOfAReadOnlyFileGoesOn) {
  const Fd fd(in_mount("d/a"), O_CREAT | O_WRONLY, 0444);
  EXPECT_EQ(::write(fd.get(), "one", 3), 3);
  EXPECT_EQ(::fsync(fd.get()), 0);
  EXPECT_EQ(::write(fd.get(), " two", 4), 4);
  EXPECT_EQ(::fsync(fd.get()), 0);
  EXPECT_EQ(content_of(on_server("d/a")), "one two");
}

TEST_F(Logged, AnotherMountSeesAllOfItAtOnce) {
  ExportSetup there = setup();
  there.loopback.seed = 7;
  MountedExport other(*mounted_, there);
  for (int round = 0; round < 5; ++round) {
    const std::string folder = "d/r" + std::to_string(round);
    ASSERT_EQ(::mkdir(in_mount(folder).c_str(), 0755), 0);
    for (int i = 0; i < 40; ++i) write_file(in_mount(folder + "/f" + std::to_string(i)), std::to_string(i));
    for (const int i : {39, 0, 20})
      EXPECT_EQ(content_of((other / (folder + "/f" + std::to_string(i))).string()), std::to_string(i));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(other / folder), {}), 40);
    // And the other way round.
    write_file((other / (folder + "/f5")).string(), "changed");
    EXPECT_EQ(content_of(in_mount(folder + "/f5")), "changed");
  }
}

TEST_F(Logged, WhatCouldNotBeDoneIsToldAndShownNoLonger) {
  {
    const OutOfReach out(mounted_->caller());
    write_file(in_mount("d/a"), "lost");
    // A program on the server, of which this mount hears nothing.
    std::filesystem::remove(on_server("d"));
  }
  flush(*mounted_);
  EXPECT_THAT(mounted_->filesystem().last_error().value().first, testing::HasSubstr("'a'"));
  EXPECT_TRUE(eventually([&] { return ::access(in_mount("d/a").c_str(), F_OK) != 0; }));
}

class FewDescriptors : public Logged {
 protected:
  ExportSetup setup() override {
    ExportSetup setup = Logged::setup();
    setup.descriptors_max = 256;
    return setup;
  }
};

// The mount answers some opens before the server can refuse them. Their closes say so.
TEST_F(FewDescriptors, AProgramThatOpensTooManyFilesIsToldByOpen) {
  constexpr int kFar = 1000;
  constexpr int kToldByClose = 128;
  std::vector<int> opened;
  while (opened.size() < kFar) {
    const std::string name = in_mount("d/" + std::to_string(opened.size()));
    const int fd = ::open(name.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0) break;
    opened.push_back(fd);
  }
  EXPECT_EQ(errno, EMFILE);
  EXPECT_LT(opened.size(), kFar);
  int told = 0;
  for (const int fd : opened) told += ::close(fd) != 0 ? 1 : 0;
  EXPECT_LE(told, kToldByClose);
  EXPECT_LT(static_cast<std::size_t>(told), opened.size());
}

// D7
TEST_F(Logged, WhoSyncsADirectoryIsToldOnceWhatCouldNotBeDoneInIt) {
  write_file(in_mount("d/a"), "stays");
  flush(*mounted_);
  const Fd before(in_mount("d"), O_RDONLY | O_DIRECTORY);
  mounted_->caller().inject([](const Request& request) {
    return request.has_log() ? std::optional(Error{from_errno(EIO), "injected"}) : std::nullopt;
  });
  ASSERT_EQ(::rename(in_mount("d/a").c_str(), in_mount("d/b").c_str()), 0);
  flush(*mounted_);
  mounted_->caller().inject(nullptr);
  EXPECT_EQ(mounted_->filesystem().untold_failures().count, 1u);
  EXPECT_THAT(mounted_->filesystem().untold_failures().last, testing::HasSubstr("'b'"));
  const Fd after(in_mount("d"), O_RDONLY | O_DIRECTORY);
  for (const Fd* fd : {&after, &before}) {
    EXPECT_EQ(::fsync(fd->get()), -1);
    EXPECT_EQ(errno, EIO);
    EXPECT_EQ(::fsync(fd->get()), 0) << "it has been told";
  }
  EXPECT_EQ(mounted_->filesystem().untold_failures().count, 0u);
  const Fd later(in_mount("d"), O_RDONLY | O_DIRECTORY);
  EXPECT_EQ(::fsync(later.get()), 0) << "somebody was told";
}

TEST_F(Logged, WhatAWriterWasToldOfAFileThatCouldNotBeMadeNobodyElseIsTold) {
  mounted_->caller().inject([](const Request& request) {
    return request.has_log() ? std::optional(Error{from_errno(EIO), "injected"}) : std::nullopt;
  });
  {
    const Fd told(in_mount("d/told"), O_CREAT | O_WRONLY, 0644);
    const bool by_write = ::write(told.get(), "lost", 4) < 0;  // where the answer to the LOG was sooner
    EXPECT_TRUE(::fsync(told.get()) < 0 || by_write);
  }
  mounted_->caller().inject(nullptr);
  EXPECT_EQ(mounted_->filesystem().untold_failures().count, 0u);
  const Fd later(in_mount("d"), O_RDONLY | O_DIRECTORY);
  EXPECT_EQ(::fsync(later.get()), 0);
}

TEST_F(Logged, AFileThatCouldNotBeMadeIsOneFailureOfItsDirectoryToo) {
  mounted_->caller().inject([](const Request& request) {
    return request.has_log() ? std::optional(Error{from_errno(EIO), "injected"}) : std::nullopt;
  });
  {
    const OutOfReach out(mounted_->caller());  // or who wrote it might be told by close()
    write_file(in_mount("d/untold"), "lost");
  }
  flush(*mounted_);
  mounted_->caller().inject(nullptr);
  EXPECT_TRUE(eventually([&] { return mounted_->filesystem().untold_failures().count == 1; }));
  const Fd later(in_mount("d"), O_RDONLY | O_DIRECTORY);
  EXPECT_EQ(::fsync(later.get()), -1);
  EXPECT_EQ(mounted_->filesystem().untold_failures().count, 0u) << "of the file neither";
}

TEST_F(Logged, ToRemoveWhatIsGoneIsNoFailure) {
  write_file(in_mount("d/a"), "x");
  flush(*mounted_);
  {
    const OutOfReach out(mounted_->caller());
    ASSERT_EQ(::unlink(in_mount("d/a").c_str()), 0);
    std::filesystem::remove(on_server("d/a"));
  }
  flush(*mounted_);
  EXPECT_EQ(mounted_->filesystem().untold_failures().count, 0u);
  EXPECT_EQ(mounted_->filesystem().last_error().value().first, "");
}

// That the server does not know a file does not say that its name is free.
TEST_F(Logged, ToRemoveAFileThatWasNeverMadeIsAFailureWhileAnotherHasItsName) {
  std::optional<Fd> fd;
  {
    const OutOfReach out(mounted_->caller());
    fd.emplace(in_mount("d/a"), O_CREAT | O_WRONLY, 0644);
    ASSERT_EQ(::unlink(in_mount("d/a").c_str()), 0);
    write_file(on_server("d/a"), "theirs");
  }
  flush(*mounted_);
  EXPECT_NE(::fsync(fd->get()), 0) << "of the making";
  EXPECT_TRUE(eventually([&] { return mounted_->filesystem().untold_failures().count == 1; }))
      << "of the removal";
  EXPECT_EQ(content_of(on_server("d/a")), "theirs");
  EXPECT_TRUE(eventually([&] { return content_of(in_mount("d/a")) == "theirs"; }));
}

TEST_F(Logged, WhoHasItOpenIsToldOnce) {
  const Fd fd(in_mount("d/a"), O_CREAT | O_WRONLY, 0644);
  ASSERT_EQ(::fsync(fd.get()), 0);
  int second = -1;
  {
    const OutOfReach out(mounted_->caller());
    second = ::open(in_mount("d/b").c_str(), O_CREAT | O_WRONLY, 0644);
    ASSERT_GE(second, 0);
    EXPECT_EQ(::write(second, "lost", 4), 4);
    std::filesystem::remove_all(on_server("d"));
  }
  EXPECT_EQ(::fsync(second), -1);
  EXPECT_EQ(::close(second), 0) << "it has been told";
}

TEST_F(Logged, ATreeIsRemovedInAFewRoundTrips) {
  for (int d = 0; d < 20; ++d) {
    const std::string folder = on_server("d/t" + std::to_string(d));
    std::filesystem::create_directory(folder);
    for (int f = 0; f < 10; ++f) write_file(folder + "/f" + std::to_string(f), "x");
  }
  // As it is to a mount that comes to it anew.
  ExportSetup there = setup();
  there.loopback.seed = 3;
  MountedExport other(*mounted_, there);
  const std::string command = "timeout 60 rm -rf '" + (other / "d").string() + "'";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_FALSE(std::filesystem::exists(other / "d"));
  flush(other);
  EXPECT_FALSE(std::filesystem::exists(on_server("d")));
  EXPECT_LE(other.caller().calls(Request::kRemove), 25u) << "of 221 removals";
}

}  // namespace
}  // namespace tusk::test
