// The umask under which this thread makes a file. Only the kernel knows, in the moment of the making, whether
// the directory has a default ACL, which counts instead of the umask (acl(5), RFC 8275).
//
// Linux keeps a umask per thread only after unshare(CLONE_FS). Where a container forbids that, the mask is
// taken out of the mode instead, and overrides default ACLs.
#pragma once

#include <sys/types.h>

namespace tusk::server {

class CreationMask {
 public:
  // Gives the calling thread a umask of its own, and makes it 0.
  static void own_for_this_thread();

  // Within the scope this thread makes files under `mask` (permission bits).
  explicit CreationMask(mode_t mask);
  ~CreationMask();
  CreationMask(const CreationMask&) = delete;
  CreationMask& operator=(const CreationMask&) = delete;

  // What to pass to open(2), mkdir(2) and mknod(2) for a file whose mode was `mode` before the umask.
  [[nodiscard]] mode_t argument(mode_t mode) const { return mode & ~left_out_; }

 private:
  mode_t left_out_ = 0;
  mode_t before_ = 0;
};

}  // namespace tusk::server
