#include "fsserver/owner_rights.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

namespace tusk::server {
namespace {

// A number, with a descriptor beside it or none.
struct Letter {
  int number = 0;
  Fd fd;
};

union Control {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
};

bool send_letter(const Fd& socket, int number, int descriptor) {
  iovec text{&number, sizeof number};
  Control control{};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = &control;
    message.msg_controllen = sizeof control;
    control.header = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    std::memcpy(CMSG_DATA(&control.header), &descriptor, sizeof descriptor);
  }
  return ::sendmsg(socket.number(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof number);
}

// nullopt: nobody is at the other end any more.
std::optional<Letter> receive_letter(const Fd& socket) {
  Letter letter;
  iovec text{&letter.number, sizeof letter.number};
  Control control{};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = sizeof control;
  ssize_t size = 0;
  do size = ::recvmsg(socket.number(), &message, MSG_CMSG_CLOEXEC);
  while (size < 0 && errno == EINTR);
  if (size != static_cast<ssize_t>(sizeof letter.number)) return std::nullopt;
  if (message.msg_controllen >= CMSG_LEN(sizeof(int)) && control.header.cmsg_type == SCM_RIGHTS) {
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(&control.header), sizeof descriptor);
    letter.fd = Fd(descriptor);
  }
  return letter;
}

bool write_text(const char* path, const std::string& text) {
  const Fd file(::open(path, O_WRONLY | O_CLOEXEC));
  return file.valid() &&
         ::write(file.number(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// The user and the group as they are, and no others.
bool enter_namespace() {
  const std::string user = std::to_string(::geteuid());
  const std::string group = std::to_string(::getegid());
  return ::unshare(CLONE_NEWUSER) == 0 && write_text("/proc/self/setgroups", "deny") &&
         write_text("/proc/self/uid_map", user + " " + user + " 1") &&
         write_text("/proc/self/gid_map", group + " " + group + " 1");
}

bool keep_one_capability() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  sets[0].effective = sets[0].permitted = 1u << CAP_DAC_OVERRIDE;
  return ::syscall(SYS_capset, &header, sets) == 0;
}

[[noreturn]] void serve(const Fd& socket, const SandboxWish& sandbox) {
  (void)::prctl(PR_SET_NAME, "tuskd-reopen");
  const bool ready = enter_namespace() && keep_one_capability();
  const int error = ready ? 0 : errno;
  if (ready) (void)enter_sandbox(sandbox);
  if (!send_letter(socket, error, -1) || !ready) ::_exit(EXIT_FAILURE);
  while (const auto asked = receive_letter(socket)) {
    // A lease that a program has on the file (F_SETLEASE) is for the one who asks to wait for.
    constexpr int kHow = O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    const Fd opened(::open(proc_path(asked->fd).c_str(), (asked->number & O_ACCMODE) | kHow));
    if (!send_letter(socket, opened.valid() ? 0 : errno, opened.valid() ? opened.number() : -1)) break;
  }
  ::_exit(EXIT_SUCCESS);
}

}  // namespace

Result<std::unique_ptr<OwnerRights>> OwnerRights::start(const SandboxWish& sandbox) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return fail_errno("socketpair");
  Fd ours(ends[0]);
  Fd theirs(ends[1]);
  const pid_t process = ::fork();
  if (process < 0) return fail_errno("fork");
  if (process == 0) {
    ours = Fd();  // so that it ends with tuskd
    serve(theirs, sandbox);
  }
  theirs = Fd();
  std::unique_ptr<OwnerRights> rights(new OwnerRights(std::move(ours), process));
  const auto ready = receive_letter(rights->socket_);
  if (!ready) return fail(ErrorCode::kUnsupported, "its process has ended");
  if (ready->number != 0) return fail(from_errno(ready->number), "a user namespace");
  return rights;
}

OwnerRights::~OwnerRights() {
  socket_ = Fd();  // which ends it; Landlock forbids a signal from here
  (void)::waitpid(process_, nullptr, 0);
}

// A program may have a lease on the file (F_SETLEASE). Only this caller waits until it has given that back,
// which the kernel sees to.
Result<Fd> OwnerRights::reopen(const Fd& node, int access) {
  constexpr auto kLeaseBreakMax = std::chrono::minutes(1);
  constexpr auto kPause = std::chrono::milliseconds(20);
  const auto until = std::chrono::steady_clock::now() + kLeaseBreakMax;
  while (true) {
    auto opened = try_reopen(node, access);
    if (opened || opened.error().code != from_errno(EAGAIN)) return opened;
    if (std::chrono::steady_clock::now() >= until) return opened;
    std::this_thread::sleep_for(kPause);
  }
}

Result<Fd> OwnerRights::try_reopen(const Fd& node, int access) {
  const std::lock_guard lock(mutex_);
  if (!send_letter(socket_, access, node.number())) return fail(from_errno(EACCES), "nobody opens it");
  auto answer = receive_letter(socket_);
  if (!answer) return fail(from_errno(EACCES), "nobody opens it");
  if (answer->number != 0) return fail(from_errno(answer->number), "open as its owner");
  (void)::fcntl(answer->fd.number(), F_SETFL, 0);  // without O_NONBLOCK from now on
  return std::move(answer->fd);
}

}  // namespace tusk::server
