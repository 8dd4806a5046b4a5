// Control sockets and daemons that are not what they seem.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>

#include "fsclient/status.h"
#include "tests/support/temp_dir.h"

namespace tusk::client {
namespace {

using support::TempDir;
using testing::HasSubstr;

class ControlOfOthers : public testing::Test {
 protected:
  ControlOfOthers() { ::chmod(directory_.path().c_str(), 0700); }

  std::unique_ptr<ControlServer> serve_saying(const std::string& status) {
    ControlServer::Handlers handlers;
    handlers.status = [status] { return status; };
    return ControlServer::start("/mnt/m", std::move(handlers), directory_.path()).value();
  }
  [[nodiscard]] auto socket() const { return control_socket("/mnt/m", directory_.path()); }

  const TempDir directory_;
};

// Another user, or anybody who may enter the directory, could have made both first.
TEST_F(ControlOfOthers, BelievesNoSocketThatOthersCouldHaveMade) {
  const auto server = serve_saying("{}");
  ASSERT_TRUE(server);
  const std::filesystem::path path = socket().value();
  const auto nothing = [](std::string_view) {};
  const auto refuses = [&](const char* why) {
    EXPECT_EQ(control(path, "status", nothing).error().code, from_errno(EPERM)) << why;
    EXPECT_EQ(daemon_at(path).error().code, from_errno(EPERM)) << why;
    EXPECT_EQ(kill_daemon(path).error().code, from_errno(EPERM)) << why;
  };
  for (const mode_t mode : {0755, 0770, 0701, 0777}) {
    ASSERT_EQ(::chmod(directory_.path().c_str(), mode), 0);
    refuses("a directory that others may enter");
    EXPECT_FALSE(socket());
    EXPECT_THAT(check_control_directory(directory_.path()).error().context,
                HasSubstr("must be a directory of yours with mode 0700"));
  }
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0700), 0);
  EXPECT_TRUE(control(path, "status", nothing));
  EXPECT_TRUE(check_control_directory(directory_ / "none"));
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chown(directory_.path().c_str(), 1234, 1234), 0);
  refuses("a directory of another user");
  EXPECT_THAT(check_control_directory(directory_.path()).error().context,
              HasSubstr("another user (uid 1234)"));
  ASSERT_EQ(::chown(directory_.path().c_str(), 0, 0), 0);
}

TEST_F(ControlOfOthers, AnotherProcessInTheDaemonsPlaceIsNotKilled) {
  const auto server = serve_saying("{}");
  ASSERT_TRUE(server);
  const std::filesystem::path path = socket().value();
  const std::filesystem::path other = path.string() + "-other";
  const pid_t child = ::fork();
  if (child == 0) {
    (void)::close_range(STDERR_FILENO + 1, ~0u, 0);  // the daemon's socket among them
    const int listening = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    std::strncpy(address.sun_path, other.c_str(), sizeof address.sun_path - 1);
    if (::bind(listening, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(listening, SOMAXCONN) != 0 || ::rename(other.c_str(), path.c_str()) != 0)
      ::_exit(1);
    for (;;) ::pause();
  }
  while (!daemon_at(path) || daemon_at(path).value() != child) std::this_thread::yield();
  const Result<void> killed = kill_daemon(path);
  ASSERT_FALSE(killed);
  EXPECT_THAT(killed.error().context, HasSubstr("is not the daemon"));
  EXPECT_EQ(::waitpid(child, nullptr, WNOHANG), 0);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(ControlOfOthers, ADaemonThatHangsIsKilled) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto server = serve_saying("{}");
    for (;;) ::pause();
  }
  while (!socket()) std::this_thread::yield();
  ::kill(child, SIGSTOP);
  EXPECT_TRUE(kill_daemon(socket().value()));
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

}  // namespace
}  // namespace tusk::client
