#include "fsclient/mount_command.h"

#include <fcntl.h>
#include <signal.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/syslog_sink.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "fsclient/cli.h"
#include "fsclient/mount.h"
#include "fsclient/mount_daemon.h"
#include "fsclient/mount_table.h"
#include "proto/rpc/printable_log.h"

namespace tusk::client {
namespace {

constexpr const char* kInterruptedText = "interrupted: nothing is mounted";

// ---------------------------------------------------------------- the log

void log_to_stderr(const char* pattern) {
  auto logger = spdlog::stderr_color_mt("stderr");
  logger->set_formatter(std::make_unique<rpc::PrintableFormatter>(pattern));
  spdlog::set_default_logger(std::move(logger));
}

// What is said before the mount is live is for whoever typed the command.
void log_to_the_caller() { log_to_stderr("tusk: %l: %v"); }

void log_in_the_foreground() { log_to_stderr("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v"); }

void log_to_syslog() {
  constexpr bool kByFormatter = true;
  auto logger = spdlog::syslog_logger_mt("tusk", "tusk", LOG_PID, LOG_DAEMON, kByFormatter);
  logger->set_formatter(std::make_unique<rpc::PrintableFormatter>("%v", ""));
  spdlog::set_default_logger(std::move(logger));
}

// ---------------------------------------------------------------- the daemon

void close_standard_streams() {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, stream);
  ::close(null);
}

// A pipe of whoever started us is not to stay open, and its reader waiting, for as long as the mount lives.
void close_inherited(int except) {
  constexpr unsigned kFirst = STDERR_FILENO + 1;
  const auto kept = static_cast<unsigned>(except);
  if (kept > kFirst) (void)::close_range(kFirst, kept - 1, 0);
  (void)::close_range(kept + 1, ~0u, 0);
}

// In the child of a background mount: tells the waiting parent, then belongs to nobody's terminal.
int serve_in_background(const MountSettings& settings, int report) {
  ::setsid();
  if (::chdir("/") != 0) return kMountFailed;
  log_to_the_caller();
  const auto say = [report](const std::string& text) {
    if (::write(report, text.data(), text.size()) < 0) spdlog::warn("the mount command is gone");
    ::close(report);
  };
  const Result<void> ended = run_mount(settings, {.live =
                                                      [&] {
                                                        log_to_syslog();
                                                        close_standard_streams();
                                                        say("+");
                                                      },
                                                  .interrupted = [] { std::_Exit(kInterrupted); }});
  if (ended) return 0;
  // Nobody reads this if it was live already; then it is in the log.
  spdlog::debug("{}", ended.error().message());
  say("-" + explain(ended.error(), settings));
  return kMountFailed;
}

// ---------------------------------------------------------------- waiting for it

// The daemon has left the terminal, so what would end us there is passed on to it. For the signal handler,
// which needs them lock-free.
std::atomic<pid_t> awaited_daemon{0};
std::atomic<bool> was_interrupted{false};
static_assert(std::atomic<pid_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void end_the_daemon(int) {
  const int before = errno;
  was_interrupted = true;
  if (const pid_t daemon = awaited_daemon; daemon > 0) ::kill(daemon, SIGTERM);
  errno = before;
}

// What the parent was told to ignore (nohup) it goes on ignoring.
void pass_on_signals(pid_t daemon) {
  awaited_daemon = daemon;
  struct sigaction passing {};
  passing.sa_handler = end_the_daemon;  // without SA_RESTART or with: the daemon's end wakes the reader
  for (const int signal : kEndingSignals) {
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN)
      ::sigaction(signal, &passing, nullptr);
  }
}

// Until the daemon has nothing more to say.
std::string read_report(int report) {
  std::string answer;
  char buffer[1024];
  for (ssize_t size; (size = ::read(report, buffer, sizeof buffer)) != 0;) {
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) break;
    answer.append(buffer, static_cast<std::size_t>(size));
  }
  return answer;
}

// Its mount, if there was one already, is gone then.
void wait_for_the_end_of(pid_t daemon) {
  while (::waitpid(daemon, nullptr, 0) < 0 && errno == EINTR) {
  }
}

int mount_in_background(const MountSettings& settings) {
  int report[2];
  if (::pipe2(report, O_CLOEXEC) != 0) return complain(kMountFailed, fail_errno("pipe").error().message());
  // Held back until both sides know what to do with them.
  const sigset_t signals = ending_signals();
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, &signals, &before);
  const pid_t child = ::fork();
  if (child < 0) return complain(kMountFailed, fail_errno("fork").error().message());
  if (child == 0) {
    close_inherited(report[1]);
    const int code = serve_in_background(settings, report[1]);
    std::_Exit(code);
  }
  ::close(report[1]);
  pass_on_signals(child);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  const std::string answer = read_report(report[0]);
  if (was_interrupted) {
    wait_for_the_end_of(child);
    return complain(kInterrupted, kInterruptedText);
  }
  if (answer == "+") return 0;
  if (answer.starts_with('-')) return complain(kMountFailed, answer.substr(1));
  return complain(kMountFailed, "the mount's process died before it was live");
}

int mount_in_foreground(const MountSettings& settings) {
  log_in_the_foreground();
  const Result<void> ended = run_mount(
      settings, {.live = [] {}, .interrupted = [] { std::_Exit(complain(kInterrupted, kInterruptedText)); }});
  if (ended) return 0;
  if (ended.error().code == ErrorCode::kCancelled) return complain(kInterrupted, kInterruptedText);
  return complain(kMountFailed, explain(ended.error(), settings));
}

}  // namespace

int mount_at(MountSettings settings) {
  settings.mountpoint = resolve_mountpoint(settings.mountpoint);
  if (const Result<void> usable = Mount::check(settings.mountpoint); !usable)
    return complain(kMountFailed, usable.error().context);
  return settings.foreground ? mount_in_foreground(settings) : mount_in_background(settings);
}

}  // namespace tusk::client
