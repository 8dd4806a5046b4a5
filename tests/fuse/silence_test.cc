// From the moment that the server counts as silent no change is answered in its place.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "tests/fuse/mounted/mounted_export.h"

namespace tusk::test {
namespace {

// Longer than a change takes that is answered here.
constexpr auto kLocalMax = std::chrono::milliseconds(400);

struct Change {
  const char* name;
  std::function<int()> make;
};

class Silence : public MountedTest {
 protected:
  ExportSetup setup() override {
    return {.lifetime = std::chrono::hours(1), .leases = true, .lease_all = true, .path = [this] {
              return rpc::PathStats{.connected = true, .silent = silent_.load()};
            }};
  }
  void SetUp() override {
    MountedTest::SetUp();
    if (!mounted_) return;
    ASSERT_EQ(::mkdir(in_mount("d").c_str(), 0755), 0);  // from now on this mount's own
    for (const char* name : {"chmod", "touch", "unlink", "rename", "known"}) write_file(file(name), "old");
    ASSERT_EQ(::mkdir(file("rmdir").c_str(), 0755), 0);
    std::promise<void> flushed;
    mounted_->filesystem().flush_all([&](const Result<void>&) { flushed.set_value(); });
    flushed.get_future().get();
  }
  void fall_silent(Duration since) {
    mounted_->caller().hold_back();
    silent_ = since;
    std::this_thread::sleep_for(client::PathEstimate::kAgeMax * 2);  // for so long a path is remembered
  }
  std::string file(const std::string& name) { return in_mount("d/" + name); }

  // Those in the directory of its own that need no answer.
  std::vector<Change> changes() {
    return {{"create",
             [path = file("created")] { return ::open(path.c_str(), O_CREAT | O_WRONLY, 0644) < 0 ? 1 : 0; }},
            {"mkdir", [path = file("made")] { return ::mkdir(path.c_str(), 0755); }},
            {"symlink", [path = file("link")] { return ::symlink("target", path.c_str()); }},
            {"chmod", [path = file("chmod")] { return ::chmod(path.c_str(), 0600); }},
            {"touch", [path = file("touch")] { return ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0); }},
            {"unlink", [path = file("unlink")] { return ::unlink(path.c_str()); }},
            {"rmdir", [path = file("rmdir")] { return ::rmdir(path.c_str()); }},
            {"rename",
             [path = file("rename"), to = file("renamed")] { return ::rename(path.c_str(), to.c_str()); }}};
  }

  std::atomic<Duration> silent_{Duration::zero()};
};

TEST_F(Silence, EachChangeWaitsForTheServer) {
  fall_silent(client::kSilenceMax);
  for (const Change& change : changes()) {
    SCOPED_TRACE(change.name);
    const pid_t child = in_child(change.make);
    std::this_thread::sleep_for(kLocalMax / 8);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, WNOHANG), 0) << "answered here";
    ::kill(child, SIGKILL);
    EXPECT_EQ(exit_code(child), -SIGKILL);
  }
  struct stat st {};
  EXPECT_EQ(::stat(file("known").c_str(), &st), 0);  // what is under a lease is told all the same
  mounted_->caller().go_on();
}

TEST_F(Silence, AShorterOneIsNotNoticed) {
  fall_silent(client::kSilenceMax / 2);
  for (const Change& change : changes()) EXPECT_EQ(exit_code(in_child(change.make)), 0) << change.name;
  mounted_->caller().go_on();
}

TEST_F(Silence, TheCloseOfANewFileWaitsForTheServer) {
  const std::string path = file("written");
  const int fd = ::open(path.c_str(), O_CREAT | O_WRONLY, 0644);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::write(fd, "new", 3), 3);
  fall_silent(client::kSilenceMax);
  std::future<int> closed = std::async(std::launch::async, [fd] { return ::close(fd); });
  EXPECT_EQ(closed.wait_for(kLocalMax), std::future_status::timeout);
  mounted_->caller().go_on();
  silent_ = Duration::zero();
  EXPECT_EQ(closed.get(), 0);
  EXPECT_EQ(read_file(on_server("d/written")), "new");
}

}  // namespace
}  // namespace tusk::test
