#include "fsclient/mount.h"

#define FUSE_USE_VERSION 312
#include <dirent.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>

#include "fsclient/mount_place.h"
#include "fsclient/mount_table.h"

namespace tusk::client {
namespace {

constexpr std::string_view kUnmountCommand = "fusermount3";

// libfuse tells of failures by printing: what it said last belongs into our error.
std::mutex said_mutex;
std::string said;

void listen_to_libfuse(fuse_log_level, const char* format, std::va_list arguments) {
  char line[512];
  std::vsnprintf(line, sizeof line, format, arguments);
  const std::lock_guard lock(said_mutex);
  said = line;
  while (!said.empty() && said.back() == '\n') said.pop_back();
}

std::string what_libfuse_said() {
  const std::lock_guard lock(said_mutex);
  return said;
}

// Runs a program without a shell; its stderr comes back with a failure.
Result<void> run(const std::vector<std::string>& command) {
  int output[2];
  if (::pipe2(output, O_CLOEXEC) != 0) return fail_errno("pipe");
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(output[1], STDERR_FILENO);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::close(output[1]);
  std::string text;
  char buffer[256];
  for (ssize_t count; child > 0 && (count = ::read(output[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(count));
  ::close(output[0]);
  if (child < 0) return fail_errno("fork");
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const bool missing = WIFEXITED(status) && WEXITSTATUS(status) == 127;
  if (missing) return fail(from_errno(ENOENT), command.front() + " is not installed (package fuse3)");
  const bool busy = text.find("busy") != std::string::npos;
  return fail(from_errno(busy ? EBUSY : EPERM), text.empty() ? command.front() : text);
}

bool in_path(std::string_view program) {
  for (const char* directory : {"/usr/bin/", "/bin/", "/usr/local/bin/", "/usr/sbin/", "/sbin/"})
    if (::access((directory + std::string(program)).c_str(), X_OK) == 0) return true;
  return false;
}

}  // namespace

Result<void> unmount_path(const std::filesystem::path& mountpoint, bool lazy) {
  if (::geteuid() == 0) {
    if (::umount2(mountpoint.c_str(), UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0) return {};
    if (errno == EBUSY) return fail(from_errno(EBUSY), mountpoint.string() + " is in use");
    return fail_errno("umount " + mountpoint.string());
  }
  std::vector<std::string> command{std::string(kUnmountCommand), "-u"};
  if (lazy) command.emplace_back("-z");
  command.emplace_back("--");
  command.push_back(mountpoint.string());
  return run(command);
}

// ---------------------------------------------------------------- checking

namespace {

Result<void> check_device() {
  if (::access("/dev/fuse", R_OK | W_OK) == 0) return {};
  if (errno == EACCES)
    return fail(from_errno(EACCES), "you may not open /dev/fuse: its mode or group keeps this user out");
  return fail(from_errno(errno),
              "/dev/fuse cannot be opened (modprobe fuse; in a container: --device /dev/fuse)");
}

}  // namespace

Result<void> Mount::check(const std::filesystem::path& mountpoint) {
  const std::string name = mountpoint.string();
  if (mountpoint == mountpoint.root_path())
    return fail(from_errno(EINVAL), "/ holds everything else and cannot be mounted on: make a directory");
  TUSK_TRY(check_no_kernel_place(mountpoint));
  const std::optional<MountedAt> mounted = mounted_at(mountpoint);
  struct stat st {};
  // A live mount of ours is not to be touched: its server may be far away.
  const bool ours = mounted && mounted->type == kFilesystemType;
  const bool dead = ours && ::stat(name.c_str(), &st) != 0 && errno == ENOTCONN;
  if (dead) {
    if (Result<void> removed = unmount_path(mountpoint, true); !removed) return removed;
  } else if (ours) {
    return fail(from_errno(EBUSY), name + " has " + mounted->source + " mounted on it already");
  }
  if (::stat(name.c_str(), &st) != 0) {
    if (errno == ENOENT) return fail(from_errno(ENOENT), name + " does not exist: make it first (mkdir)");
    if (errno == ENOTCONN)
      return fail(from_errno(ENOTCONN), name + " is a dead mount: run fusermount3 -u " + name + " first");
    return fail(from_errno(errno), name + ": " + std::strerror(errno));
  }
  if (!S_ISDIR(st.st_mode)) return fail(from_errno(ENOTDIR), name + " is not a directory");
  if (::geteuid() != 0 && ::access(name.c_str(), W_OK) != 0)
    return fail(from_errno(EACCES), name + " is not yours to write to, so you cannot mount on it");
  return check_device();
}

// ---------------------------------------------------------------- the session

Mount::~Mount() {
  if (serving_) {
    if (!unmount(true)) abort();
    fuse_session_exit(session_);
    // A detached mount lives as long as somebody uses it; we do not.
    abort();
  }
  wait();
  if (session_ == nullptr) return;
  fuse_session_unmount(session_);  // nothing is mounted any more; frees what it keeps for that
  fuse_session_destroy(session_);
}

std::string fuse_options(const MountOptions& options) {
  std::string joined =
      "default_permissions,subtype=tusk,max_read=" + std::to_string(FuseAdapter::kTransferMax);
  joined += ",fsname=";
  for (const char c : options.source) {
    if (c == ',' || c == '\\') joined += '\\';  // fuse_opt_parse() takes a list apart at commas
    joined += c;
  }
  if (options.read_only) joined += ",ro";
  if (options.allow_other) joined += ",allow_other";
  if (options.auto_unmount && in_path(kUnmountCommand)) joined += ",auto_unmount";
  for (const std::string& option : options.kernel_options) joined += "," + option;
  return joined;
}

Result<void> Mount::open_session() {
  const std::string joined = fuse_options(options_);

  fuse_set_log_func(listen_to_libfuse);
  fuse_args arguments = FUSE_ARGS_INIT(0, nullptr);
  for (const char* word : {"tusk", "-o", joined.c_str()}) fuse_opt_add_arg(&arguments, word);
  session_ =
      fuse_session_new(&arguments, &FuseAdapter::operations(), sizeof(fuse_lowlevel_ops), adapter_.get());
  fuse_opt_free_args(&arguments);
  if (session_ == nullptr) return fail(ErrorCode::kBadConfig, "mount options: " + what_libfuse_said());
  if (fuse_session_mount(session_, options_.mountpoint.c_str()) == 0) return {};

  const std::string why = what_libfuse_said();
  fuse_session_destroy(std::exchange(session_, nullptr));
  if (why.find("user_allow_other") != std::string::npos)
    return fail(from_errno(EPERM), "allow_other needs the line user_allow_other in /etc/fuse.conf");
  return fail(from_errno(EPERM), "mount on " + options_.mountpoint.string() + ": " + why);
}

Result<void> Mount::start(Filesystem& filesystem) {
  adapter_.reset(new FuseAdapter{.filesystem = filesystem, .acls = options_.acls, .on_init = [this] {
                                   initialised_ = true;
                                   initialised_.notify_all();
                                 }});
  TUSK_TRY(open_session());
  serving_ = true;
  server_ = std::thread([this] { serve(); });
  initialised_.wait(false);
  if (!serving_) return fail(from_errno(ENOTCONN), "the kernel closed the mount at once");
  if (find_device()) raise_read_ahead();
  return {};
}

void Mount::serve() {
  fuse_loop_config* config = fuse_loop_cfg_create();
  // Each thread has its own queue; a reply goes back on the descriptor its request came from.
  // One descriptor for all threads. libfuse gives an INTERRUPT back (EAGAIN) that it reads before it has
  // noted the request. The kernel looks for that request among those of the same descriptor, and forgets the
  // INTERRUPT else.
  fuse_loop_cfg_set_clone_fd(config, 0);
  fuse_loop_cfg_set_max_threads(config, options_.threads);
  fuse_loop_cfg_set_idle_threads(config, options_.threads);
  fuse_session_loop_mt(session_, config);
  fuse_loop_cfg_destroy(config);
  serving_ = false;
  serving_.notify_all();
  initialised_ = true;
  initialised_.notify_all();
}

void Mount::wait() {
  if (server_.joinable()) server_.join();
}

// Once it was taken out of the tree, what is mounted there is somebody else's.
Result<void> Mount::unmount(bool lazy) {
  const std::optional<MountedAt> mounted = mounted_at(options_.mountpoint);
  if (!mounted || mounted->device != device_)
    return fail(from_errno(EINVAL), options_.mountpoint.string() + " is not this mount any more");
  return unmount_path(options_.mountpoint, lazy);
}

void Mount::abort() {
  if (device_.empty()) return;
  const std::string minor = device_.substr(device_.find(':') + 1);
  std::ofstream("/sys/fs/fuse/connections/" + minor + "/abort") << 1;
}

// From the mount table, not by stat: that would be a request to ourselves.
bool Mount::find_device() {
  const std::optional<MountedAt> mounted = mounted_at(options_.mountpoint);
  if (mounted) device_ = mounted->device;
  return mounted.has_value();
}

// The INIT reply can only lower the kernel's read-ahead, so it is raised from outside, once the kernel
// has taken in that reply: it is on its way while we are here, so this looks twice.
void Mount::raise_read_ahead() {
  const std::string path = "/sys/class/bdi/" + device_ + "/read_ahead_kb";
  constexpr int kAttempts = 5;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::this_thread::sleep_for(std::chrono::milliseconds(attempt == 0 ? 1 : 5));
    unsigned now = 0;
    if (!(std::ifstream(path) >> now)) return;
    if (now == options_.read_ahead_kib) return;
    if (!(std::ofstream(path) << options_.read_ahead_kib << std::flush)) return;  // not root: 128 KiB will do
  }
}

// ---------------------------------------------------------------- what the kernel caches

void Mount::invalidate_inode(NodeId node) { invalidate_from(node, 0); }

void Mount::invalidate_from(NodeId node, ByteCount from) {
  if (session_ != nullptr)
    fuse_lowlevel_notify_inval_inode(session_, node.value(), static_cast<off_t>(from), 0);
}

void Mount::invalidate_range(NodeId node, Interval range) {
  if (session_ != nullptr)
    fuse_lowlevel_notify_inval_inode(session_, node.value(), static_cast<off_t>(range.begin),
                                     static_cast<off_t>(range.size()));
}

bool Mount::invalidate_attributes(NodeId node) {
  constexpr off_t kNoPages = -1;
  return session_ == nullptr ||
         fuse_lowlevel_notify_inval_inode(session_, node.value(), kNoPages, 0) != -ENOENT;
}

void Mount::invalidate_entry(NodeId parent, const std::string& name) {
  if (session_ != nullptr)
    fuse_lowlevel_notify_inval_entry(session_, parent.value(), name.c_str(), name.size());
}

}  // namespace tusk::client
