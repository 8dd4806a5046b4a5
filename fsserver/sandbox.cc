#include "fsserver/sandbox.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fsserver/fd.h"

namespace tusk::server {
namespace {

// ---------------------------------------------------------------- system calls

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t kArchitecture = 0;  // no filter
#endif
constexpr std::uint32_t kX32Bit = 0x40000000;  // the x32 ABI has its own numbers from there on

// What no part of a file server does, and what an attacker does next: start programs, change what is mounted,
// load code into the kernel, look into other processes, leave namespaces.
constexpr int kForbidden[] = {
    SYS_execve,
    SYS_execveat,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_pidfd_getfd,
    SYS_kcmp,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_move_mount,
    SYS_open_tree,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
#ifdef SYS_mount_setattr
    SYS_mount_setattr,
#endif
    SYS_setns,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
#ifdef SYS_kexec_file_load
    SYS_kexec_file_load,
#endif
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_acct,
    SYS_quotactl,
#ifdef SYS_quotactl_fd
    SYS_quotactl_fd,
#endif
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_adjtimex,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_syslog,
    SYS_vhangup,
    SYS_personality,
#ifdef SYS_iopl
    SYS_iopl,
    SYS_ioperm,
#endif
};

constexpr std::uint32_t kNewNamespaces =
    CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
// Of unshare only: clone takes that bit for a part of the signal to send.
constexpr std::uint32_t kNewClock = CLONE_NEWTIME;
constexpr int kSocketFamilies[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};

using Program = std::vector<sock_filter>;

void load(Program& program, std::size_t offset) {
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset)));
}

void answer(Program& program, std::uint32_t action) { program.push_back(BPF_STMT(BPF_RET | BPF_K, action)); }

constexpr std::uint32_t refuse(int error) {
  return SECCOMP_RET_ERRNO | (static_cast<std::uint32_t>(error) & SECCOMP_RET_DATA);
}

// `how` (BPF_JEQ, ...) of what was loaded and `value`: then `action`.
void answer_if(Program& program, std::uint16_t how, std::uint32_t value, std::uint32_t action) {
  program.push_back(BPF_JUMP(static_cast<std::uint16_t>(BPF_JMP | how | BPF_K), value, 0, 1));
  answer(program, action);
}

// The first argument of the system call that was loaded, if it is `call`; `rest` ends with an answer.
void with_argument(Program& program, int call, const Program& rest) {
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0,
                             static_cast<std::uint8_t>(rest.size() + 1)));
  load(program, offsetof(seccomp_data, args));  // its lower half: both architectures are little-endian
  program.insert(program.end(), rest.begin(), rest.end());
}

Program filter() {
  Program program;
  load(program, offsetof(seccomp_data, arch));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0));
  answer(program, SECCOMP_RET_KILL_PROCESS);
  load(program, offsetof(seccomp_data, nr));
  answer_if(program, BPF_JGE, kX32Bit, SECCOMP_RET_KILL_PROCESS);
  for (const int call : kForbidden)
    answer_if(program, BPF_JEQ, static_cast<std::uint32_t>(call), refuse(EPERM));
  // Its flags lie in memory, where no filter can look: glibc then uses clone.
  answer_if(program, BPF_JEQ, SYS_clone3, refuse(ENOSYS));
  Program namespaces;
  answer_if(namespaces, BPF_JSET, kNewNamespaces, refuse(EPERM));
  answer(namespaces, SECCOMP_RET_ALLOW);
  Program of_unshare;
  answer_if(of_unshare, BPF_JSET, kNewNamespaces | kNewClock, refuse(EPERM));
  answer(of_unshare, SECCOMP_RET_ALLOW);
  with_argument(program, SYS_clone, namespaces);
  with_argument(program, SYS_unshare, of_unshare);
  Program families;
  for (const int family : kSocketFamilies)
    answer_if(families, BPF_JEQ, static_cast<std::uint32_t>(family), SECCOMP_RET_ALLOW);
  answer(families, refuse(EAFNOSUPPORT));
  with_argument(program, SYS_socket, families);
  answer(program, SECCOMP_RET_ALLOW);
  return program;
}

