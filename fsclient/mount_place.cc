#include "fsclient/mount_place.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>
#include <string_view>

#include "fsclient/mount_table.h"

namespace tusk::client {
namespace {

namespace fs = std::filesystem;

// Types of file systems without directories of anybody's own.
constexpr std::string_view kKernelTypes[] = {"binfmt_misc", "bpf",       "cgroup",   "cgroup2", "configfs",
                                             "debugfs",     "devpts",    "efivarfs", "fusectl", "hugetlbfs",
                                             "mqueue",      "nsfs",      "proc",     "pstore",  "rpc_pipefs",
                                             "securityfs",  "selinuxfs", "smackfs",  "sysfs",   "tracefs"};

// Itself included.
bool lies_in(const fs::path& inner, const fs::path& outer) {
  const auto rest = inner.lexically_relative(outer);
  return !rest.empty() && *rest.begin() != "..";
}

std::string boot_id_of_this_machine() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

}  // namespace

Result<void> check_no_kernel_place(const fs::path& mountpoint) {
  const std::optional<MountedAt> below = mount_of(mountpoint);
  if (!below || std::ranges::find(kKernelTypes, below->type) == std::end(kKernelTypes)) return {};
  return fail(from_errno(EPERM),
              fmt::format("{} belongs to the kernel ({} on {}), and programs need what is there: make a "
                          "directory elsewhere (mkdir)",
                          mountpoint.string(), below->type, below->mountpoint.string()));
}

Result<void> check_cache_place(const fs::path& mountpoint, const fs::path& cache_folder) {
  if (cache_folder.empty()) return {};
  std::error_code ignored;
  const fs::path folder = fs::weakly_canonical(cache_folder, ignored);
  if (lies_in(folder, mountpoint))
    return fail(ErrorCode::kBadConfig,
                fmt::format("cache={}: it would lie in the mount itself, on {}: name a folder outside of it",
                            cache_folder.string(), mountpoint.string()));
  if (lies_in(mountpoint, folder))
    return fail(
        ErrorCode::kBadConfig,
        fmt::format("{} lies in the cache folder, {}, where only Tusk may have anything: mount elsewhere, "
                    "or name another folder",
                    mountpoint.string(), cache_folder.string()));
  return {};
}

// A directory has the same number and change time wherever it is seen on one machine, and no two have both.
Result<void> check_outside_the_export(const fs::path& mountpoint, const schema::AttachReply& attached) {
  if (attached.boot_id().empty() || attached.boot_id() != boot_id_of_this_machine()) return {};
  const schema::Attr& root = attached.root().attr();
  for (fs::path place = mountpoint;; place = place.parent_path()) {
    struct stat st {};
    const bool same = ::stat(place.c_str(), &st) == 0 && st.st_ino == root.ino() &&
                      st.st_ctim.tv_sec == root.ctime_s() &&
                      st.st_ctim.tv_nsec == static_cast<long>(root.ctime_ns());
    if (same)
      return fail(
          ErrorCode::kBadConfig,
          fmt::format("{} {} the directory that is to be mounted: the server, on this machine, would look "
                      "into its own mount; choose a directory outside of it",
                      mountpoint.string(), place == mountpoint ? "is" : "lies in"));
    if (!place.has_relative_path()) return {};
  }
}

}  // namespace tusk::client
