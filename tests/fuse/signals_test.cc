// Which signals end a wait for a silent server: every operation, each kind of signal.
//
// A harmless signal ends none, one that kills ends each within kEndsWithin, and one that asks a program to
// end and is caught gives EINTR wherever the kernel lets a daemon say so.
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fuse/mounted/mounted_export.h"

namespace tusk::test {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr auto kEndsWithin = std::chrono::seconds(2);
// Longer than any grace: an operation that a harmless signal ends would have ended.
constexpr auto kHarmlessFor = std::chrono::milliseconds(1600);

// Runs in a process of its own, which opens what it needs before the server falls silent.
struct Operation {
  const char* name;
  std::function<int()> open;
  std::function<long(int)> call;
  bool page = false;  // the kernel waits for a page of its own cache, which only a kill ends
};

void on_signal(int) {}

void catch_signal(int signal, int flags) {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = flags;
  ::sigaction(signal, &action, nullptr);
}

class Signals : public MountedTest {
 protected:
  struct Child {
    const Operation* operation;
    pid_t pid;
  };

  void SetUp() override {
    MountedTest::SetUp();
    if (IsSkipped()) return;
    add_names();
    add_attributes();
    add_files();
    add_data();
  }
  void TearDown() override {
    for (const Child& child : children_) ::kill(child.pid, SIGKILL);
    if (mounted_) mounted_->caller().go_on();
    for (const Child& child : children_) ::waitpid(child.pid, nullptr, 0);
    for (const int end : ready_) ::close(end);
    for (const int end : go_) ::close(end);
  }
  // Every look at a file is one at the server.
  ExportSetup setup() override { return {.lifetime = Duration::zero()}; }

  // A file and a directory of each operation's own: the kernel lets one change of each go on at a time.
  std::string own(const char* name, std::size_t size = 0) {
    const std::string directory = std::string(name) + ".d";
    std::filesystem::create_directory(on_server(directory));
    write_file(on_server(directory + "/file"), noise(size));
    return in_mount(directory) + "/";
  }
  void add(const char* name, std::function<long()> call) {
    operations_.push_back({name, [] { return 0; }, [call = std::move(call)](int) { return call(); }});
  }
  void add_opened(const char* name, int flags, std::size_t size, std::function<long(int)> call,
                  bool page = false) {
    operations_.push_back({name,
                           [path = own(name, size) + "file", flags] { return ::open(path.c_str(), flags); },
                           std::move(call), page});
  }

  void add_names() {
    add("mkdir", [path = own("mkdir") + "new"] { return ::mkdir(path.c_str(), 0755); });
    add("mknod", [path = own("mknod") + "new"] { return ::mknod(path.c_str(), S_IFREG | 0644, 0); });
    add("symlink", [path = own("symlink") + "new"] { return ::symlink("target", path.c_str()); });
    add("unlink", [path = own("unlink") + "file"] { return ::unlink(path.c_str()); });
    std::filesystem::create_directory(on_server("rmdir.d"));
    add("rmdir", [path = (std::filesystem::create_directory(on_server("rmdir.d/sub")),
                          in_mount("rmdir.d/sub"))] { return ::rmdir(path.c_str()); });
    const std::string rename = own("rename");
    add("rename",
        [from = rename + "file", to = rename + "new"] { return ::rename(from.c_str(), to.c_str()); });
    const std::string link = own("link");
    add("link", [from = link + "file", to = link + "new"] { return ::link(from.c_str(), to.c_str()); });
    const std::string links = own("readlink");
    std::filesystem::create_symlink("target", on_server("readlink.d/link"));
    add("readlink", [path = links + "link"] {
      char target[16];
      return ::readlink(path.c_str(), target, sizeof target);
    });
    add("lookup", [path = own("lookup") + "held"] {
      struct stat st {};
      return ::stat(path.c_str(), &st) == -1 && errno == ENOENT ? 0 : -1;
    });
    const std::string listed = own("readdir");
    for (int i = 0; i < 400; ++i)  // more than comes with a lookup
      write_file(on_server("readdir.d/" + std::string(240, 'n') + std::to_string(i)), "");
    operations_.push_back({"readdir", [listed] { return ::open(listed.c_str(), O_RDONLY | O_DIRECTORY); },
                           [](int fd) {
                             char entries[4096];
                             long read = 1;  // the first one may bring "." and ".." alone
                             for (int i = 0; i < 2 && read > 0; ++i)
                               read = ::syscall(SYS_getdents64, fd, entries, sizeof entries);
                             return read;
                           }});
  }