Result<std::string> restrict_system_calls() {
  if (kArchitecture == 0) return fail(ErrorCode::kUnsupported, "no filter for this processor");
  Program program = filter();
  const sock_fprog whole{.len = static_cast<unsigned short>(program.size()), .filter = program.data()};
  // SPEC_ALLOW: tuskd runs nobody's code, and older kernels would slow down the whole process.
  constexpr unsigned kFlags = SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW;
  if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, kFlags, &whole) != 0) return fail_errno("seccomp");
  return "system calls (seccomp)";
}

// ---------------------------------------------------------------- files

// Newer than the kernel's headers of Debian 12.
constexpr std::uint64_t kTruncate = 1ull << 14;     // ABI 3
constexpr std::uint64_t kIoctlDevice = 1ull << 15;  // ABI 5
constexpr std::uint64_t kScopeSignal = 1ull << 1;   // ABI 6
constexpr int kAbiMin = 2;                          // below it nothing can be moved between directories

struct RulesetAttributes {  // landlock_ruleset_attr of ABI 6
  std::uint64_t handled_access_fs;
  std::uint64_t handled_access_net;
  std::uint64_t scoped;
};

constexpr std::uint64_t kRead =
    LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr std::uint64_t kFileRights = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE |
                                      LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate | kIoctlDevice;
constexpr std::uint64_t kNewFiles = LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_WRITE_FILE |
                                    LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_READ_DIR | kTruncate;
constexpr std::uint64_t kAllOfAbi2 = (1ull << 14) - 1;

// What glibc and this program read of the system. /proc/self is this process alone.
constexpr const char* kSystemFiles[] = {
    "/etc",      "/usr",        "/lib", "/lib64", "/proc/self", "/proc/sys/kernel", "/sys/devices/system/cpu",
    "/dev/null", "/dev/urandom"};

std::uint64_t handled(int abi) {
  return kAllOfAbi2 | (abi >= 3 ? kTruncate : 0) | (abi >= 5 ? kIoctlDevice : 0);
}

Result<void> allow(const Fd& ruleset, const std::filesystem::path& path, std::uint64_t rights) {
  const Fd place(::open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat st {};
  if (!place.valid() || ::fstat(place.number(), &st) != 0) return fail_errno(path.string());
  if (!S_ISDIR(st.st_mode)) rights &= kFileRights;
  const landlock_path_beneath_attr beneath{.allowed_access = rights, .parent_fd = place.number()};
  if (::syscall(SYS_landlock_add_rule, ruleset.number(), LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) != 0)
    return fail_errno(path.string());
  return {};
}

Result<std::string> restrict_files(const SandboxWish& wish) {
  const long abi = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (abi < 0) return fail_errno("Landlock");
  if (abi < kAbiMin) return fail(ErrorCode::kUnsupported, "Landlock before Linux 5.19");
  const std::uint64_t all = handled(static_cast<int>(abi));
  const RulesetAttributes attributes{
      .handled_access_fs = all, .handled_access_net = 0, .scoped = abi >= 6 ? kScopeSignal : 0};
  const std::size_t size = abi >= 6 ? sizeof attributes : sizeof attributes.handled_access_fs;
  const Fd ruleset(static_cast<int>(::syscall(SYS_landlock_create_ruleset, &attributes, size, 0)));
  if (!ruleset.valid()) return fail_errno("Landlock");
  for (const char* path : kSystemFiles)
    (void)allow(ruleset, path, kRead);  // not every system has all of them
  for (const auto& path : wish.read_only) TUSK_TRY(allow(ruleset, path, kRead & all));
  for (const auto& path : wish.read_write) TUSK_TRY(allow(ruleset, path, all));
  for (const auto& path : wish.new_files) TUSK_TRY(allow(ruleset, path, kNewFiles & all));
  if (::syscall(SYS_landlock_restrict_self, ruleset.number(), 0) != 0) return fail_errno("Landlock");
  return "files (Landlock " + std::to_string(abi) + ")";
}

}  // namespace

std::string enter_sandbox(const SandboxWish& wish) {
  if (!wish.system_calls && !wish.files) return "none";
  std::string in_force;
  const auto note = [&in_force](const Result<std::string>& entered, const char* what) {
    if (!in_force.empty()) in_force += ", ";
    in_force += entered ? *entered : std::string("no limit on ") + what + ": " + entered.error().message();
  };
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return "none: no new privileges: " + std::string(std::strerror(errno));
  if (wish.files) note(restrict_files(wish), "files");
  if (wish.system_calls) {
    note(restrict_system_calls(), "system calls");
    (void)::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  }
  return in_force;
}

}  // namespace tusk::server
