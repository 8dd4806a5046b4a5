// COMMIT: what was sent is on the disk before the answer.
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "fsserver/operations.h"

namespace tusk::server::ops {
namespace {

constexpr Cost kCommitCost = 100;  // however long the disk takes: meanwhile the processor is others'

// A file system is mounted inside the exported directory, where syncfs(2) of the export's own does not reach.
bool has_mounts_inside(const std::string& path) {
  const std::string inside = path.ends_with('/') ? path : path + '/';
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::size_t field = 0;
    for (int fields = 0; fields < 4 && field != std::string::npos; ++fields)
      field = line.find(' ', field + 1);
    if (field != std::string::npos && line.compare(field + 1, inside.size(), inside) == 0) return true;
  }
  return false;
}

// FUSE answers syncfs(2) without asking its daemon.
bool passes_syncfs_on(const Fd& root) {
  struct statfs facts {};
  return ::fstatfs(root.number(), &facts) == 0 && facts.f_type != FUSE_SUPER_MAGIC;
}

// Whatever anybody has changed in the file system. Errors that the disk met since the session began are told
// once to each session, as by fsync(2).
Result<void> commit_all(Call& call) {
  if (call.attachment().read_only) return fail(from_errno(EROFS), "a mount that changes nothing");
  const Fd& root = call.session().root();
  if (!root.valid()) return ::sync(), Result<void>();  // it could not be opened
  if (::syncfs(root.number()) != 0) return fail_errno("syncfs");
  if (!passes_syncfs_on(root) || has_mounts_inside(call.exported().settings().path.string())) ::sync();
  return {};
}

Result<SharedFd> to_commit(const Call& call) {
  const auto& request = call.request().commit();
  if (request.directory()) {
    TUSK_ASSIGN(const SharedFd node, call.node(request.handle()));
    TUSK_ASSIGN(Fd directory, reopen(*node, O_RDONLY | O_DIRECTORY));
    return share(std::move(directory));
  }
  if (const auto open = call.session().find(request.open_id()); open && open->handle == request.handle())
    return open->fd;
  const std::uint64_t lost = call.session().find(request.open_id()) ? 0 : request.open_id();
  auto file = call.file(request.handle(), 0, O_RDONLY);
  if (!file && file.error().code == from_errno(EACCES)) file = call.file(request.handle(), lost, O_WRONLY);
  if (!file) return std::unexpected(std::move(file).error());
  return file->fd;
}

}  // namespace

Result<void> commit(Call& call) {
  this_turn().spend(kCommitCost);
  const auto& request = call.request().commit();
  if (request.all()) {
    TUSK_TRY(commit_all(call));
  } else {
    TUSK_ASSIGN(const SharedFd fd, to_commit(call));
    if ((request.data_only() ? ::fdatasync(fd->number()) : ::fsync(fd->number())) != 0)
      return fail_errno("fsync");
  }
  call.reply.mutable_commit()->set_boot_id(std::string(call.boot_id()));
  return {};
}

}  // namespace tusk::server::ops