  void add_attributes() {
    add("chmod", [path = own("chmod") + "file"] { return ::chmod(path.c_str(), 0600); });
    add("utimens",
        [path = own("utimens") + "file"] { return ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0); });
    add("truncate", [path = own("truncate", 10) + "file"] { return ::truncate(path.c_str(), 5); });
    add_opened("ftruncate", O_RDWR, 10, [](int fd) { return ::ftruncate(fd, 5); });
    add("setxattr",
        [path = own("setxattr") + "file"] { return ::setxattr(path.c_str(), "user.a", "b", 1, 0); });
    const std::string removed = own("removexattr") + "file";
    EXPECT_EQ(::setxattr(on_server("removexattr.d/file").c_str(), "user.a", "b", 1, 0), 0);
    add("getxattr", [removed] {
      char value[8];
      return ::getxattr(removed.c_str(), "user.b", value, sizeof value) == -1 && errno == ENODATA ? 0 : -1;
    });
    add("statfs", [path = own("statfs") + "file"] {
      struct statfs st {};
      return ::statfs(path.c_str(), &st);
    });
  }

  void add_files() {
    add("create",
        [path = own("create") + "new"] { return ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0644); });
    add("open", [path = own("open") + "file"] { return ::open(path.c_str(), O_RDWR); });
    add("open-truncate",
        [path = own("open-truncate", 10) + "file"] { return ::open(path.c_str(), O_WRONLY | O_TRUNC); });
    add_opened("flock", O_RDWR, 0, [](int fd) { return ::flock(fd, LOCK_EX); });
    add_opened("setlk", O_RDWR, 0, [](int fd) {
      struct flock lock {};
      lock.l_type = F_WRLCK;
      return ::fcntl(fd, F_SETLKW, &lock);
    });
    add_opened("getlk", O_RDWR, 0, [](int fd) {
      struct flock lock {};
      lock.l_type = F_WRLCK;
      return ::fcntl(fd, F_GETLK, &lock);
    });
    add_opened("fallocate", O_RDWR, 0, [](int fd) { return ::fallocate(fd, 0, 0, 4096); });
    add_opened("seek", O_RDWR, 10, [](int fd) { return ::lseek(fd, 0, SEEK_DATA); });
    add_opened("copy_file_range", O_RDWR, 10, [](int fd) {
      off_t from = 0;
      off_t to = 5;
      return ::copy_file_range(fd, &from, fd, &to, 5, 0);
    });
  }

  void add_data() {
    constexpr int kBytes = 1'000'000;
    constexpr int kFar = 900 * 1024;  // an open brings the beginning
    add_opened(
        "read", O_RDONLY, kBytes,
        [](int fd) {
          char byte = 0;
          return ::pread(fd, &byte, 1, kFar);
        },
        true);
    void* const place = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    add_opened(
        "read-direct", O_RDONLY | O_DIRECT, kBytes,
        [place](int fd) { return ::pread(fd, place, 4096, kFar); }, true);
    add_opened(
        "mapping", O_RDONLY, kBytes,
        [](int fd) {
          const auto* bytes =
              static_cast<const volatile char*>(::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd, 0));
          return static_cast<long>(bytes[kFar] & 1);
        },
        true);
    add_opened("write-sync", O_WRONLY | O_SYNC, 0, [](int fd) { return ::write(fd, "a", 1); });
    add_opened("append", O_WRONLY | O_APPEND, 0, [](int fd) { return ::write(fd, "a", 1); });
    add_opened("fsync", O_WRONLY, 0, [](int fd) { return ::write(fd, "a", 1) == 1 ? ::fsync(fd) : -1; });
    add_opened("close", O_WRONLY, 0, [](int fd) { return ::write(fd, "a", 1) == 1 ? ::close(fd) : -1; });
  }

  static int run(const Operation& operation, bool with_timer, int ready, int go) {
    for (const int signal : {SIGALRM, SIGUSR1}) catch_signal(signal, SA_RESTART);
    catch_signal(SIGINT, 0);
    const itimerval every{{0, 20'000}, {0, 20'000}};
    if (with_timer) ::setitimer(ITIMER_REAL, &every, nullptr);
    const int fd = operation.open();
    char byte = 0;
    if (fd < 0 || ::write(ready, &byte, 1) != 1 || ::read(go, &byte, 1) != 1) return 1;
    errno = 0;
    if (operation.call(fd) >= 0) return 0;
    if (errno != EINTR) return errno;
    ::kill(::getpid(), SIGKILL);  // no exit, which would wait for what it closes
    return 0;
  }

  // Each operation waits for the server, in a process of its own.
  void begin_all(bool with_timer) {
    ASSERT_EQ(::pipe(ready_.data()), 0);
    ASSERT_EQ(::pipe(go_.data()), 0);
    for (const Operation& operation : operations_)
      children_.push_back({&operation, in_child([&operation, with_timer, this] {
                             return run(operation, with_timer, ready_[1], go_[0]);
                           })});
    std::string bytes(operations_.size(), 'x');
    for (char& byte : bytes) ASSERT_EQ(::read(ready_[0], &byte, 1), 1);
    mounted_->caller().hold_back([this, listed = false](const schema::Request& request) mutable {
      if (request.has_lookup() && request.lookup().name() != "held") return false;
      if (request.has_getxattr() && request.getxattr().name() != "user.b")
        return false;  // a write asks first
      if (request.has_getattr()) return false;
      // The mount reads ahead, closes and commits by itself.
      const bool for_nobody = request.has_close() || request.has_commit() ||
                              (request.has_readdir() && std::exchange(listed, true));
      if (!for_nobody) ++waiting_;
      return true;
    });
    ASSERT_EQ(::write(go_[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    ASSERT_TRUE(eventually([&] { return waiting_ >= operations_.size(); }))
        << waiting_ << " of " << operations_.size();
  }
  void signal_all(int signal) {
    for (const Child& child : children_) ::kill(child.pid, signal);
  }
  // How each has ended: its exit code, or minus its signal; nullopt: it has not.
  std::vector<std::optional<int>> ended_by(SteadyClock::time_point deadline) {
    std::vector<std::optional<int>> ended(children_.size());
    for (bool all = false; !all && SteadyClock::now() < deadline;) {
      all = true;
      for (std::size_t i = 0; i < children_.size(); ++i) {
        int status = 0;
        if (!ended[i] && ::waitpid(children_[i].pid, &status, WNOHANG) == children_[i].pid)
          ended[i] = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
        all = all && ended[i];
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // polls what no event tells of
    }
    std::erase_if(children_,
                  [&, i = std::size_t{0}](const Child&) mutable { return ended[i++].has_value(); });
    return ended;
  }
  void expect_all_end_by(int signal) {
    const std::vector<Child> begun = children_;
    signal_all(signal);
    const auto ended = ended_by(SteadyClock::now() + kEndsWithin);
    for (std::size_t i = 0; i < begun.size(); ++i) {
      const bool fault = ended[i] == -SIGBUS && begun[i].operation->page;  // what a page fault comes to
      if (!fault) EXPECT_EQ(ended[i], std::optional(-signal)) << begun[i].operation->name;
    }
  }

  std::array<int, 2> ready_{-1, -1};
  std::array<int, 2> go_{-1, -1};
  std::vector<Operation> operations_;
  std::vector<Child> children_;
  std::atomic<std::size_t> waiting_{0};  // operations, for the server
};

TEST_F(Signals, HarmlessSignalsEndNoOperation) {
  begin_all(true);
  signal_all(SIGUSR1);
  signal_all(SIGTSTP);
  std::this_thread::sleep_for(kHarmlessFor / 2);  // nothing is to happen meanwhile
  signal_all(SIGCONT);
  const std::vector<Child> begun = children_;
  const auto early = ended_by(SteadyClock::now() + kHarmlessFor);
  for (std::size_t i = 0; i < begun.size(); ++i)
    EXPECT_FALSE(early[i].has_value()) << begun[i].operation->name << ": " << *early[i];
  mounted_->caller().go_on();
  const std::vector<Child> left = children_;
  const auto ended = ended_by(SteadyClock::now() + std::chrono::seconds(20));
  for (std::size_t i = 0; i < left.size(); ++i)
    EXPECT_EQ(ended[i], std::optional(0)) << left[i].operation->name;
}

TEST_F(Signals, SigtermEndsEachOperationAlsoBehindHarmlessSignals) {
  begin_all(true);
  std::this_thread::sleep_for(kHarmlessFor / 4);
  expect_all_end_by(SIGTERM);
}

TEST_F(Signals, SigkillEndsEachOperation) {
  begin_all(false);
  expect_all_end_by(SIGKILL);
}

TEST_F(Signals, ACaughtSigintEndsEachOperationWithEintr) {
  std::erase_if(operations_, [](const Operation& operation) { return operation.page; });
  begin_all(true);
  const std::vector<Child> begun = children_;
  signal_all(SIGINT);
  const auto ended = ended_by(SteadyClock::now() + 2 * kEndsWithin);  // and the close of what it had written
  for (std::size_t i = 0; i < begun.size(); ++i)
    EXPECT_EQ(ended[i], std::optional(-SIGKILL)) << begun[i].operation->name;
}

}  // namespace
}  // namespace tusk::test
